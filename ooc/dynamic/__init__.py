"""The dynamic engine: rounds of updates chosen by what the model is like now."""
