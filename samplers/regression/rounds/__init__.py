"""Regressions by rounds of the dynamic engine."""
