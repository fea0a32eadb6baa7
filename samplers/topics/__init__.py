"""Trained topic models: storage, description, inference and evaluation."""
