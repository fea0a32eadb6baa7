"""Cyclic coordinate descent over rows whose entries are on several machines: kernels.

As in `samplers.factorization.ccd`, but the sums over the entries of a row are returned before they are used, so that
the sums of other machines can be added. A row is opened once: its residuals are computed, and kept up to date while its
factors are set one after the other. Row d has the entries from offsets[d] to offsets[d + 1]. For each entry, in this
order, the residual is stored, and `LANE` factors of the other side as a tile, float32 (LANE, n).
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.factorization.row_kernels import find_residuals, row_penalty
from samplers.factorization.simd import LANE


@reordered_kernel
def open_rows(offsets, columns, values, mean, rows, others, residuals):
    """Set the residuals, float32 (n,), of the entries of D rows; returns the sum of their squares.

    offsets: int64 (D+1,). columns uint32, values float32 (n,): entries.
    rows: float32 (D, R).
    others: float32 (I, R), indexed by `columns`.
    """
    total = 0.0
    for d in range(offsets.size - 1):
        span = slice(offsets[d], offsets[d + 1])
        total += find_residuals(columns[span], values[span], mean, rows[d], others, residuals[span])
    return total


@reordered_kernel
def take_factors(offsets, columns, others, first, tile):
    """Set the tile to the factors of the entries' columns, starting with factor `first`."""
    for j in range(offsets[0], offsets[-1]):
        other = others[columns[j], first : first + LANE]
        for k in range(LANE):
            tile[k, j] = other[k]


@reordered_kernel
def sum_up(offsets, residuals, of_entries, sums):
    """Set sums, float64 (D, 2), to the sums of r h and h^2 over the entries of each row.

    of_entries: h, float32 (n,).
    """
    for d in range(offsets.size - 1):
        row_residuals, factors = residuals[offsets[d] : offsets[d + 1]], of_entries[offsets[d] : offsets[d + 1]]
        along, squares = np.float32(0.0), np.float32(0.0)
        for j in range(row_residuals.size):
            along += row_residuals[j] * factors[j]
            squares += factors[j] * factors[j]
        sums[d, 0], sums[d, 1] = along, squares


@reordered_kernel
def descend(offsets, residuals, tile, sums, rows, place, biased, entries, penalty, lower_bound):
    """Set one factor of each row to its best value, and update the residuals.

    sums: float64 (D, 2), over the entries on all machines.
    entries: int64 (D,), number of these entries.
    place: index of the factor, `biased` if it is a bias; the tile has the factors of the other side.
    penalty: `samplers.factorization.row_kernels.RowPenalty`.
    lower_bound: float32, lower bound of factors.
    """
    of_entries = tile[place % LANE]
    for d in range(offsets.size - 1):
        regularization = np.float64(row_penalty(penalty, max(entries[d], 1)))
        if biased:
            regularization *= penalty.of_biases
        factor = rows[d, place]
        if sums[d, 1] + regularization <= 0:  # without a penalty, nothing depends on this factor
            continue
        best = (sums[d, 0] + factor * sums[d, 1]) / (sums[d, 1] + regularization)
        rows[d, place] = max(np.float32(best), lower_bound)
        change = rows[d, place] - factor
        row_residuals, factors = residuals[offsets[d] : offsets[d + 1]], of_entries[offsets[d] : offsets[d + 1]]
        for j in range(row_residuals.size):
            row_residuals[j] -= change * factors[j]
