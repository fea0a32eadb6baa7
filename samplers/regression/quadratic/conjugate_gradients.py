"""Conjugate gradients on the active set of a `QuadraticProblem`, with the signs of the coefficients fixed.

With the signs fixed, the objective is quadratic in the nonzero coefficients. Steps are preconditioned by the
curvatures, and each direction is made conjugate to the previous one (Hestenes and Stiefel, J. Res. NBS 1952, section
5). Coefficients that cross 0 leave the active set: they keep their values while the others change, and are all set to 0
at the end, since the directions would otherwise have to be restarted each time. Coordinate descent finds active sets
fast but converges slowly within one if columns are correlated; conjugate gradients do the reverse.

The threads of a pool share each step: each thread multiplies by its own rows, and adds up the sums of its own
coefficients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import dot, sum_of_squares
from samplers.regression.linear_algebra.gram import GramRows, MatrixProducts, arrange, gram_memory, multiply, subtract
from samplers.regression.linear_algebra.vectors import project_out
from samplers.regression.quadratic.problem import QuadraticProblem
from samplers.regression.threads.thread_pool import (
    CHUNKS,
    barrier_sum,
    max_of_chunks,
    own_chunks,
    own_numbers,
    sum_of_chunks,
    thread_barrier,
)

_SINGULAR = 1e-12  # relative to the curvature for orthogonal columns: a smaller curvature is rounding
_NOISE = 1e-30  # relative to the squared residual, per coefficient: a smaller squared gradient is rounding
# Indices of rows in `Work.sums`; further rows follow the last of these.
_PRODUCT, _ALONG, _STEEPEST, _INNER, _ABSOLUTE, _CURVATURE, _SLOPE, _APART, _LEFT, _BASIS = range(10)


class ConjugateGradientsScratch(NamedTuple):
    """Working memory for W coefficients, n rows and a basis of k vectors; float64 unless stated. Arrays of the active
    set are in its order.
    """

    active: np.ndarray  # int64 (W,), indices of the nonzero coefficients, and of some that have become 0
    swept: np.ndarray  # int64 (W,), indices of the nonzero coefficients
    gram: GramRows | MatrixProducts  # memory for products with the Gram matrix of the active set
    sums: np.ndarray  # (9 + k, CHUNKS), sums of chunks
    values: np.ndarray  # (W,), coefficients of the active set
    changes: np.ndarray  # (W,), changes of the coefficients so far
    signs: np.ndarray  # (W,), signs in the active set; 0 for coefficients that are, or have become, 0
    curvatures: np.ndarray  # (W,), curvatures of the active set
    gradient: np.ndarray  # (W,), minus the gradient in the active set
    direction: np.ndarray  # (W,), direction in the active set
    change: np.ndarray  # (W,), in the active set: decrease of the gradient along the direction
    shift: np.ndarray  # (k,)
    coefficients: np.ndarray  # (W,), saved coefficients
    residual: np.ndarray  # (n,), residual of the saved coefficients
    outcome: np.ndarray  # (3,), objective, gap, and number of sign changes in the last sweep


def conjugate_gradients_scratch(problem: QuadraticProblem, rows: int) -> ConjugateGradientsScratch:
    coefficients, basis = problem.l1.size, len(problem.basis)
    return ConjugateGradientsScratch(
        active=np.empty(coefficients, np.int64),
        swept=np.empty(coefficients, np.int64),
        gram=gram_memory(problem.columns, rows),
        sums=np.empty((_BASIS + basis, CHUNKS)),
        values=np.empty(coefficients),
        changes=np.empty(coefficients),
        signs=np.empty(coefficients),
        curvatures=np.empty(coefficients),
        gradient=np.empty(coefficients),
        direction=np.empty(coefficients),
        change=np.empty(coefficients),
        shift=np.empty(basis),
        coefficients=np.empty(coefficients),
        residual=np.empty(rows),
        outcome=np.empty(3),
    )


@reordered_kernel
def begin(member, problem, size, coefficients, residual, work):
    """Store the values of the active set, their signs, and the gradient."""
    first, last = own_numbers(member, size)
    for i in range(first, last):
        j = work.active[i]
        b, sign = coefficients[j], np.sign(coefficients[j])
        work.values[i], work.changes[i], work.signs[i], work.direction[i] = b, 0.0, sign, 0.0
        work.curvatures[i] = problem.curvatures[j]
        gradient = dot(problem.columns, j, residual) - problem.l2[j] * b - sign * problem.l1[j]
        work.gradient[i] = abs(sign) * gradient


@reordered_kernel
def turn(member, size, curvature, work):
    """Set the direction to the preconditioned gradient, conjugate to the last direction if `curvature` is above 0;
    returns the inner product of the gradient and the preconditioned gradient.
    """
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        product = along = 0.0
        for i in range(c * each, min((c + 1) * each, size)):
            steepest = work.gradient[i] / work.curvatures[i]
            product += steepest * work.gradient[i]
            along += steepest * work.change[i]
        work.sums[_PRODUCT, c], work.sums[_ALONG, c] = product, along
    product = barrier_sum(member, work.sums[_PRODUCT], size)
    share = max(-sum_of_chunks(work.sums[_ALONG], size) / curvature, 0.0) if curvature > 0.0 else 0.0
    for c in range(first, last):
        for i in range(c * each, min((c + 1) * each, size)):
            steepest = work.gradient[i] / work.curvatures[i]
            work.direction[i] = steepest + share * abs(work.signs[i]) * work.direction[i]
    thread_barrier(member)
    return product


@reordered_kernel
def is_enough(member, problem, size, product, square, enough, work):
    """Return whether the duality gap on the active set, and twice the possible decrease for orthogonal columns, are
    small enough.

    square: squared norm of the residual. The ridge part of the gap is left out, since it is of second order.
    """
    if product > max(enough, _NOISE * size * square):
        return False
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        steepest = inner = absolute = 0.0
        for i in range(c * each, min((c + 1) * each, size)):
            cost = problem.l1[work.active[i]]
            steepest = max(steepest, work.gradient[i] * work.signs[i] / cost)
            inner += work.gradient[i] * work.values[i]
            absolute += cost * abs(work.values[i])
        work.sums[_STEEPEST, c], work.sums[_INNER, c], work.sums[_ABSOLUTE, c] = steepest, inner, absolute
    inner, absolute = barrier_sum(member, work.sums[_INNER], size), sum_of_chunks(work.sums[_ABSOLUTE], size)
    scale = 1.0 / (1.0 + max_of_chunks(work.sums[_STEEPEST], size))
    gap = 0.5 * (1.0 - scale) ** 2 * square + (1.0 - scale) * absolute - scale * inner
    return gap <= enough or product <= _NOISE * size * square


@reordered_kernel
def find_change(member, problem, size, work):
    """Compute the change of A b along the direction; returns the curvature and minus the slope.

    A curvature within rounding counts as 0: dependent columns leave directions in which only the penalty changes.
    """
    active = work.active[:size]
    each, first, last = own_chunks(member, size)
    for m in range(len(problem.basis)):
        for c in range(first, last):
            along = 0.0
            for i in range(c * each, min((c + 1) * each, size)):
                along += problem.along[m, active[i]] * work.direction[i]
            work.sums[_BASIS + m, c] = along
    multiply(member, problem.columns, active, work.gram, work.direction[:size], work.change[:size])
    for c in range(first, last):
        begin, end = c * each, min((c + 1) * each, size)
        for i in range(begin, end):
            work.change[i] += problem.l2[active[i]] * work.direction[i]
        for m in range(len(problem.basis)):
            along = sum_of_chunks(work.sums[_BASIS + m], size)
            for i in range(begin, end):
                work.change[i] -= along * problem.along[m, active[i]]
        curvature = slope = apart = 0.0
        for i in range(begin, end):
            curvature += work.direction[i] * work.change[i]
            slope += work.direction[i] * work.gradient[i]
            apart += work.direction[i] ** 2 * work.curvatures[i]
        work.sums[_CURVATURE, c], work.sums[_SLOPE, c], work.sums[_APART, c] = curvature, slope, apart
    curvature = barrier_sum(member, work.sums[_CURVATURE], size)
    curvature = curvature if curvature > _SINGULAR * sum_of_chunks(work.sums[_APART], size) else 0.0
    return curvature, sum_of_chunks(work.sums[_SLOPE], size)


@reordered_kernel
def first_stop(member, size, work):
    """Return the step length at which the first coefficient reaches 0; 0 if none does."""
    least = 0.0
    for i in range(size):
        towards = -work.direction[i] * work.signs[i]
        if towards > 0.0:
            length = abs(work.values[i]) / towards
            if least == 0.0 or length < least:
                least = length
    thread_barrier(member)
    return least


@reordered_kernel
def go(member, size, length, work):
    """Move by `length` along the direction; coefficients that cross 0 leave the active set."""
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        left = 0.0
        for i in range(c * each, min((c + 1) * each, size)):
            work.values[i] += length * work.direction[i]
            work.changes[i] += length * work.direction[i]
            if work.values[i] * work.signs[i] <= 0.0:
                work.signs[i] = 0.0
            work.gradient[i] = abs(work.signs[i]) * (work.gradient[i] - length * work.change[i])
            left += work.signs[i] == 0.0 and work.values[i] != 0.0
        work.sums[_LEFT, c] = left


@reordered_kernel
def put_to_zero(member, problem, size, work):
    """Set the coefficients that have left the active set to 0."""
    first, last = own_numbers(member, size)
    for i in range(first, last):
        work.direction[i] = 0.0 if work.signs[i] != 0.0 else -work.values[i]
    thread_barrier(member)
    find_change(member, problem, size, work)
    go(member, size, 1.0, work)


@reordered_kernel
def finish(member, problem, size, coefficients, residual, work):
    """Update coefficients and residual.

    The residual absorbs rounding errors of the coefficients: where large coefficients cancel, these errors exceed the
    allowed gap.
    """
    first, last = own_numbers(member, size)
    for i in range(first, last):
        coefficients[work.active[i]] = work.values[i]
    thread_barrier(member)
    subtract(member, problem.columns, work.active[:size], work.gram, work.changes[:size], residual)
    thread_barrier(member)
    if member.rank == 0:
        project_out(problem.basis, residual)


@reordered_kernel
def conjugate_gradient_steps(member, problem, size, steps, enough, coefficients, residual, work):
    """Do up to `steps` steps on work.active[:size], and update coefficients and residual.

    enough: target duality gap on the active set. A pool of several threads must have prepared the active set before.
    """
    begin(member, problem, size, coefficients, residual, work)
    square = sum_of_squares(residual)
    product = turn(member, size, 0.0, work)
    if is_enough(member, problem, size, product, square, enough, work):
        return
    if member.size == 1:
        arrange(problem.columns, work.active[:size], work.gram)
    for k in range(steps):
        curvature, slope = find_change(member, problem, size, work)
        length = slope / curvature if curvature > 0.0 else first_stop(member, size, work)
        go(member, size, length, work)
        product = turn(member, size, curvature, work)
        done = is_enough(member, problem, size, product, square, enough, work)
        if (done or length == 0.0 or k + 1 == steps) and sum_of_chunks(work.sums[_LEFT], size) > 0.0:
            put_to_zero(member, problem, size, work)
            product = turn(member, size, 0.0, work)
            done = is_enough(member, problem, size, product, square, enough, work)
        if done or length == 0.0:
            break
    finish(member, problem, size, coefficients, residual, work)
