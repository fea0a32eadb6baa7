"""Split datasets between the machines of a ring."""
