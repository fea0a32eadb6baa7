"""Known cosines between columns and residuals, and the bounds that they give for other residuals.

If a column is at the angle s to a residual, which is at the angle t to another residual, the column's cosine with the
latter is at most |cos s cos t| + |sin s sin t|. Evaluating bounds is limited by memory bandwidth, which threads share:
five bytes per column, four for its limit and one for the result.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_inlined_kernel, reordered_kernel
from samplers.regression.linear_algebra.columns import copy
from samplers.regression.linear_algebra.contiguous import BLOCK, is_run

NOTHING = 0  # index that stands for no residual
_FAR = 1e30  # used instead of a sine where no cosine is known: exceeds all limits
_ROUNDED = 1e-14  # rounding error of a squared sine
_LEAST = 1e-37  # minimum limit: float32 has few smaller numbers
MARGIN = np.float32(1e-6)  # relative rounding error in float32: limits are reduced, and bounds increased, by this much


class StoredCosines(NamedTuple):
    """Known cosines of p columns with residuals."""

    cosines: np.ndarray  # float32 (p,), cosine of each column with a residual
    numbers: np.ndarray  # uint8 (p,), index of this residual


class ResidualAngles(NamedTuple):
    """Angles between a residual and k stored residuals, float32 (k,), rounded up."""

    cosines: np.ndarray
    sines: np.ndarray


@reordered_kernel
def largest_limit(l1, norms):
    """Return the maximum limit l1 / |x| of the cosines of columns, float64 (m,); 0 if all columns are 0.

    l1 may be (1,), also in the functions below.
    """
    largest = 0.0
    for j in range(norms.size):
        limit = l1[j if l1.size > 1 else 0] / norms[j]
        largest = max(largest, limit if norms[j] > 0.0 else 0.0)
    return largest


@reordered_kernel
def set_limits(l1, norms, largest, limits):
    """Set limits, float32 (m,), to l1 / |x| relative to the maximum; 0 only for columns that are 0 or unpenalized."""
    factor = (1.0 - MARGIN) / largest if largest > 0.0 else 0.0
    for j in range(limits.size):
        cost = l1[j if l1.size > 1 else 0]
        limit = max(cost / norms[j] * factor, _LEAST)
        limits[j] = limit if cost > 0.0 and norms[j] > 0.0 else 0.0


@reordered_kernel
def find_angles(products, square, squares, angles):
    """Set the angles between a residual and k others, from inner products and squared norms, float64 (k,); the square
    of a missing residual is 0.
    """
    for k in range(squares.size):
        cosine, sine = 0.0, _FAR
        if squares[k] > 0.0:
            length = math.sqrt(squares[k] * square)
            cosine = products[k] / length if length > 0.0 else 0.0
            sine = math.sqrt(max(1.0 - cosine * cosine, 0.0) + _ROUNDED)
        angles.cosines[k], angles.sines[k] = (1.0 + MARGIN) * cosine, (1.0 + MARGIN) * sine


@reordered_kernel
def least_bound(angles, counts):
    """Return a lower bound on the bounds of all columns.

    counts: int64 (k,), number of columns per residual.

    The bound is concave in the known cosine, so its minimum is at 0 or 1.
    """
    least = _FAR
    for k in range(NOTHING + 1, counts.size):
        if counts[k] > 0:
            least = min(least, angles.sines[k], abs(angles.cosines[k]))
    return least


class CosineBoundScratch(NamedTuple):
    """Working memory for up to BLOCK columns, float32 (BLOCK,)."""

    cosines: np.ndarray
    limits: np.ndarray
    of_angles: np.ndarray
    sines: np.ndarray


def block() -> CosineBoundScratch:
    return CosineBoundScratch(*np.empty((4, BLOCK), np.float32))


@reordered_kernel
def are_same(numbers):
    same = 0
    for i in range(numbers.size):
        same += numbers[i] == numbers[0]
    return same == numbers.size


@reordered_kernel
def look_up(numbers, angles, block):
    """Look up the angles of some residuals, separately from the arithmetic, which the compiler can then vectorize."""
    if are_same(numbers):
        block.of_angles[: numbers.size] = angles.cosines[numbers[0]]
        block.sines[: numbers.size] = angles.sines[numbers[0]]
    else:
        for i in range(numbers.size):
            block.of_angles[i], block.sines[i] = angles.cosines[numbers[i]], angles.sines[numbers[i]]


@reordered_kernel
def exceed(cosines, limits, lam, spare, block, above):
    """Set `above` where the largest possible cosines exceed the limits; returns the number of such columns."""
    for i in range(cosines.size):
        cosine = cosines[i]
        most = abs(block.of_angles[i] * cosine) + block.sines[i] * np.sqrt(np.float32(1.0) + MARGIN - cosine * cosine)
        above[i] = most - lam * limits[i] + spare > 0.0
    return count_true(above)


@reordered_kernel
def count_true(flags):
    count = np.int64(0)
    for i in range(flags.size):
        count += flags[i]
    return count


@reordered_kernel
def bound(known, limits, angles, candidates, lam, spare, block, above):
    """Set `above`, bool (m,), for candidates, int64 (m,), whose cosines may exceed lam * limit - spare, float32;
    returns the number of these candidates.
    """
    count = 0
    for begin in range(0, candidates.size, BLOCK):
        some, found = candidates[begin : begin + BLOCK], above[begin : begin + BLOCK]
        size = some.size
        if is_run(some):
            run = slice(some[0], some[-1] + 1)
            look_up(known.numbers[run], angles, block)
            count += exceed(known.cosines[run], limits[run], lam, spare, block, found)
        else:
            for i in range(size):
                j = some[i]
                number = known.numbers[j]
                block.cosines[i], block.limits[i] = known.cosines[j], limits[j]
                block.of_angles[i], block.sines[i] = angles.cosines[number], angles.sines[number]
            count += exceed(block.cosines[:size], block.limits[:size], lam, spare, block, found)
    return count


@reordered_kernel
def choose(candidates, above, chosen):
    """Write the candidates, int64 (m,), that are `above` to `chosen`, int64 (l,), which may overlap the start of
    `candidates`.
    """
    count = 0
    for begin in range(0, candidates.size, BLOCK):
        some, flags = candidates[begin : begin + BLOCK], above[begin : begin + BLOCK]
        many = count_true(flags)
        if many == some.size:
            copy(some, chosen[count : count + many])
        elif many > 0:
            found, at = chosen[count : count + many], 0
            for i in range(some.size):  # most entries are overwritten: the processor would mispredict a branch for each
                if at == many:
                    break
                found[at] = some[i]
                at += flags[i]
        count += many


@reordered_kernel
def count(numbers, counts):
    """Count the values of `numbers`, uint8, which are often equal: adding one by one would wait for each addition."""
    same = 0
    for i in range(numbers.size):
        same += numbers[i] == numbers[0]
    counts[numbers[0]] += same
    if same < numbers.size:
        for i in range(numbers.size):
            counts[numbers[i]] += numbers[i] != numbers[0]


@reordered_inlined_kernel
def cosine_of(value, length, norm):
    return max(min(value / length / norm, 1.0), -1.0)


@reordered_kernel
def learn_run(known, values, number, length, norms):
    for i in range(values.size):
        known.numbers[i], known.cosines[i] = number, cosine_of(values[i], length, norms[i])


@reordered_kernel
def learn(known, lost, chosen, values, number, length, norms):
    """Store the inner products of the chosen columns, int64 (m,), with a residual.

    values: float64 (m,), inner products.
    lost: int64, initially zeros, set to the number of these columns that referred to each residual before.
    """
    for begin in range(0, chosen.size, BLOCK):
        some, found = chosen[begin : begin + BLOCK], values[begin : begin + BLOCK]
        if is_run(some):
            run = slice(some[0], some[-1] + 1)
            of_run = StoredCosines(known.cosines[run], known.numbers[run])
            count(of_run.numbers, lost)
            learn_run(of_run, found, number, length, norms[run])
        else:
            for i in range(some.size):
                j = some[i]
                lost[known.numbers[j]] += 1
                known.numbers[j], known.cosines[j] = number, cosine_of(found[i], length, norms[j])


@reordered_kernel
def forget(known, number):
    """Discard the cosines of all columns that refer to a residual."""
    for j in range(known.numbers.size):
        if known.numbers[j] == number:
            known.numbers[j], known.cosines[j] = NOTHING, 0.0
