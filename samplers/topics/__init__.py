"""Trained topic models: what is kept of them, said of them, and done with them."""
