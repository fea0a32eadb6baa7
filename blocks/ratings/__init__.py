"""Sparse matrices of numbers: ratings of items by users, for factorizations."""
