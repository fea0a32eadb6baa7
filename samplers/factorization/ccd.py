"""Matrix factorization by cyclic coordinate descent: kernels (STRADS supplement, section 2).

With the factors of the columns fixed, rows are independent of each other, and the best w_k of a row, given all its
other factors, is (equation 3, for a row)

    w_k = sum_j (r_j + w_k h_jk) h_jk / (lambda + sum_j h_jk^2),   r_j = a_j - w . h_j

summed over the row's entries j. A row is visited once for all k: its residuals are computed from the factors when the
visit begins and kept up to date during the visit; nothing is stored per entry. The factors h_jk are gathered from their
rows `LANE` at a time, so that a cache line is read once, and are stored contiguously for the entries of the row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.factorization.row_kernels import find_residuals, row_penalty
from samplers.factorization.simd import LANE


class DescentScratch(NamedTuple):
    """Working memory for a row of up to n entries.

    residuals: float32 (n,).
    tile: float32 (LANE, n).
    """

    residuals: np.ndarray
    tile: np.ndarray


@reordered_kernel
def descend(residuals, of_entries, factor, regularization, lower_bound):
    """Return the best value of one factor, and update the residuals of the row.

    of_entries: float32 (n,), this factor for the columns of the row's entries.
    """
    along, squares = np.float32(0.0), regularization
    for j in range(residuals.size):
        along += residuals[j] * of_entries[j]
        squares += of_entries[j] * of_entries[j]
    if squares <= 0:  # without a penalty, nothing depends on this factor
        return factor
    best = max((along + factor * (squares - regularization)) / squares, lower_bound)
    change = best - factor
    for j in range(residuals.size):
        residuals[j] -= change * of_entries[j]
    return best


@reordered_kernel
def sweep_rows(offsets, columns, values, mean, rows, others, used, fixed, penalty, lower_bound, work):
    """Take one coordinate descent step along each factor of some rows; returns the sum of squared residuals before the
    updates.

    offsets: int64 (D+1,), start of each row's entries in columns uint32 (N,) and values float32 (N,).
    rows: float32 (D, R), updated.
    others: float32 (I, R), indexed by `columns`.
    used: indices of the factors in use.
    fixed: index of the factor that is not changed, or -1.
    penalty: `samplers.factorization.row_kernels.RowPenalty`.
    lower_bound: float32, lower bound of all factors.
    """
    total = 0.0
    for d in range(offsets.size - 1):
        row_columns = columns[offsets[d] : offsets[d + 1]]
        row, residuals = rows[d], work.residuals[: row_columns.size]
        regularization = row_penalty(penalty, max(row_columns.size, 1))  # factors of rows without entries go to 0
        total += find_residuals(row_columns, values[offsets[d] : offsets[d + 1]], mean, row, others, residuals)
        for first in range(0, used, LANE):
            for j in range(row_columns.size):
                other = others[row_columns[j], first : first + LANE]
                for k in range(LANE):
                    work.tile[k, j] = other[k]
            for k in range(first, min(first + LANE, used)):
                weight = regularization * penalty.of_biases if fixed >= 0 and k == 1 - fixed else regularization
                if k != fixed:
                    row[k] = descend(residuals, work.tile[k - first, : row_columns.size], row[k], weight, lower_bound)
    return total
