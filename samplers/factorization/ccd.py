"""Matrix factorization by cyclic coordinate descent: kernels (STRADS supplement, section 2).

With the factors of the columns fixed, the rows do not depend on each other, and the best w_k for a row, all its other
factors being as they are, is (equation 3, for a row)

    w_k = sum_j (r_j + w_k h_jk) h_jk / (lambda + sum_j h_jk^2),   r_j = a_j - w . h_j

over its entries j. A row is visited once for all k: residuals are made from the factors when it is opened and kept up
to date while it is; nothing is stored for an entry. The factors h_jk are taken from their rows `LANE` at a time, so
that a line of the cache is read once, and stand side by side for the entries of the row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.factorization.rows import find_residuals, penalty_of
from samplers.factorization.simd import LANE


class DescentScratch(NamedTuple):
    """Working memory for a row of up to n entries. residuals: float32 (n,). tile: float32 (LANE, n)."""

    residuals: np.ndarray
    tile: np.ndarray


@reordered_kernel
def descend(residuals, of_entries, factor, regularization, least):
    """Return the best value of one factor, and update the residuals of the row. of_entries: float32 (n,), this factor
    of the columns of its entries."""
    along, squares = np.float32(0.0), regularization
    for j in range(residuals.size):
        along += residuals[j] * of_entries[j]
        squares += of_entries[j] * of_entries[j]
    if squares <= 0:  # no penalty, and nothing depends on it
        return factor
    best = max((along + factor * (squares - regularization)) / squares, least)
    change = best - factor
    for j in range(residuals.size):
        residuals[j] -= change * of_entries[j]
    return best


@reordered_kernel
def sweep_rows(offsets, columns, values, mean, rows, others, used, fixed, penalty, least, work):
    """Descend once along each factor of some rows; returns the sum of squared residuals before it.

    offsets: int64 (D+1,), where the entries of each row begin in columns uint32 (N,) and values float32 (N,). rows:
    float32 (D, R), changed; others: float32 (I, R), which `columns` number. used: factors in use. fixed: the place that
    is not changed, or -1. penalty: `samplers.factorization.rows.RowPenalty`. least: float32, of any factor.
    """
    total = 0.0
    for d in range(offsets.size - 1):
        mine = columns[offsets[d] : offsets[d + 1]]
        row, residuals = rows[d], work.residuals[: mine.size]
        regularization = penalty_of(penalty, max(mine.size, 1))  # what has no entries goes to 0
        total += find_residuals(mine, values[offsets[d] : offsets[d + 1]], mean, row, others, residuals)
        for first in range(0, used, LANE):
            for j in range(mine.size):
                other = others[mine[j], first : first + LANE]
                for k in range(LANE):
                    work.tile[k, j] = other[k]
            for k in range(first, min(first + LANE, used)):
                weight = regularization * penalty.of_biases if fixed >= 0 and k == 1 - fixed else regularization
                if k != fixed:
                    row[k] = descend(residuals, work.tile[k - first, : mine.size], row[k], weight, least)
    return total
