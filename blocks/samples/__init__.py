"""Labelled samples stored by row, for algorithms that process one sample after another."""
