"""Vectors, columns and Gram matrices in memory: the kernels that solvers are made of."""
