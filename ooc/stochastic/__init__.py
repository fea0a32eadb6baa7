"""The stochastic engine: algorithms that are written for one thread, run by many workers."""
