"""Losses: least squares, logistic and Poisson.

A further loss that is minimized by Newton steps is a file such as `poisson.py`: a NamedTuple of y with a bound on the
curvature, and kernels for the derivatives, the dual objective and the length of a step. It needs an entry in each table
of `newton_kernels` and in `samplers.regression.solver.sparse_regression.LOSSES`.
"""
