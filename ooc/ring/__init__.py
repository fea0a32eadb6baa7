"""The ring of ranks: slices of the model rotate over TCP or MPI, and sums are formed over all ranks."""
