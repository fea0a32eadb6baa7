"""Mean, norm and standard deviation of columns split by rows over the ranks of a ring, with sample weights."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from blocks.design.design import DenseDesignBlock, SparseDesignBlock
from blocks.design.row_shards import DesignRowShard, row_bounds
from blocks.design.weighted_moments import RowWeightings, row_weightings, weighted_moments
from ooc.ring.ring import Ring
from samplers.regression.data.design_features import known_moments
from samplers.regression.solver.sparse_regression import ColumnMoments

_COLUMNS = 1 << 16  # number of columns whose moments the ranks exchange at a time

_ROUNDED = 1e-12  # relative to the total weight of all rows


def ring_moments(
    shard: DesignRowShard, weights: list[np.ndarray | None], ring: Ring, threads: int
) -> list[ColumnMoments]:
    """Return the moments of the columns of the whole design, see
    `samplers.regression.data.design_features.design_moments`.

    weights: sample weights of the whole design, equal on all ranks.
    """
    known = known_moments(shard)
    of_rows = [some for some in weights if some is not None]
    if not of_rows:
        return [known] * len(weights)
    several = np.stack(of_rows, axis=1)
    totals = np.add.reduceat(several, row_bounds(shard.rows, shard.shards)[:-1])
    own = row_weightings(several[shard.own])
    with ThreadPoolExecutor(threads) as pool:
        blocks = pool.map(lambda number: own_moments(shard.block(number), own), range(shard.block_count))
        found = np.concatenate([one for block in blocks for one in _together(block, totals, ring)], axis=2)
    others = iter(range(len(of_rows)))
    return [known if some is None else ColumnMoments(*found[:, next(others)]) for some in weights]


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
