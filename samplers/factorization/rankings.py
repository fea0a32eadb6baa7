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

_SCORES = 1 << 21  # number of scores computed at a time


def summed_percentile_ranks(
    held_out: Matrix, rows: np.ndarray, row_places: np.ndarray, columns: np.ndarray, column_places: np.ndarray
) -> tuple[float, float]:
    """Return the sum of the percentile ranks of all held-out items times their counts, and the sum of the counts.

    A user without factors counts as 0.5. rows: float32 (D, R), columns: float32 (I, R): factors. row_places: int64,
    index of each user's factors by line, or -1. column_places: index of each item's factors, by rank.
    """
    total = weights = 0.0
    for number in range(held_out.block_count):
        block = held_out.block(number)
        places = row_places[block.rows]
        for some in _batches(places.size, len(columns)):
            offsets = block.offsets[some.start : some.stop + 1]
            entries = slice(int(offsets[0]), int(offsets[-1]))
            factors = np.where(places[some, None] >= 0, rows[places[some]], np.float32(0.0))
            ranks = np.empty(entries.stop - entries.start)
            rank_items(factors @ columns.T, offsets - offsets[0], column_places[block.columns[entries]], ranks)
            counts = block.values[entries].astype(np.float64)
            total += float(np.sum(ranks * counts))
            weights += float(np.sum(counts))
    return total, weights


def _batches(rows: int, columns: int) -> Iterator[slice]:
    step = max(_SCORES // columns, 1)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


@unmanaged_kernel
def rank_items(scores, offsets, items, ranks):
    """Set `ranks`, float64 (N,), to the fraction of other items with higher scores; ties count half.

    scores: float32 (n, I). offsets: int64 (n+1,), start of each user's items in items int64 (N,).
    """
    for user in range(scores.shape[0]):
        row = scores[user]
        for j in range(offsets[user], offsets[user + 1]):
            mark, above, equal = row[items[j]], 0, 0
            for i in range(row.size):
                above += row[i] > mark
                equal += row[i] == mark
            ranks[j] = (above + 0.5 * (equal - 1)) / max(row.size - 1, 1)
