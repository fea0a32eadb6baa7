"""Kernels on vectors, columns and Gram matrices in memory."""
