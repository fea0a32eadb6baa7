"""Datasets split for the machines of a ring."""
