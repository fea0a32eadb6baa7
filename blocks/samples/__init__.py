"""Labelled samples, row by row, for algorithms that process one after the other."""
