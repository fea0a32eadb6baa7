"""The logistic loss, its derivatives with respect to the scores of the rows, and the optimal coefficients of
unpenalized columns.

All arrays are float64. roots: square roots of the weights of the n rows. y: 0 or 1 for each row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy
from samplers.regression.linear_algebra.free_columns import (
    FreeColumns,
    find_coefficients,
    orthonormalise,
    room_for_free,
)
from samplers.regression.linear_algebra.vectors import inner

_LEAST = 1e-18  # minimum curvature of a row of weight 1
_HALVINGS = 40  # maximum number of halvings of a step
_ROUNDING = 1e-12  # relative to the loss: the first Newton step that promises less is the last
_STEPS = 100  # maximum number of Newton steps: ten are many
EQUAL = 1e-14  # relative to the loss or the objective: rounding


class FreeFitMemory(NamedTuple):
    """Working memory of `fit_free`."""

    free: FreeColumns
    scores: np.ndarray  # (n,), scores of all columns
    factors: np.ndarray  # (n,), square roots of the curvatures
    # (n,), target of the least-squares problem of the second-order approximation, rows times factors
    target: np.ndarray
    step: np.ndarray  # (k,)
    tried: np.ndarray  # (k,), coefficients


def memory_for(columns: np.ndarray) -> FreeFitMemory:
    """Return working memory for unpenalized columns, (k, n)."""
    scores, factors, target = np.empty((3, columns.shape[1]))
    step, tried = np.empty((2, len(columns)))
    return FreeFitMemory(room_for_free(columns), scores, factors, target, step, tried)


@reordered_kernel
def derivatives(scores, y, roots, residual, curvatures):
    """Compute the residual root w (y - p) and the second derivative w p (1 - p) of each row; returns the loss."""
    loss = 0.0
    for i in range(scores.size):
        weight, margin = roots[i] * roots[i], scores[i] if y[i] == 1.0 else -scores[i]
        small = math.exp(-abs(margin))
        larger = 1.0 / (1.0 + small)  # the larger of both probabilities
        wrong = small * larger if margin >= 0.0 else larger
        loss += weight * (math.log1p(small) + max(-margin, 0.0))
        residual[i] = roots[i] * (wrong if y[i] == 1.0 else -wrong)
        curvatures[i] = weight * max(small * larger * larger, _LEAST)
    return loss


@reordered_kernel
def find_target(residual, roots, curvatures, factors, target):
    """Compute the target and row factors of the least-squares problem of the second-order approximation."""
    for i in range(residual.size):
        factors[i] = math.sqrt(curvatures[i])
        target[i] = residual[i] * roots[i] / factors[i] if factors[i] > 0.0 else 0.0


@reordered_kernel
def derivatives_with(free, scores, columns, y, roots, residual, curvatures, work):
    """Compute `derivatives` with the product of coefficients (k,) and columns (k, n) added to the scores."""
    copy(scores, work.scores)
    for k in range(free.size):
        for i in range(scores.size):
            work.scores[i] += free[k] * columns[k, i]
    return derivatives(work.scores, y, roots, residual, curvatures)


@reordered_kernel
def take_step(free, loss, scores, columns, y, roots, residual, curvatures, work):
    """Take a Newton step, halved until the loss does not increase; returns the loss, whether this was the last step,
    and the rank of the columns.
    """
    find_target(residual, roots, curvatures, work.factors, work.target)
    rank = orthonormalise(columns, work.factors, work.free)
    work.step[:] = 0.0
    find_coefficients(work.free, rank, work.target, work.step)
    promise, stays, new = 0.0, True, loss
    for k in range(free.size):
        for i in range(scores.size):
            promise += work.step[k] * columns[k, i] * roots[i] * residual[i]
    for _ in range(_HALVINGS):
        for k in range(free.size):
            work.tried[k] = free[k] + work.step[k]
            work.step[k] *= 0.5
        new = derivatives_with(work.tried, scores, columns, y, roots, residual, curvatures, work)
        if new <= loss * (1.0 + EQUAL):
            break
    for k in range(free.size):
        stays &= work.tried[k] == free[k]
        free[k] = work.tried[k]
    return new, stays or promise <= _ROUNDING * new, rank


@reordered_kernel
def make_orthogonal(residual, roots, rank, work):
    """Project the residual as an exact Newton step would, after the last call of `take_step`."""
    for i in range(residual.size):
        work.target[i] = residual[i] * roots[i] / work.factors[i] if work.factors[i] > 0.0 else 0.0
    for r in range(rank):
        axis = work.free.basis[r]
        along = inner(axis, work.target)
        for i in range(residual.size):
            if roots[i] > 0.0:
                residual[i] -= along * axis[i] * work.factors[i] / roots[i]


@reordered_kernel
def fit_free(free, scores, columns, y, roots, residual, curvatures, work):
    """Fit the coefficients, (k,), of unpenalized columns, (k, n), by Newton's method, to full precision; returns the
    loss.

    Also sets the second derivatives, (n,), and the residual, (n,), which is made orthogonal to the columns even beyond
    that precision, as the duality gap requires.
    """
    loss, last, rank = derivatives_with(free, scores, columns, y, roots, residual, curvatures, work), free.size == 0, 0
    for _ in range(_STEPS):
        if last:
            break
        loss, last, rank = take_step(free, loss, scores, columns, y, roots, residual, curvatures, work)
    make_orthogonal(residual, roots, rank, work)
    return loss


@reordered_kernel
def entropy(residual, y, roots):
    """Return -sum_i w_i (q_i log q_i + (1 - q_i) log(1 - q_i)) with q_i = y_i - r_i / root w_i in [0, 1]."""
    total = 0.0
    for i in range(residual.size):
        if roots[i] > 0.0:
            away = abs(residual[i]) / roots[i]  # distance from y
            if 0.0 < away < 1.0:
                total -= roots[i] * roots[i] * (away * math.log(away) + (1.0 - away) * math.log1p(-away))
    return total
