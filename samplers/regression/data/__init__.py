"""Columns of a design matrix for the solvers: in memory, memory-mapped, or on a ring."""
