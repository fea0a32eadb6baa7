"""Dynamic engine: rounds of parameter updates, scheduled from the current state of the model."""
