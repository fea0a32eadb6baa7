"""Solvers of least squares with an l1 penalty on the columns of a working set."""
