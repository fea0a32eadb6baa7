"""The columns of a design matrix for the solvers: in memory, mapped, or on a ring."""
