"""Losses: least squares and logistic."""
