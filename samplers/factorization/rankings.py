"""Rank held-out events by a factorization of implicit feedback.

The expected percentile rank (Hu, Koren and Volinsky, ICDM 2008, section 5) is the position of each held-out item among
all items by its user's scores, from 0 for the first to 1 for the last, averaged with the counts as weights. A random
ranking gives 0.5; lower is better.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.ratings.matrix import Matrix
from samplers.factorization.score_tiles import ItemTiles
from samplers.factorization.simd import fused, replaced, spread, total

_NUMBERS = 1 << 22  # number of factors of users that are in memory at a time


def summed_percentile_ranks(
    held_out: Matrix, rows: np.ndarray, row_places: np.ndarray, columns: np.ndarray, column_places: np.ndarray
) -> tuple[float, float]:
    """Return the sum of the percentile ranks of all held-out items times their counts, and the sum of the counts.

    A user without factors counts as 0.5.

    rows: float32 (D, R), columns: float32 (I, R): factors.
    row_places: int64, index of each user's factors by line, or -1.
    column_places: index of each item's factors, by rank.
    """
    ranked = weights = 0.0
    tiles = ItemTiles(columns, np.zeros(len(columns), np.float32), np.arange(len(columns)))
    for number in range(held_out.block_count):
        block = held_out.block(number)
        places = row_places[block.rows]
        for some in _batches(places.size, columns.shape[1]):
            offsets = block.offsets[some.start : some.stop + 1]
            entries = slice(int(offsets[0]), int(offsets[-1]))
            factors = np.where(places[some, None] >= 0, rows[places[some]], np.float32(0.0))
            marks = np.empty(entries.stop - entries.start, np.float32)
            score_items(factors, columns, offsets - offsets[0], column_places[block.columns[entries]], marks)
            ranks = _ranks(tiles, factors, offsets - offsets[0], marks) / max(2 * (len(columns) - 1), 1)
            counts = block.values[entries].astype(np.float64)
            ranked += float(np.sum(ranks * counts))
            weights += float(np.sum(counts))
    return ranked, weights


def _batches(rows: int, rank: int) -> Iterator[slice]:
    step = max(_NUMBERS // rank, 1)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def _ranks(tiles: ItemTiles, factors: np.ndarray, offsets: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Return twice the number of other items with higher scores, plus the number of those with equal ones: int64 (N,).

    factors: float32 (n, R), of users.
    offsets: int64 (n+1,), start of each user's items in marks, float32 (N,), scores.
    """
    ranks = np.full(marks.size, -1)  # each item's own score counts as one equal score: subtracted here

    def add(batch: slice, _: int, scores: np.ndarray, count: int) -> None:
        count_higher(scores, count, offsets[batch.start : batch.stop + 1], marks, ranks)

    tiles.score(factors, add)
    return ranks


@unmanaged_kernel
def score_items(users, items, offsets, wanted, scores):
    """Set `scores`, float32 (N,), to the scores of some items, to the last bit as `ItemTiles` computes them.

    users: float32 (n, R).
    items: float32 (I, R).
    offsets: int64 (n+1,), start of each user's items in wanted (N,).
    """
    zero = spread(np.float32(0.0))
    for user in range(users.shape[0]):
        for j in range(offsets[user], offsets[user + 1]):
            score = zero  # one SIMD vector: the score is in its first lane, the other lanes are 0
            for k in range(users.shape[1]):
                score = fused(spread(users[user, k]), replaced(zero, 0, items[wanted[j], k]), score)
            scores[j] = total(score)


@unmanaged_kernel
def count_higher(scores, count, offsets, marks, ranks):
    """Add 2 to `ranks`, int64 (N,), for each score above a mark, and 1 for each equal one.

    scores: float32 (., C), of `count` items.
    offsets: int64 (n+1,), start of each user's marks in marks, float32 (N,).
    """
    for user in range(offsets.size - 1):
        row = scores[user, :count]
        for j in range(offsets[user], offsets[user + 1]):
            mark, higher, equal = marks[j], np.int32(0), np.int32(0)
            for i in range(row.size):
                higher += np.int32(row[i] > mark)
                equal += np.int32(row[i] == mark)
            ranks[j] += 2 * higher + equal
