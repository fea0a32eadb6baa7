"""The ring: slices travel from machine to machine, over TCP or MPI, and sums come round."""
