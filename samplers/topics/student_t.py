"""Student's t distribution, computed with the regularised incomplete beta function: P(|T| > t) = I_x(nu / 2, 1 / 2)
with x = nu / (nu + t^2) (Abramowitz and Stegun 26.7.1), evaluated by the continued fraction 26.5.8.
"""

from __future__ import annotations

import math

import numpy as np

from blocks.compiled import kernel

_TERMS = 1000
_TINY = 1e-300
_CLOSE = 1e-15


def two_sided(t: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return P(|T| > |t|), float64, with the common shape of t and freedom.

    freedom: degrees of freedom. NaN gives NaN.
    """
    found = np.empty(t.shape)
    _fill_two_sided(np.ascontiguousarray(t).reshape(-1), np.ascontiguousarray(freedom).reshape(-1), found.reshape(-1))
    return found


def quantile(level: float, freedom: np.ndarray) -> np.ndarray:
    """Return t with P(|T| <= t) = level, float64, with the shape of `freedom`; NaN where `freedom` is NaN."""
    found = np.empty(freedom.shape)
    _fill_quantiles(level, np.ascontiguousarray(freedom).reshape(-1), found.reshape(-1))
    return found


@kernel
def _fill_two_sided(t, freedom, found):
    """Set P(|T| > |t|).

    t, freedom, found: float64 (n,).
    """
    for place in range(t.size):
        found[place] = tail(t[place], freedom[place])


@kernel
def _fill_quantiles(level, freedom, found):
    """Set t with P(|T| <= t) = level, by bisection.

    freedom, found: float64 (n,).
    """
    for place in range(freedom.size):
        if np.isnan(freedom[place]):
            found[place] = np.nan
            continue
        low, high = 0.0, 1.0
        while high < 1e9 and tail(high, freedom[place]) > 1.0 - level:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = (low + high) / 2.0
            if tail(middle, freedom[place]) > 1.0 - level:
                low = middle
            else:
                high = middle
        found[place] = (low + high) / 2.0


@kernel
def tail(t, freedom):
    """Return P(|T| > |t|) for one t."""
    if np.isnan(t) or np.isnan(freedom):
        return np.nan
    if t == 0.0:
        return 1.0
    half, x = freedom / 2.0, freedom / (freedom + t * t)
    front = math.lgamma(half + 0.5) - math.lgamma(half) - math.lgamma(0.5)
    front = math.exp(front + half * math.log(x) + 0.5 * math.log1p(-x)) if 0.0 < x < 1.0 else 0.0
    if x < (half + 1.0) / (half + 2.5):
        return front * fraction(half, 0.5, x) / half
    return 1.0 - front * fraction(0.5, half, t * t / (freedom + t * t)) / 0.5


@kernel
def fraction(a, b, x):
    """Return the continued fraction of the incomplete beta function, by Lentz's algorithm."""
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    found = d
    for m in range(1, _TERMS):
        for odd in range(2):
            if odd:
                term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
            else:
                term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
            lower, c = 1.0 + term * d, 1.0 + term / c
            d = 1.0 / (lower if abs(lower) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            found *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return found
