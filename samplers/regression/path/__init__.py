"""Regularization paths and cross-validation: plan, solver, training."""
