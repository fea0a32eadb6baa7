"""Objective and dual bound of a regression, from the columns whose correlations are larger than allowed or that have
coefficients.

    minimise over b, a   loss(X b + U a) + sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2

The dual point is the residual, times the largest scale up to 1 for which |x_j . r - l2_j b_j| scale <= l1_j for all j:
the squares are rows of their own, root l2_j times b_j, of which l2_j b_j is the residual.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.losses import Fit, Loss
from samplers.regression.vectors import inner

ALWAYS = np.float32(np.finfo(np.float32).max)  # the gain of a column that has a coefficient


class Standing(NamedTuple):
    """How good some coefficients are."""

    objective: float
    bound: float  # no coefficients have a smaller objective
    scale: float

    @property
    def gap(self) -> float:
        return self.objective - self.bound


@reordered_kernel
def survey(chosen, correlations, gains, support, values, level, l1, l2, norms):
    """Of chosen columns, int64 (m,), ascending, with their correlations, float64 (m,): the largest ratio of slope and
    l1, at least 1. l1, l2: float64 (p,), at level 1. norms: float64 (p,). Coefficients are 0 but for those of the
    support, int64 (s,), ascending, whose values are float64 (s,).

    gains, float32 (m,), get the root of what each can lower the objective by, roughly, or `ALWAYS`.
    """
    steepest, k = 1.0, 0
    for i in range(chosen.size):
        j = chosen[i]
        while k < support.size and support[k] < j:
            k += 1
        b = values[k] if k < support.size and support[k] == j else 0.0
        most = level * l1[j]
        slope = abs(correlations[i] - level * l2[j] * b)
        steepest = max(steepest, slope / most)
        gains[i] = ALWAYS if b != 0.0 else max(slope - most, 0.0) / norms[j]
    return steepest


def standing(loss: Loss, fit: Fit, steepest: float, l1: np.ndarray, l2: np.ndarray, b: np.ndarray) -> Standing:
    """Given the largest ratio of slope and l1 of all columns, and of the s that have coefficients, float64 (s,), these
    and what they cost."""
    scale, absolute, ridge = 1.0 / steepest, inner(l1, np.abs(b)), inner(l2, b * b)
    bound = loss.dual(scale * fit.residual) - 0.5 * scale**2 * ridge
    return Standing(fit.loss + absolute + 0.5 * ridge, bound, scale)
