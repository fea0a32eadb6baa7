"""Mean, norm and standard deviation of each column of a block, for several weightings of the rows in one pass.

A subset of the rows, such as the training rows of a fold, has weights of 1 for its rows and 0 for the others. With
weights w that add up to W, the mean is sum(w x) / W, the norm sqrt(sum(w x^2)) and the deviation sqrt(sum(w (x -
mean)^2) / W), exactly 0 if all values with nonzero weight are equal. A missing value counts as the mean of the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel, unmanaged_kernel
from blocks.design.design import DenseDesignBlock, SparseDesignBlock


class RowWeightings(NamedTuple):
    """K weightings of n rows.

    counts: int64 (K,), number of rows with nonzero weight.
    totals: float64 (K,), sums of weights.
    """

    of_rows: np.ndarray  # float64 (n, K), nonnegative
    counts: np.ndarray
    totals: np.ndarray


class WeightedSums(NamedTuple):
    """Sums over the known values of a column, for each weighting."""

    counts: np.ndarray  # int64 (K,), number of values with nonzero weight
    weights: np.ndarray  # float64 (K,)
    values: np.ndarray  # float64 (K,)
    squares: np.ndarray  # float64 (K,)
    first: np.ndarray  # float64 (K,), a value with nonzero weight
    different: np.ndarray  # bool (K,), whether the values with nonzero weight differ


def row_weightings(of_rows: np.ndarray) -> RowWeightings:
    """Return weightings from nonnegative weights, float64 (n, K); each column must have a positive weight."""
    return RowWeightings(of_rows, np.count_nonzero(of_rows, axis=0), of_rows.sum(axis=0))


def weighted_moments(block: SparseDesignBlock | DenseDesignBlock, weights: RowWeightings) -> np.ndarray:
    """Return means, norms and deviations of a block's w columns under K weightings: float64 (3, K, w)."""
    if isinstance(block, DenseDesignBlock):
        return moments_of_dense(*block, weights)
    longest = int(np.diff(block.offsets).max(initial=0)) if block.values.size == 0 else 0
    return moments_of_sparse(*block, np.ones(longest, np.float32), weights)


@kernel
def moments_of_sparse(offsets, rows, values, ones, weights):
    """Return the moments of sparse columns. See `weighted_moments`.

    ones: float32, values of a column without stored values.
    """
    moments, sums = np.empty((3, weights.totals.size, offsets.size - 1)), empty_sums(weights.totals.size)
    for column in range(offsets.size - 1):
        mine = slice(offsets[column], offsets[column + 1])
        found = ones[: mine.stop - mine.start] if values.size == 0 else values[mine]
        add_up(rows[mine], found, weights, sums)
        finish(rows[mine], found, weights, sums, weights.counts, weights.totals, moments[:, :, column])
    return moments


@kernel
def moments_of_dense(values, missing_offsets, missing_rows, weights):
    """Return the moments of dense columns. See `weighted_moments`."""
    moments, sums = np.empty((3, weights.totals.size, len(values))), empty_sums(weights.totals.size)
    rows, known = np.arange(values.shape[1]), np.ones(values.shape[1], np.bool_)
    for column in range(len(values)):
        missing = missing_rows[missing_offsets[column] : missing_offsets[column + 1]]
        known[missing] = False
        some = rows[known] if missing.size else rows
        found = values[column][some] if missing.size else values[column]
        known[missing] = True
        add_up(some, found, weights, sums)
        finish(some, found, weights, sums, sums.counts, sums.weights, moments[:, :, column])
    return moments


@kernel
def empty_sums(kinds):
    """Return empty sums for `kinds` weightings."""
    counts, numbers = np.empty(kinds, np.int64), np.empty((4, kinds))
    return WeightedSums(counts, numbers[0], numbers[1], numbers[2], numbers[3], np.empty(kinds, np.bool_))


@unmanaged_kernel
def add_up(rows, values, weights, sums):
    """Compute the sums over some values of a column, whose rows are `rows`, (k,)."""
    for kind in range(weights.totals.size):
        sums.counts[kind], sums.weights[kind], sums.values[kind], sums.squares[kind] = 0, 0.0, 0.0, 0.0
        sums.different[kind] = False
    for place in range(rows.size):
        value = np.float64(values[place])
        for kind in range(weights.totals.size):
            weight = weights.of_rows[rows[place], kind]
            if weight == 0:
                continue
            if sums.counts[kind] == 0:
                sums.first[kind] = value
            sums.different[kind] |= value != sums.first[kind]
            sums.counts[kind] += 1
            sums.weights[kind] += weight
            sums.values[kind] += weight * value
            sums.squares[kind] += weight * value * value


@unmanaged_kernel
def finish(rows, values, weights, sums, counts, totals, moments):
    """Fill moments, float64 (3, K).

    counts, totals: number and total weight of the rows whose value, zero or not, is known; the remaining weight belongs
        to missing values.
    """
    for kind in range(weights.totals.size):
        zeros = counts[kind] - sums.counts[kind]
        mean = sums.values[kind] / totals[kind] if sums.counts[kind] else 0.0
        if zeros == 0 and not sums.different[kind] and sums.counts[kind]:
            mean = sums.first[kind]  # exact, since columns may be divided by the deviation
        spread = max(totals[kind] - sums.weights[kind], 0.0) * mean * mean if zeros else 0.0
        for place in range(rows.size):
            spread += weights.of_rows[rows[place], kind] * (np.float64(values[place]) - mean) ** 2
        missing = max(weights.totals[kind] - totals[kind], 0.0)
        moments[0, kind] = mean
        moments[1, kind] = math.sqrt(sums.squares[kind] + missing * mean * mean)
        moments[2, kind] = math.sqrt(spread / weights.totals[kind])
