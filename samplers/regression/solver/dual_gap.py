"""Objective and dual bound of a regression, from the columns whose correlations exceed the penalty or whose
coefficients are nonzero.

    minimise over b, a   loss(X b + U a) + sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2

The dual point is the residual, times the largest scale up to 1 for which |x_j . r - l2_j b_j| scale <= l1_j for all j:
the ridge terms are treated as additional rows, root l2_j times b_j, with residuals l2_j b_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.contiguous import BLOCK, is_run
from samplers.regression.linear_algebra.vectors import inner_product
from samplers.regression.losses.loss import CoefficientFit, Loss


class DualGap(NamedTuple):
    """Objective, dual bound and duality gap of some coefficients."""

    objective: float
    bound: float  # lower bound on the objective for any coefficients
    scale: float

    @property
    def gap(self) -> float:
        return self.objective - self.bound


def penalty_slopes(chosen: np.ndarray, correlations: np.ndarray, support: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Return the slopes of the chosen columns, int64 (m,), ascending, given their correlations, float64 (m,).

    ridge: float64 (s,), l2_j b_j of the support, int64 (s,), ascending, which contains all columns where it is nonzero.
    """
    if chosen.size and ridge.any():
        places = np.minimum(np.searchsorted(chosen, support), chosen.size - 1)
        known = chosen[places] == support  # except columns that were screened out and whose coefficients are becoming 0
        correlations = correlations.copy()
        correlations[places[known]] -= ridge[known]
    return correlations


@reordered_kernel
def steepest_of_block(slopes, gains, lam, l1, norms, steepest):
    for i in range(slopes.size):
        gains[i] = max(abs(slopes[i]) - lam * l1[i], 0.0) / norms[i]
    steeper = 0  # counted first, because the compiler vectorizes a count but not a maximum
    for i in range(slopes.size):
        steeper += abs(slopes[i]) > steepest * lam * l1[i]
    if steeper > 0:
        for i in range(slopes.size):
            steepest = max(steepest, abs(slopes[i]) / (lam * l1[i]))
    return steepest


@reordered_kernel
def steepest_of_columns(chosen, slopes, gains, lam, l1, norms, scattered):
    """Compute `steepest_slope` block by block.

    scattered: float64 (2, BLOCK), working memory.
    """
    steepest = 1.0
    scattered[0] = l1[0]  # the common l1 of all columns
    for begin in range(0, chosen.size, BLOCK):
        end = min(begin + BLOCK, chosen.size)
        some, first, last = chosen[begin:end], chosen[begin], chosen[end - 1] + 1
        costs, lengths = scattered[0, : some.size], scattered[1, : some.size]
        if is_run(some):
            costs, lengths = l1[first:last] if l1.size > 1 else costs, norms[first:last]
        else:
            for i in range(some.size):
                lengths[i] = norms[some[i]]
                if l1.size > 1:
                    costs[i] = l1[some[i]]
        steepest = steepest_of_block(slopes[begin:end], gains[begin:end], lam, costs, lengths, steepest)
    return steepest


def steepest_slope(
    chosen: np.ndarray, slopes: np.ndarray, gains: np.ndarray, lam: float, l1: np.ndarray, norms: np.ndarray
) -> float:
    """Return the largest ratio of slope to lam * l1 among the chosen columns, at least 1.

    chosen: int64 (m,), ascending.
    slopes: float64 (m,).
    l1: float64 (p,), or (1,).
    norms: float64 (p,).
    gains: float32 (m,), set to the square root of the approximate decrease of the objective by each column with
        coefficient 0.
    """
    return steepest_of_columns(chosen, slopes, gains, lam, l1, norms, np.empty((2, BLOCK)))


def compute_dual_gap(
    loss: Loss, fit: CoefficientFit, steepest: float, l1: np.ndarray, l2: np.ndarray, b: np.ndarray
) -> DualGap:
    """Return the duality gap, given the largest ratio of slope to l1 over all columns, and l1, l2 and the coefficients
    b of the support, float64 (s,).
    """
    scale, absolute, ridge = 1.0 / steepest, inner_product(l1, np.abs(b)), inner_product(l2, b * b)
    bound = loss.dual(scale * fit.residual) - 0.5 * scale**2 * ridge
    return DualGap(fit.loss + absolute + 0.5 * ridge, bound, scale)
