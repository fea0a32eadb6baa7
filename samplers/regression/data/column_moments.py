"""Mean, norm and standard deviation of columns: stored with a design, summed over blocks and ranks, or from memory.

`column_moments` is for designs on disk, on one machine and on several, with sample weights and for folds; the moments
under equal weights are stored with the design. `needed_moments` is for the columns of an estimator in memory, whose
sums of squares and products are those of the solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from blocks.design.design import DenseDesignBlock, Design, SparseDesignBlock
from blocks.design.row_shards import DesignRowShard, row_bounds
from blocks.design.weighted_moments import RowWeightings, row_weightings, weighted_moments
from ooc.ring.ring import Ring
from samplers.regression.data.features import FeatureColumns
from samplers.regression.linear_algebra.columns import dense_columns

# ratio of mean to standard deviation: above it, sums of a column lose digits, and differences of squares more
_FAR = 1e3
_ROUNDING = 1e-15  # relative to a mean: a deviation up to this is due to rounding, as 0.1 + 0.2 is more than 0.3
_CELLS = 1 << 18  # number of cells of columns that are read again at a time
_COLUMNS = 1 << 16  # number of columns whose moments the ranks exchange at a time
_ROUNDED = 1e-12  # relative to the total weight of all rows


class ColumnMoments(NamedTuple):
    """Weighted moments of p columns, float64 (p,)."""

    means: np.ndarray
    norms: np.ndarray  # square roots of the sums of squares
    deviations: np.ndarray  # 0 for constant columns

    def shifted(self, shifts: np.ndarray, total: float) -> ColumnMoments:
        """Return the moments of the columns plus one shift per column, float64 (p,).

        total: total weight of the rows.
        """
        means = self.means + shifts
        norms = np.where(shifts != 0, math.sqrt(total) * np.hypot(self.deviations, means), self.norms)
        return ColumnMoments(means, norms, self.deviations)


def known_moments(design: Design) -> ColumnMoments:
    """Return the moments of the stored columns under equal sample weights."""
    return ColumnMoments(design.means, design.norms, design.deviations)


def column_moments(
    design: Design, weights: list[np.ndarray | None], threads: int, ring: Ring | None = None
) -> list[ColumnMoments]:
    """Return the moments of the columns under several sample weights, each float64 (n,), or None for weight 1.

    design: on several machines, this rank's shard.
    weights: weights of all rows of the design, equal on all ranks.
    ring: ranks that combine the moments of their rows.
    """
    known = known_moments(design)
    of_rows = [some for some in weights if some is not None]
    if not of_rows:
        return [known] * len(weights)
    several = np.stack(of_rows, axis=1)
    if ring and isinstance(design, DesignRowShard):
        totals = np.add.reduceat(several, row_bounds(design.rows, design.shards)[:-1])
        own = row_weightings(several[design.own])
        parts = _of_blocks(lambda block: own_moments(block, own), design, threads)
        found = [some for part in parts for some in _together(part, totals, ring)]
    else:
        every = row_weightings(several)
        found = list(_of_blocks(lambda block: weighted_moments(block, every), design, threads))
    joined, others = np.concatenate(found, axis=2), iter(range(len(of_rows)))  # (3, K, p)
    return [known if some is None else ColumnMoments(*joined[:, next(others)]) for some in weights]


def _of_blocks(
    moments: Callable[[SparseDesignBlock | DenseDesignBlock], np.ndarray], design: Design, threads: int
) -> Iterator[np.ndarray]:
    """Yield the moments of each block in order, computed by threads."""
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda number: moments(design.block(number)), range(design.block_count))


def own_moments(block: SparseDesignBlock | DenseDesignBlock, weights: RowWeightings) -> np.ndarray:
    """Return the means, norms, deviations and total weights of the stored values of a block's w columns under K sample
    weights: float64 (4, K, w).

    If all rows have weight 0, the first three are 0.
    """
    moments = np.where(weights.totals[:, None] > 0, weighted_moments(block, weights), 0.0)
    given = np.repeat(weights.totals[:, None], moments.shape[2], axis=1)
    if isinstance(block, DenseDesignBlock) and block.missing_rows.size:
        columns = np.repeat(np.arange(len(block.values)), np.diff(block.missing_offsets))
        of_missing = [np.bincount(columns, mine[block.missing_rows], len(block.values)) for mine in weights.of_rows.T]
        given -= np.stack(of_missing)
        given[given < _ROUNDED * weights.totals[:, None]] = 0.0
    return np.concatenate([moments, given[None]])


def _together(mine: np.ndarray, totals: np.ndarray, ring: Ring) -> Iterator[np.ndarray]:
    for first in range(0, mine.shape[2], _COLUMNS):
        some = mine[:, :, first : first + _COLUMNS]
        everywhere = np.zeros((ring.ranks, *some.shape))
        everywhere[ring.rank] = some
        ring.all_reduce(everywhere)
        yield joined_moments(everywhere, totals)


def joined_moments(parts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Combine the moments of R ranks, (R, 4, K, w) from `own_moments`: float64 (3, K, w).

    totals: float64 (R, K), total weight of each rank's rows. The deviation of a constant column is exactly 0.
    """
    means, norms, deviations, given = np.moveaxis(parts, 1, 0)
    totals, some = totals[:, :, None], given > 0
    weight = given.sum(axis=0)
    mean = np.divide((given * means).sum(axis=0), weight, out=np.zeros_like(weight), where=weight > 0)
    least = np.where(some, means, np.inf).min(axis=0)
    constant = (least == np.where(some, means, -np.inf).max(axis=0)) & (deviations == 0).all(axis=0)
    mean = np.where(constant, least, mean)
    squares = (norms**2 - (totals - given) * means**2).sum(axis=0) + (totals.sum(axis=0) - weight) * mean**2
    spread = (totals * deviations**2 + given * (means - mean) ** 2).sum(axis=0)
    return np.stack([mean, np.sqrt(np.maximum(squares, 0.0)), np.sqrt(spread / totals.sum(axis=0))])


def needed_moments(
    features: FeatureColumns, weights: np.ndarray | None, *, intercept: bool, standardize: bool
) -> ColumnMoments:
    """Return the moments that a regression with these options needs, for `SparseRegression`.

    Means and deviations are 0 if the regression does not centre columns.
    """
    norms = features.squares(features.every, weights)
    features.pool.share(norms.size, lambda begin, end: np.sqrt(norms[begin:end], out=norms[begin:end]))
    if not (intercept or standardize or features.offsets is not None):
        zeros = np.zeros(features.count)
        return ColumnMoments(zeros, norms, zeros)
    vector = np.ones(features.rows) if weights is None else weights
    total = float(vector.sum())
    means = features.correlations(features.every, vector) / total
    deviations = np.sqrt(np.maximum(norms**2 / total - means**2, 0.0))
    for some in few_columns(np.flatnonzero(deviations < np.abs(means) / _FAR), features.rows):
        means[some], deviations[some] = _in_two_passes(dense_columns(features.gather(some), features.rows), weights)
    return ColumnMoments(means, norms, deviations)


def _in_two_passes(columns: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and deviations of columns, float64 (m, n); the deviation is 0 if all rows with positive weight
    have equal values.
    """
    if weights is not None:
        columns, weights = columns[:, weights > 0], weights[weights > 0]
    first = columns[:, :1]
    away = columns - first
    means = np.average(away, axis=1, weights=weights)
    squares = np.average((away - means[:, None]) ** 2, axis=1, weights=weights)
    means, deviations = first[:, 0] + means, np.sqrt(squares)
    return means, np.where(deviations > _ROUNDING * np.abs(means), deviations, 0.0)


def few_columns(columns: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """Yield the columns, int64 (m,), a few at a time."""
    each = max(_CELLS // rows, 1)
    return (columns[begin : begin + each] for begin in range(0, columns.size, each))


def column_shifts(offsets: np.ndarray | None, moments: ColumnMoments, *, intercept: bool) -> np.ndarray | None:
    """Return the shift to apply to each column, float64 (p,), before solving; None if no shift is needed.

    offsets: float64 (p,), stored offsets, or None. An intercept absorbs constant shifts.
    """
    if not intercept:
        return offsets
    far = (np.abs(moments.means) > _FAR * moments.deviations) & (moments.deviations > 0)
    return np.where(far, -moments.means, 0.0) if far.any() else None
