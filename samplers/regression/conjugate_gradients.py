"""Conjugate gradients on the face of a `Quadratic` that the signs of its coefficients span.

With the signs fixed, the objective is quadratic in the coefficients that are not 0. Steps are preconditioned by the
curvatures. A coefficient that a step would carry past 0 is put to 0 and leaves the face; then the conjugate directions
begin anew (in the manner of Polyak's method for bounds, see More and Toraldo, SIAM J. Optim. 1991). Coordinate descent
finds faces fast but goes slowly to the best point of one if columns are correlated; this is the reverse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.columns import add, combine, dot, squared
from samplers.regression.quadratic import project

_SMALL = 1e-6  # of the square of the first gradient: go no further down
_SINGULAR = 1e-12  # of the curvature if columns were orthogonal: less than that is rounding
_NOISE = 1e-28  # of the square of the residual, for each coefficient: a smaller square of the gradient is rounding


class Work(NamedTuple):
    """Working memory for W coefficients and n rows, float64 but for `face`."""

    face: np.ndarray  # int64 (W,), the coefficients that are not 0
    signs: np.ndarray  # (W,), theirs
    gradient: np.ndarray  # (W,), minus that
    direction: np.ndarray  # (W,)
    image: np.ndarray  # (n,), of the direction, projected
    shift: np.ndarray  # (k,)
    coefficients: np.ndarray  # (W,), to go back to
    residual: np.ndarray  # (n,), theirs


def work_for(coefficients: int, rows: int, basis: int) -> Work:
    sizes = [coefficients] * 3 + [rows, basis, coefficients, rows]
    return Work(np.empty(coefficients, np.int64), *(np.empty(size) for size in sizes))


@reordered_kernel
def steepest(problem, size, coefficients, residual, work):
    """Begin with the preconditioned gradient; returns its inner product with the gradient."""
    product = 0.0
    for i in range(size):
        j = work.face[i]
        slope = dot(problem.columns, j, residual) - problem.l2[j] * coefficients[j] - work.signs[i] * problem.l1[j]
        work.gradient[i] = slope
        work.direction[i] = slope / problem.curvatures[j]
        product += slope * work.direction[i]
    return product


@reordered_kernel
def curvature_along(problem, size, work):
    """Find the image of the direction; returns the second derivative of the objective along it, 0 if that is rounding:
    columns that depend on each other leave directions in which nothing changes but the penalty."""
    combine(problem.columns, work.face[:size], work.direction, work.image)
    project(problem.basis, work.image)
    total, apart = squared(work.image), 0.0
    for i in range(size):
        j, square = work.face[i], work.direction[i] * work.direction[i]
        total += problem.l2[j] * square
        apart += problem.curvatures[j] * square
    return total if total > _SINGULAR * apart else 0.0


@reordered_kernel
def first_stop(size, coefficients, work):
    """How far along the direction the first coefficient comes to 0; 0 if none does."""
    least = 0.0
    for i in range(size):
        towards = -work.direction[i] * work.signs[i]
        if towards > 0.0:
            length = abs(coefficients[work.face[i]]) / towards
            if least == 0.0 or length < least:
                least = length
    return least


@reordered_kernel
def step(problem, size, length, coefficients, residual, work):
    """Go so far along the direction, coefficients no further than to 0; returns the size of the face that is left."""
    for i in range(residual.size):
        residual[i] -= length * work.image[i]
    left = 0
    for i in range(size):
        j = work.face[i]
        new = coefficients[j] + length * work.direction[i]
        if new * work.signs[i] <= 0.0:
            add(problem.columns, j, new, residual)
            coefficients[j] = 0.0
            continue
        coefficients[j] = new
        work.face[left], work.signs[left] = j, work.signs[i]
        work.gradient[left], work.direction[left] = work.gradient[i], work.direction[i]
        left += 1
    if left < size:
        project(problem.basis, residual)
    return left


@reordered_kernel
def turn(problem, size, length, before, work):
    """Make the gradient that of the point a step ahead, and the direction conjugate; returns as `steepest` does."""
    after = 0.0
    for i in range(size):
        j = work.face[i]
        change = dot(problem.columns, j, work.image) + problem.l2[j] * work.direction[i]
        work.gradient[i] -= length * change
        after += work.gradient[i] ** 2 / problem.curvatures[j]
    for i in range(size):
        work.direction[i] = work.gradient[i] / problem.curvatures[work.face[i]] + after / before * work.direction[i]
    return after


@reordered_kernel
def polish(problem, size, steps, coefficients, residual, work):
    """Take up to so many steps on the face of work.face[:size]; coefficients and residual are brought up to date."""
    for i in range(size):
        work.signs[i] = np.sign(coefficients[work.face[i]])
    product = steepest(problem, size, coefficients, residual, work)
    enough = max(_SMALL * product, _NOISE * size * squared(residual))
    for _ in range(steps):
        if size == 0 or product <= enough:
            break
        curvature = curvature_along(problem, size, work)
        length = product / curvature if curvature > 0.0 else first_stop(size, coefficients, work)
        if length == 0.0:
            break
        left = step(problem, size, length, coefficients, residual, work)
        if left < size:
            size = left
            product = steepest(problem, size, coefficients, residual, work)
        else:
            product = turn(problem, size, length, product, work)
