"""Find the items with the highest scores of many users, for a tile of users and items at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from samplers.factorization.rated_items import RatedItems
from samplers.factorization.score_tiles import ItemTiles

_GROUP = 64  # number of scores that are compared at once with the lowest of a user's best scores


class TopItems(NamedTuple):
    """The best T items of n users, best first.

    items: int64 (n, T), indices of items, -1 where there are no more.
    scores: float32 (n, T), -inf where there are no more.
    """

    items: np.ndarray
    scores: np.ndarray

    def lists(self) -> Iterator[list[tuple[int, float]]]:
        """Yield the items and scores of each user."""
        for items, scores in zip(self.items, self.scores, strict=True):
            there = items >= 0
            yield list(zip(items[there].tolist(), scores[there].tolist(), strict=True))


class CandidateItems:
    """Items that can be recommended.

    factors: float32 (I, R) of all items.
    biases: float32 (I,).
    items: int64 (C,), indices of the candidates, ascending.
    scale: float32 (I,), multiplies the factors of each item; None for 1.
    """

    def __init__(
        self, factors: np.ndarray, biases: np.ndarray, items: np.ndarray, scale: np.ndarray | None = None
    ) -> None:
        self._tiles, self.items = ItemTiles(factors, biases, items, scale), items
        self._place = np.full(biases.size, -1, np.int64)
        self._place[items] = np.arange(items.size)

    def best(self, factors: np.ndarray, top: int, seen: RatedItems | None = None) -> TopItems:
        """Return the `top` candidates with the highest scores of users; of equal scores, the first item's is higher.

        factors: float (n, R), factors of the users.
        seen: items of each user to leave out.
        """
        size = len(factors)
        found = TopItems(np.full((size, top), -1), np.full((size, top), -np.inf, np.float32))
        starts, left_out = np.zeros(size + 1, np.int64), np.empty(0, np.int64)
        if seen is not None:
            starts, left_out = np.asarray(seen.offsets), self._place[seen.items]

        def keep(batch: slice, first: int, scores: np.ndarray, count: int) -> None:
            batch_starts = starts[batch.start : batch.stop + 1]
            keep_best(scores, first, count, batch_starts, left_out, found.items[batch], found.scores[batch])

        self._tiles.score(factors, keep)
        order = np.lexsort((found.items, -found.scores))
        items, scores = (np.take_along_axis(array, order, axis=1) for array in found)
        return TopItems(np.where(items >= 0, self.items[items], -1), scores)


@unmanaged_kernel
def keep_best(scores, first, count, offsets, seen, items, best):
    """Update the best items of some users by the scores of a tile of items.

    scores: float32 (., C), of `count` items from `first` on; changed to -inf for seen items.
    offsets: int64 (n+1,), where each user's items in seen, int64 (N,), start.
    items: int64 (n, T) and best: float32 (n, T), a heap for each user, whose first item is the worst; updated.
    """
    for user in range(items.shape[0]):
        row, heap, kept = scores[user, :count], best[user], items[user]
        for j in range(offsets[user], offsets[user + 1]):
            at = seen[j] - first
            if 0 <= at < row.size:
                row[at] = -np.inf
        for begin in range(0, row.size, _GROUP):
            group, higher, least = row[begin : begin + _GROUP], np.int32(0), heap[0]
            for i in range(group.size):
                higher += np.int32(group[i] > least)
            if higher:
                for i in range(group.size):
                    if group[i] > heap[0]:
                        replace_worst(heap, kept, group[i], first + begin + i)


@inlined
def replace_worst(heap, kept, score, item):
    """Replace the worst item of a heap of scores, float32 (T,), and items, int64 (T,)."""
    at = 0
    while 2 * at + 1 < heap.size:
        child = 2 * at + 1
        if child + 1 < heap.size and is_worse(heap[child + 1], kept[child + 1], heap[child], kept[child]):
            child += 1
        if not is_worse(heap[child], kept[child], score, item):
            break
        heap[at], kept[at] = heap[child], kept[child]
        at = child
    heap[at], kept[at] = score, item


@inlined
def is_worse(score, item, other, other_item):
    """Return whether an item has a lower score than another one, or the same and a higher index."""
    return score < other or (score == other and item > other_item)
