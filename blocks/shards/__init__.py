"""Split datasets for the machines of a ring."""
