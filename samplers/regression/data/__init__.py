"""The columns of a design as solvers see them: in memory, mapped, or on a ring."""
