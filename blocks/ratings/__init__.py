"""Sparse matrices of numbers, such as ratings of items by users, for matrix factorization."""
