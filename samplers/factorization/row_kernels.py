"""Rows of factors in the layout of all methods, and operations on two rows.

A row is float32, and its length is a multiple of `LANE`. With biases, a user's row starts with its bias and 1, an
item's with 1 and its bias: so their inner product is the sum of both biases and the inner product of the factors, which
follow. The fixed 1 never changes. Padding after the last factor is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, reordered_kernel, unmanaged_kernel
from ooc.rng import random_bits, uniform
from samplers.factorization import simd
from samplers.factorization.simd import LANE

BIASES = 2  # number of places before the factors, if there are biases
LEAST = np.float32(np.finfo(np.float32).min)  # lower bound of factors that are unbounded


class RowPenalty(NamedTuple):
    """Penalty lambda * |w|^2 of each row, optionally times its number of entries.

    regularization: float32.
    of_biases: float32, factor for the penalty on a bias, see `samplers.factorization.rating_units`.
    """

    regularization: np.float32
    per_entry: bool
    of_biases: np.float32 = np.float32(1.0)


@reordered_kernel
def row_penalty(penalty, entries):
    """Return the weight of the squared factors of a row with `entries` entries."""
    return penalty.regularization * np.float32(entries) if penalty.per_entry else penalty.regularization


@unmanaged_kernel
def draw_factors(rows, numbers, key, spread):
    """Set rows, float32 (D, R), to random numbers between -spread and spread.

    numbers: integers (D,), row indices, which determine the numbers drawn.
    key: uint64, key of the random stream.
    """
    for d in range(rows.shape[0]):
        row_key = random_bits(key, np.uint64(numbers[d]))
        for k in range(rows.shape[1]):
            rows[d, k] = spread * np.float32(2.0 * uniform(row_key, np.uint64(k)) - 1.0)


@inlined_kernel
def dot(one, other):
    """Return the inner product of two rows, float32 (R,)."""
    products = simd.spread(np.float32(0.0))
    for k in range(0, one.size, LANE):
        products = simd.fused(simd.load(one, k), simd.load(other, k), products)
    return simd.total(products)


@reordered_kernel
def find_residuals(columns, values, mean, row, others, residuals):
    """Set residuals, float32 (n,), to a_j - mean - w . h_j for the entries of a row; returns the sum of their
    squares."""
    total = 0.0
    for j in range(columns.size):
        residuals[j] = values[j] - mean - dot(row, others[columns[j]])
        total += np.float64(residuals[j]) * residuals[j]
    return total


@reordered_kernel
def squared_errors(offsets, columns, values, mean, rows, places, unknown, others, work):
    """Return the sum of squared residuals of the entries of D rows.

    offsets: int64 (D+1,), start of each row in columns uint32 (N,) and values float32 (N,).
    places: int64 (D,), index of each row's factors in `rows`, float32 (., R), or -1 for `unknown`, float32 (R,).
    others: float32 (I, R), indexed by `columns`.
    work: float32 (n,), for rows of up to n entries.
    """
    total = 0.0
    for d in range(offsets.size - 1):
        span = slice(offsets[d], offsets[d + 1])
        residuals = work[: offsets[d + 1] - offsets[d]]
        row = rows[places[d]] if places[d] >= 0 else unknown
        total += find_residuals(columns[span], values[span], mean, row, others, residuals)
    return total
