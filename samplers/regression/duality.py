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
def survey(chosen, correlations, coefficients, level, l1, l2, norms, gains):
    """Of chosen columns, int64 (m,), with their correlations, float64 (m,): the largest ratio of slope and l1, at least
    1; the sum of l1_j |b_j|; the sum of l2_j b_j^2. l1, l2: float64 (p,), at level 1.
    coefficients, norms: float64 (p,).

    gains, float32 (m,), get the root of what each can lower the objective by, roughly, or `ALWAYS`.
    """
    steepest, absolute, ridge = 1.0, 0.0, 0.0
    for i in range(chosen.size):
        j = chosen[i]
        b, most = coefficients[j], level * l1[j]
        slope = abs(correlations[i] - level * l2[j] * b)
        steepest = max(steepest, slope / most)
        absolute += most * abs(b)
        ridge += level * l2[j] * b * b
        gains[i] = ALWAYS if b != 0.0 else max(slope - most, 0.0) / norms[j]
    return steepest, absolute, ridge


def standing(loss: Loss, fit: Fit, steepest: float, absolute: float, ridge: float) -> Standing:
    """Given what `survey` found of all columns that have coefficients or correlations above l1."""
    scale = 1.0 / steepest
    bound = loss.dual(scale * fit.residual) - 0.5 * scale**2 * ridge
    return Standing(fit.loss + absolute + 0.5 * ridge, bound, scale)
