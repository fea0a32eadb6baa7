"""Conjugate gradients on the face of a `Quadratic` that the signs of its coefficients span.

With the signs fixed, the objective is quadratic in the coefficients that are not 0. Steps are preconditioned by the
curvatures. A coefficient that a step would carry past 0 is put to 0 and leaves the face; then the conjugate directions
begin anew (in the manner of Polyak's method for bounds, see More and Toraldo, SIAM J. Optim. 1991). Coordinate descent
finds faces fast but goes slowly to the best point of one if columns are correlated; this is the reverse.

The threads of a team take a step together, each on columns of its own. What columns add up to is the sum of some parts,
which are the same for any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.columns import add, combine, dot, entries, squared
from samplers.regression.quadratic import Quadratic
from samplers.regression.team import CHUNKS, agreed, meet, own_chunks, own_numbers, summed
from samplers.regression.vectors import project

_SMALL = 1e-6  # of the square of the first gradient: go no further down
_SINGULAR = 1e-12  # of the curvature if columns were orthogonal: less than that is rounding
_NOISE = 1e-28  # of the square of the residual, for each coefficient: a smaller square of the gradient is rounding
_HALVINGS = 3  # of a direction, at most
_DENSE = 2  # entries for each row: with fewer, an image takes longer to be cleared and added than half of one saves
_PRODUCT, _IMAGE, _RIDGE, _APART, _STOPPED, _BASIS = range(6)  # rows of `Work.sums`; the last has others after it


class Work(NamedTuple):
    """Working memory for W coefficients, n rows, N entries and k axes of a basis, float64 but for what is said."""

    face: np.ndarray  # int64 (W,), the coefficients that are not 0
    size: np.ndarray  # int64 (1,), how many that are
    sums: np.ndarray  # (5 + k, CHUNKS), of chunks
    signs: np.ndarray  # (W,), those of the face
    gradient: np.ndarray  # (W,), minus that
    direction: np.ndarray  # (W,)
    images: np.ndarray  # (parts, n), of parts of the direction
    image: np.ndarray  # (n,), of all of it, projected
    shift: np.ndarray  # (k,)
    coefficients: np.ndarray  # (W,), to go back to
    residual: np.ndarray  # (n,), theirs


def work_for(problem: Quadratic, rows: int) -> Work:
    coefficients, basis = problem.l1.size, len(problem.basis)
    parts = 1 << min((entries(problem.columns) // (_DENSE * rows)).bit_length(), _HALVINGS)
    shapes = [coefficients] * 3 + [(parts, rows), rows, basis, coefficients, rows]
    whole = np.empty(coefficients, np.int64), np.empty(1, np.int64), np.empty((_BASIS + basis, CHUNKS))
    work = Work(*whole, *(np.empty(shape) for shape in shapes))
    return work if parts > 1 else work._replace(image=work.images[0])


@reordered_kernel
def begin(member, size, coefficients, work):
    """Note the signs of the face."""
    first, last = own_numbers(member, size)
    for i in range(first, last):
        work.signs[work.face[i]] = np.sign(coefficients[work.face[i]])


@reordered_kernel
def steepest(member, problem, size, coefficients, residual, work):
    """Begin with the preconditioned gradient; returns its inner product with the gradient."""
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        face, product = work.face[c * each : min((c + 1) * each, size)], 0.0
        for i in range(face.size):
            j = face[i]
            slope = dot(problem.columns, j, residual) - problem.l2[j] * coefficients[j] - work.signs[j] * problem.l1[j]
            work.gradient[j] = slope
            work.direction[j] = slope / problem.curvatures[j]
            product += slope * work.direction[j]
        work.sums[_PRODUCT, c] = product
    return agreed(member, work.sums[_PRODUCT], size)


@reordered_kernel
def find_image(member, problem, size, work):
    """Find the image of the direction."""
    image, parts = work.image, len(work.images)
    for p in range(parts * member.rank // member.size, parts * (member.rank + 1) // member.size):
        part = work.face[size * p // parts : size * (p + 1) // parts]
        combine(problem.columns, part, work.direction, work.images[p])
    meet(member)
    each, first, last = own_chunks(member, image.size)
    if parts > 1:  # the sum is none of them: each stays in the cache of the processor that wrote it
        for k in range(each * first, min(each * last, image.size)):
            image[k] = work.images[0, k] + work.images[1, k]
        for p in range(2, parts):
            for k in range(each * first, min(each * last, image.size)):
                image[k] += work.images[p, k]
    for m in range(len(problem.basis)):
        axis = problem.basis[m]
        for c in range(first, last):
            part, of_axis, along = image[c * each : (c + 1) * each], axis[c * each : (c + 1) * each], 0.0
            for k in range(part.size):
                along += of_axis[k] * part[k]
            work.sums[_BASIS + m, c] = along
        along = agreed(member, work.sums[_BASIS + m], image.size)
        for c in range(first, last):
            part, of_axis = image[c * each : (c + 1) * each], axis[c * each : (c + 1) * each]
            for k in range(part.size):
                part[k] -= along * of_axis[k]


@reordered_kernel
def curvature_along(member, problem, size, work):
    """Find the image of the direction; returns the second derivative of the objective along it, 0 if that is rounding:
    columns that depend on each other leave directions in which nothing changes but the penalty."""
    find_image(member, problem, size, work)
    image = work.image
    each, first, last = own_chunks(member, image.size)
    for c in range(first, last):
        work.sums[_IMAGE, c] = squared(image[c * each : (c + 1) * each])
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        face, ridge, apart = work.face[c * each : min((c + 1) * each, size)], 0.0, 0.0
        for i in range(face.size):
            j = face[i]
            square = work.direction[j] * work.direction[j]
            ridge += problem.l2[j] * square
            apart += problem.curvatures[j] * square
        work.sums[_RIDGE, c], work.sums[_APART, c] = ridge, apart
    total = agreed(member, work.sums[_IMAGE], image.size) + summed(work.sums[_RIDGE], size)
    return total if total > _SINGULAR * summed(work.sums[_APART], size) else 0.0


@reordered_kernel
def first_stop(member, size, coefficients, work):
    """How far along the direction the first coefficient comes to 0; 0 if none does."""
    least = 0.0
    for i in range(size):
        j = work.face[i]
        towards = -work.direction[j] * work.signs[j]
        if towards > 0.0:
            length = abs(coefficients[j]) / towards
            if least == 0.0 or length < least:
                least = length
    meet(member)
    return least


@reordered_kernel
def stop(problem, size, coefficients, residual, work):
    """Put the coefficients that have come past 0 to 0, and leave them out of the face."""
    left = 0
    for i in range(size):
        j = work.face[i]
        if coefficients[j] * work.signs[j] <= 0.0:
            add(problem.columns, j, coefficients[j], residual)
            coefficients[j] = work.direction[j] = 0.0
            continue
        work.face[left] = j
        left += 1
    project(problem.basis, residual)
    work.size[0] = left


@reordered_kernel
def step(member, problem, size, length, coefficients, residual, work):
    """Go so far along the direction, coefficients no further than to 0; returns the size of the face that is left."""
    each, first, last = own_chunks(member, residual.size)
    for c in range(first, last):
        left, image = residual[c * each : (c + 1) * each], work.image[c * each : (c + 1) * each]
        for k in range(left.size):
            left[k] -= length * image[k]
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        face, stopped = work.face[c * each : min((c + 1) * each, size)], 0.0
        for i in range(face.size):
            j = face[i]
            coefficients[j] += length * work.direction[j]
            stopped += coefficients[j] * work.signs[j] <= 0.0
        work.sums[_STOPPED, c] = stopped
    if agreed(member, work.sums[_STOPPED], size) == 0.0:
        return size
    if member.rank == 0:
        stop(problem, size, coefficients, residual, work)
    meet(member)
    return work.size[0]


@reordered_kernel
def turn(member, problem, size, length, before, work):
    """Make the gradient that of the point a step ahead, and the direction conjugate; returns as `steepest` does."""
    each, first, last = own_chunks(member, size)
    for c in range(first, last):
        face, product = work.face[c * each : min((c + 1) * each, size)], 0.0
        for i in range(face.size):
            j = face[i]
            change = dot(problem.columns, j, work.image) + problem.l2[j] * work.direction[j]
            work.gradient[j] -= length * change
            product += work.gradient[j] ** 2 / problem.curvatures[j]
        work.sums[_PRODUCT, c] = product
    after = agreed(member, work.sums[_PRODUCT], size)
    for c in range(first, last):
        face = work.face[c * each : min((c + 1) * each, size)]
        for i in range(face.size):
            j = face[i]
            work.direction[j] = work.gradient[j] / problem.curvatures[j] + after / before * work.direction[j]
    meet(member)
    return after


@reordered_kernel
def polish(member, problem, size, steps, enough, coefficients, residual, work):
    """Take up to so many steps on the face of work.face[:size]; coefficients and residual are brought up to date.

    enough: of the squared preconditioned gradient, which is twice what could be gained if columns were orthogonal.
    """
    begin(member, size, coefficients, work)
    noise = _NOISE * size * squared(residual)
    product = steepest(member, problem, size, coefficients, residual, work)
    enough = max(_SMALL * product, noise, enough)
    for _ in range(steps):
        if size == 0 or product <= enough:
            break
        curvature = curvature_along(member, problem, size, work)
        length = product / curvature if curvature > 0.0 else first_stop(member, size, coefficients, work)
        if length == 0.0:
            break
        left = step(member, problem, size, length, coefficients, residual, work)
        if left < size:
            size = left
            product = steepest(member, problem, size, coefficients, residual, work)
        else:
            product = turn(member, problem, size, length, product, work)
