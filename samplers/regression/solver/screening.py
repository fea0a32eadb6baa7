"""Rules that tell beforehand which coefficients are 0: one that is safe, and one that has to be checked."""

from __future__ import annotations

import math


def safe_radius(gap: float, curvature: float) -> float:
    """How far from a dual point the best one can be, given the gap between the objectives and the loss's curvature.

    A coefficient is 0 in every solution if scale |c| + radius |x| < lam l1, for a dual point that is the residual
    times the scale, and the correlation c of the column x with it (Ndiaye, Fercoq, Gramfort and Salmon, JMLR 2017,
    theorem 6).
    """
    return math.sqrt(2 * curvature * max(gap, 0.0))


def strong_lambda(lam: float, before: float) -> float:
    """The sequential strong rule discards columns whose correlations for the lambda `before` are below that times l1
    (Tibshirani and others, JRSS B 2012, section 5)."""
    return 2 * lam - before
