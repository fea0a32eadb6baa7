"""Screening rules that predict zero coefficients: a safe rule, and the strong rule, which must be checked."""

from __future__ import annotations

import math


def safe_radius(gap: float, curvature: float) -> float:
    """Return the radius of a ball around a dual point that contains the optimal dual point, from the duality gap and
    the curvature of the loss, see `Loss.curvature`.

    A coefficient is 0 in every solution if scale |c| + radius |x| < lam l1, for the dual point residual * scale, and
    the correlation c of column x with the residual (Ndiaye, Fercoq, Gramfort and Salmon, JMLR 2017, theorem 6).
    """
    return math.sqrt(2 * curvature * max(gap, 0.0))


def strong_lambda(lam: float, before: float) -> float:
    """Return the threshold of the sequential strong rule.

    The rule discards columns whose correlations at the lambda `before` are below the threshold times l1 (Tibshirani and
    others, JRSS B 2012, section 5).
    """
    return 2 * lam - before
