"""Least squares with an l1 penalty on a few columns in memory: the problem solved by all solvers of this package.

    minimise over b   1/2 |t - A b|^2 + sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2   [subject to b >= 0]

where t and the columns of A are projected onto the orthogonal complement of some unpenalized columns, including the
intercept. A itself is not projected, since it would become dense; the inner products of its columns with an orthonormal
basis of the unpenalized columns are kept instead. The residual is t - A b, projected.

With r the residual and c_j = a_j . r - l2_j b_j, the point s r is feasible for the dual problem if s |c_j| <= l1_j for
all j (if s c_j <= l1_j, where b must be at least 0), and the gap between both objectives is a sum of nonnegative terms:

    1/2 (1 - s)^2 (|r|^2 + sum_j l2_j b_j^2) + sum_j (l1_j |b_j| - s b_j c_j)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import (
    DenseColumns,
    SparseColumns,
    correlate,
    dot,
    squares,
    sum_of_squares,
)
from samplers.regression.threads.thread_pool import barrier_sum, max_of_chunks, own_chunks, sum_of_chunks

_FLAT = 1e-10  # relative to a column's squared norm: a smaller remainder after the projection is rounding


class QuadraticProblem(NamedTuple):
    """W columns of n rows, with k vectors in the basis. All arrays are float64."""

    columns: SparseColumns | DenseColumns  # before the projection
    basis: np.ndarray  # (k, n), orthonormal
    along: np.ndarray  # (k, W), inner products of basis and columns
    curvatures: np.ndarray  # (W,), squared norms of the projected columns, plus l2
    l1: np.ndarray  # (W,), positive
    l2: np.ndarray  # (W,)
    positive: bool  # whether coefficients must be at least 0


def quadratic_problem(
    columns: SparseColumns | DenseColumns,
    basis: np.ndarray,
    l1: np.ndarray,
    l2: np.ndarray,
    norms: np.ndarray | None = None,
    *,
    positive: bool = False,
) -> QuadraticProblem:
    """Return the problem on some columns; see `QuadraticProblem` for the arguments.

    norms: float64 (W,), norms of the projected columns, if known.
    """
    every, along = np.arange(l1.size), np.empty((len(basis), l1.size))
    for vector, found in zip(basis, along, strict=True):
        correlate(columns, every, vector, found)
    if norms is None:
        curvatures = np.empty(l1.size)
        squares(columns, every, np.empty(0), curvatures)
        curvatures = np.maximum(curvatures - (along**2).sum(axis=0), _FLAT * curvatures)
    else:
        curvatures = norms**2
    curvatures[curvatures == 0] = 1.0  # nothing depends on such a coefficient, which is 0 for any curvature
    return QuadraticProblem(columns, basis, along, curvatures + l2, l1, l2, positive)


@reordered_kernel
def penalty_of(l1, l2, coefficients):
    """Return sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2. All arrays are float64 (W,)."""
    total = 0.0
    for j in range(coefficients.size):
        b = coefficients[j]
        total += l1[j] * abs(b) + 0.5 * l2[j] * b * b
    return total


@reordered_kernel
def quadratic_objective(problem, coefficients, residual):
    """Return the objective of coefficients, float64 (W,), with residual float64 (n,)."""
    return 0.5 * sum_of_squares(residual) + penalty_of(problem.l1, problem.l2, coefficients)


@reordered_kernel
def quadratic_gap(member, problem, coefficients, residual, sums):
    """Return the duality gap for the dual point of the residual.

    sums: float64 (4, CHUNKS), working memory.
    """
    l1, l2, count = problem.l1, problem.l2, coefficients.size
    each, first, last = own_chunks(member, count)
    for c in range(first, last):
        ridge = absolute = inner = steepest = 0.0
        for j in range(c * each, min((c + 1) * each, count)):
            b = coefficients[j]
            slope = dot(problem.columns, j, residual) - l2[j] * b
            steepest = max(steepest, (slope if problem.positive else abs(slope)) / l1[j])
            ridge += l2[j] * b * b
            absolute += l1[j] * abs(b)
            inner += slope * b
        sums[0, c], sums[1, c], sums[2, c], sums[3, c] = ridge, absolute, inner, steepest
    square = sum_of_squares(residual) + barrier_sum(member, sums[0], count)
    scale = 1.0 / max(max_of_chunks(sums[3], count), 1.0)
    return 0.5 * (1.0 - scale) ** 2 * square + sum_of_chunks(sums[1], count) - scale * sum_of_chunks(sums[2], count)
