"""The stochastic engine: run algorithms written for one thread on many workers."""
