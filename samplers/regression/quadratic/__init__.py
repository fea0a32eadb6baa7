"""Solvers of l1-penalized least squares on the columns of a working set."""
