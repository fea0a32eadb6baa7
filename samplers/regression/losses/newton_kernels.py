"""Losses with second derivatives that depend on the scores of the rows: their derivatives, and the optimal coefficients
of unpenalized columns.

All arrays are float64. roots: square roots of the weights of the n rows. target: y, as the loss needs it; its type says
which loss it is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy
from samplers.regression.linear_algebra.free_columns import (
    UnpenalizedColumns,
    find_coefficients,
    orthonormalise,
    room_for_free,
)
from samplers.regression.linear_algebra.type_dispatch import by_kind
from samplers.regression.linear_algebra.vectors import inner_product
from samplers.regression.losses.logistic import LogisticTarget, entropy, half_step, logistic_derivatives
from samplers.regression.losses.poisson import PoissonTarget, damped_step, poisson_derivatives, poisson_dual

_OPTIONS: Any = {"fastmath": True, "error_model": "numpy", "_nrt": False}
derivatives = by_kind("target", ({LogisticTarget: logistic_derivatives, PoissonTarget: poisson_derivatives}, _OPTIONS))
dual_of = by_kind("target", ({LogisticTarget: entropy, PoissonTarget: poisson_dual}, _OPTIONS))
length_after = by_kind("target", ({LogisticTarget: half_step, PoissonTarget: damped_step}, _OPTIONS))
HALVINGS = 40  # maximum number of lengths of a step that are tried
_ROUNDING = 1e-12  # relative to the loss: the first Newton step that promises less is the last
_STEPS = 100  # maximum number of Newton steps: ten are many
EQUAL = 1e-14  # relative to the loss or the objective: rounding


class UnpenalizedFitScratch(NamedTuple):
    """Working memory of `fit_free`."""

    free: UnpenalizedColumns
    scores: np.ndarray  # (n,), scores of all columns
    factors: np.ndarray  # (n,), square roots of the curvatures
    # (n,), target of the least-squares problem of the second-order approximation, rows times factors
    target: np.ndarray
    step: np.ndarray  # (k,)
    tried: np.ndarray  # (k,), coefficients


def memory_for(columns: np.ndarray) -> UnpenalizedFitScratch:
    """Return working memory for unpenalized columns, (k, n)."""
    scores, factors, target = np.empty((3, columns.shape[1]))
    step, tried = np.empty((2, len(columns)))
    return UnpenalizedFitScratch(room_for_free(columns), scores, factors, target, step, tried)


@reordered_kernel
def find_target(residual, roots, curvatures, factors, target):
    """Compute the target and row factors of the least-squares problem of the second-order approximation."""
    for i in range(residual.size):
        factors[i] = math.sqrt(curvatures[i])
        target[i] = residual[i] * roots[i] / factors[i] if factors[i] > 0.0 else 0.0


@reordered_kernel
def derivatives_with(free, scores, columns, target, roots, residual, curvatures, work):
    """Compute `derivatives` with the product of coefficients (k,) and columns (k, n) added to the scores."""
    copy(scores, work.scores)
    for k in range(free.size):
        for i in range(scores.size):
            work.scores[i] += free[k] * columns[k, i]
    return derivatives(target, work.scores, roots, residual, curvatures)


@reordered_kernel
def take_step(free, loss, scores, columns, target, roots, residual, curvatures, work):
    """Take a Newton step, shortened until the loss does not increase; returns the loss, whether this was the last step,
    and the rank of the columns.
    """
    find_target(residual, roots, curvatures, work.factors, work.target)
    rank = orthonormalise(columns, work.factors, work.free)
    work.step[:] = 0.0
    find_coefficients(work.free, rank, work.target, work.step)
    promise, stays, new, length = 0.0, True, loss, 1.0
    for k in range(free.size):
        for i in range(scores.size):
            promise += work.step[k] * columns[k, i] * roots[i] * residual[i]
    for _ in range(HALVINGS):
        for k in range(free.size):
            work.tried[k] = free[k] + length * work.step[k]
        new = derivatives_with(work.tried, scores, columns, target, roots, residual, curvatures, work)
        if new <= loss * (1.0 + EQUAL):
            break
        length = 0.5 * length if length < 1.0 else length_after(target, largest_change(work.step, columns))
    for k in range(free.size):
        stays &= work.tried[k] == free[k]
        free[k] = work.tried[k]
    return new, stays or promise <= _ROUNDING * new, rank


@reordered_kernel
def largest_change(step, columns):
    """Return the largest change of a score by a step, (k,), of the coefficients of columns, (k, n)."""
    largest = 0.0
    for i in range(columns.shape[1]):
        change = 0.0
        for k in range(step.size):
            change += step[k] * columns[k, i]
        largest = max(largest, abs(change))
    return largest


@reordered_kernel
def make_orthogonal(residual, roots, rank, work):
    """Project the residual as an exact Newton step would, after the last call of `take_step`."""
    for i in range(residual.size):
        work.target[i] = residual[i] * roots[i] / work.factors[i] if work.factors[i] > 0.0 else 0.0
    for r in range(rank):
        axis = work.free.basis[r]
        along = inner_product(axis, work.target)
        for i in range(residual.size):
            if roots[i] > 0.0:
                residual[i] -= along * axis[i] * work.factors[i] / roots[i]


@reordered_kernel
def fit_free(free, scores, columns, target, roots, residual, curvatures, work):
    """Fit the coefficients, (k,), of unpenalized columns, (k, n), by Newton's method, to full precision; returns the
    loss.

    Also sets the second derivatives, (n,), and the residual, (n,), which is made orthogonal to the columns even beyond
    that precision, as the duality gap requires.
    """
    loss = derivatives_with(free, scores, columns, target, roots, residual, curvatures, work)
    last, rank = free.size == 0, 0
    for _ in range(_STEPS):
        if last:
            break
        loss, last, rank = take_step(free, loss, scores, columns, target, roots, residual, curvatures, work)
    make_orthogonal(residual, roots, rank, work)
    return loss


@reordered_kernel
def dual_objective(target, residual, roots):
    """Return the dual objective of a residual without the penalty term."""
    return dual_of(target, residual, roots)


@reordered_kernel
def next_length(target, change):
    """Return the length to try after a full Newton step, which changes a score by up to `change`, raised the loss."""
    return length_after(target, change)
