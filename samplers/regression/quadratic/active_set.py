"""Newton's method on the active set (the nonzero coefficients) of a `QuadraticProblem`: one step for all coefficients,
by factorization.

With the signs s fixed, the objective is quadratic in the coefficients, and the step d to its minimum solves

    (A^T A + diag(l2)) d = A^T r - l1 s - l2 b

Coefficients that reach 0 during the step are set to 0 and leave the active set, if that lowers the objective; otherwise
the step ends where the first coefficient reaches 0. Conjugate gradients are faster for many nearly orthogonal columns,
but do not converge if columns are dependent and the penalty is weak.

A^T A is factorized by pivoted Cholesky decomposition. Columns that are linear combinations of the columns before them,
up to rounding, keep their coefficients in the solution; then each is moved along the direction in which only the
penalty changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import add, copy, dot
from samplers.regression.linear_algebra.vectors import inner_product, project_out
from samplers.regression.quadratic.problem import quadratic_objective

_DEPENDENT = 1e-12  # relative to a column's squared norm: a smaller pivot is rounding
_REFINED = (
    4  # number of solves with one factorization: each corrects the gradient that rounding left in the previous solve
)
_FACTORS = 32  # maximum number of factorizations: another is needed whenever coefficients leave the active set
_FLAT = 2e-15  # relative to the norms of column and residual, per root of a row: a smaller slope is rounding
_FAR = 1e150  # length of a step far beyond any coefficient, for scaled columns


class ActiveSetScratch(NamedTuple):
    """Working memory for m active coefficients and n rows; float64 unless stated."""

    gram: np.ndarray  # (m, m), A^T A + diag(l2) of columns scaled to have a diagonal of 1
    factor: np.ndarray  # (m, m), Cholesky factor, below the diagonal, by position in `order`
    scales: np.ndarray  # (m,), scales of the columns
    signs: np.ndarray  # (m,), signs of the coefficients at the start
    # (m,), minus the derivative of the objective with respect to the coefficients of scaled columns
    gradient: np.ndarray
    direction: np.ndarray  # (m,), step of the coefficients of scaled columns
    values: np.ndarray  # (m,), by position in `order`
    left: np.ndarray  # (m,), remainders of the diagonal, by position in `order`
    order: np.ndarray  # int64 (m,), indices of the remaining coefficients, largest pivots first
    column: np.ndarray  # (n,)
    before: np.ndarray  # (m,), saved coefficients
    residual: np.ndarray  # (n,), residual of the saved coefficients


def active_set_scratch(active: int, rows: int) -> ActiveSetScratch:
    """Return working memory for `active` coefficients and `rows` rows."""
    scales, signs, gradient, direction, values, left, before = np.zeros((7, active))
    gram, factor = np.zeros((2, active, active))
    vectors = scales, signs, gradient, direction, values, left
    column, residual = np.zeros((2, rows))
    return ActiveSetScratch(gram, factor, *vectors, np.arange(active), column, before, residual)


@reordered_kernel
def multiply_columns(problem, active, work):
    """Compute the Gram matrix of active columns, int64 (m,), and the scales of the columns."""
    gram, column = work.gram, work.column
    for i in range(active.size):
        j = active[i]
        column[:] = 0.0
        add(problem.columns, j, 1.0, column)
        project_out(problem.basis, column)
        for k in range(i + 1):
            gram[i, k] = gram[k, i] = dot(problem.columns, active[k], column)
        gram[i, i] += problem.l2[j]
    for i in range(active.size):
        work.scales[i] = 1.0 / math.sqrt(gram[i, i]) if gram[i, i] > 0.0 else 1.0
    for i in range(active.size):
        for k in range(active.size):
            gram[i, k] *= work.scales[i] * work.scales[k]


@reordered_kernel
def factorise(size, work):
    """Compute the pivoted Cholesky factor of the first `size` coefficients in `order`, which is permuted; returns the
    rank.
    """
    gram, factor, order, left = work.gram, work.factor, work.order, work.left
    for i in range(size):
        left[i] = gram[order[i], order[i]]
    for k in range(size):
        best = k
        for i in range(k + 1, size):
            if left[i] > left[best]:
                best = i
        if left[best] <= _DEPENDENT:
            return k
        order[k], order[best] = order[best], order[k]
        left[k], left[best] = left[best], left[k]
        for c in range(k):
            factor[k, c], factor[best, c] = factor[best, c], factor[k, c]
        factor[k, k] = math.sqrt(left[k])
        for i in range(k + 1, size):
            total = gram[order[i], order[k]]
            for c in range(k):
                total -= factor[i, c] * factor[k, c]
            factor[i, k] = total / factor[k, k]
            left[i] -= factor[i, k] * factor[i, k]
    return size


@reordered_kernel
def solve_factor(factor, rank, values):
    """Solve L L^T x = values for the leading part of a factor; values, float64 (>= rank,), are overwritten by x."""
    for i in range(rank):
        total = values[i]
        for c in range(i):
            total -= factor[i, c] * values[c]
        values[i] = total / factor[i, i]
    for i in range(rank - 1, -1, -1):
        total = values[i]
        for c in range(i + 1, rank):
            total -= factor[c, i] * values[c]
        values[i] = total / factor[i, i]


@reordered_kernel
def first_to_leave(active, coefficients, work):
    """Return the first active coefficient that reaches 0 along the direction, and the step length; -1 and 1 if none
    does.
    """
    length, first = 1.0, -1
    for i in range(active.size):
        b, change = coefficients[active[i]], work.scales[i] * work.direction[i]
        if b * change < 0.0 and abs(b) <= length * abs(change):
            length, first = abs(b) / abs(change), i
    return length, first


@reordered_kernel
def move(problem, active, length, leaves, coefficients, residual, work):
    """Move by `length` along the direction; the coefficient `leaves` and all coefficients that cross 0 are set to 0.

    The residual absorbs rounding errors of the coefficients, as in conjugate gradients.
    """
    for i in range(active.size):
        j, change = active[i], length * work.scales[i] * work.direction[i]
        before = coefficients[j]
        if i == leaves or before * (before + change) < 0.0:
            change = -before
        if change != 0.0:
            coefficients[j] = before + change
            add(problem.columns, j, -change, residual)
    project_out(problem.basis, residual)


@reordered_kernel
def leave(problem, active, length, first, coefficients, residual, work):
    """Move along the direction, beyond the length at which the first coefficient reaches 0 if that decreases the
    objective.
    """
    copy(residual, work.residual)
    for i in range(active.size):
        work.before[i] = coefficients[active[i]]
    here = quadratic_objective(problem, coefficients, residual)
    move(problem, active, 1.0, -1, coefficients, residual, work)
    if quadratic_objective(problem, coefficients, residual) >= here:
        copy(work.residual, residual)
        for i in range(active.size):
            coefficients[active[i]] = work.before[i]
        move(problem, active, length, first, coefficients, residual, work)


@reordered_kernel
def find_gradient(problem, active, coefficients, residual, work):
    for i in range(active.size):
        j = active[i]
        slope = dot(problem.columns, j, residual) - problem.l2[j] * coefficients[j]
        work.gradient[i] = work.scales[i] * (slope - work.signs[i] * problem.l1[j])


@reordered_kernel
def find_newton_direction(rank, work):
    """Compute the direction to the minimum over the independent columns, the first `rank` in `order`."""
    for c in range(rank):
        work.values[c] = work.gradient[work.order[c]]
    solve_factor(work.factor, rank, work.values)
    work.direction[:] = 0.0
    for c in range(rank):
        work.direction[work.order[c]] = work.values[c]


@reordered_kernel
def find_flat_direction(size, rank, residual, work):
    """Compute the direction of a dependent column along which only the penalty changes; returns whether there is such a
    direction.

    The chosen column is the one whose penalty decreases fastest; the direction extends far beyond the point where a
    coefficient reaches 0.
    """
    factor, order, along = work.factor, work.order, work.values
    steepest, place = _FLAT * math.sqrt(residual.size * inner_product(residual, residual)), -1
    for k in range(rank, size):
        if abs(work.gradient[order[k]]) > steepest:
            steepest, place = abs(work.gradient[order[k]]), k
    if place < 0:
        return False
    for i in range(rank - 1, -1, -1):  # solve L^T x = l, with l the row of the dependent column in the factor
        total = factor[place, i]
        for c in range(i + 1, rank):
            total -= factor[c, i] * along[c]
        along[i] = total / factor[i, i]
    far = _FAR * np.sign(work.gradient[order[place]])
    work.direction[:] = 0.0
    work.direction[order[place]] = far
    for c in range(rank):
        work.direction[order[c]] = -far * along[c]
    return True


@reordered_kernel
def go_to_minimum(problem, active, size, coefficients, residual, work):
    """Move to the minimum over the first `size` coefficients in `order`; returns False if some reach 0 first."""
    rank = factorise(size, work)
    for _ in range(_REFINED):
        find_gradient(problem, active, coefficients, residual, work)
        find_newton_direction(rank, work)
        length, first = first_to_leave(active, coefficients, work)
        if first >= 0:
            leave(problem, active, length, first, coefficients, residual, work)
            return False
        move(problem, active, 1.0, -1, coefficients, residual, work)
    find_gradient(problem, active, coefficients, residual, work)
    if not find_flat_direction(size, rank, residual, work):
        return True
    length, first = first_to_leave(active, coefficients, work)
    if first >= 0:
        move(problem, active, length, first, coefficients, residual, work)
    return first < 0


@reordered_kernel
def minimise_active(problem, active, coefficients, residual, work):
    """Minimize over active coefficients, int64 (m,), with fixed signs.

    coefficients: float64 (W,), and residual: float64 (n,), are updated.
    work: `ActiveSetScratch` of m coefficients.
    """
    size = active.size
    multiply_columns(problem, active, work)
    for i in range(size):
        work.signs[i], work.order[i] = np.sign(coefficients[active[i]]), i
    for _ in range(_FACTORS):
        if go_to_minimum(problem, active, size, coefficients, residual, work):
            return
        before, size = size, 0
        for place in range(before):
            i = work.order[place]
            work.order[size] = i
            size += coefficients[active[i]] != 0.0
