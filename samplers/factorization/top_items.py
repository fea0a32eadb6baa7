"""Find the items with the highest scores of many users, for a tile of users and items at a time.

The score of an item is the inner product of its factors and the user's, plus its bias. Scores are computed for tiles
of users and items, each as a sum in the order of the factors, so that a score depends on nothing but its user and item.
BLAS is not used: several threads that call it at once wait for each other's threads, which took five times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from blocks.control_groups import cores
from samplers.factorization.rated_items import RatedItems
from samplers.factorization.simd import LANE, fused, load, spread, store

USERS = 128  # users in a tile
ITEMS = 1 << 13  # items in a tile, whose scores take 4 MB
_TOGETHER = 4  # users whose scores are computed together
_WIDTH = 2 * LANE  # items whose scores are computed together
_GROUP = 64  # scores that are compared together with the lowest of the best


class TopItems(NamedTuple):
    """The best T items of n users, best first.

    items: int64 (n, T), indices of items, -1 where there are no more. scores: float32 (n, T), -inf where there are no
    more.
    """

    items: np.ndarray
    scores: np.ndarray

    def lists(self) -> Iterator[list[tuple[int, float]]]:
        """Yield the items and scores of each user."""
        for items, scores in zip(self.items, self.scores, strict=True):
            there = items >= 0
            yield list(zip(items[there].tolist(), scores[there].tolist(), strict=True))


class Candidates:
    """Items that can be recommended.

    factors: float32 (C, R) of all items. biases: float32 (C,). items: int64, indices of the candidates, ascending.
    scale: float32 (C,), multiplies the factors of each item; None for 1.
    """

    def __init__(
        self, factors: np.ndarray, biases: np.ndarray, items: np.ndarray, scale: np.ndarray | None = None
    ) -> None:
        self._factors, self._biases, self.items, self._scale = factors, biases, items, scale
        self._place = np.full(biases.size, -1, np.int64)
        self._place[items] = np.arange(items.size)

    def best(self, factors: np.ndarray, top: int, seen: RatedItems | None = None) -> TopItems:
        """Return the `top` candidates with the highest scores of users; of equal scores, the first item's is higher.

        factors: float (n, R), factors of the users. seen: items of each user to leave out.
        """
        size = len(factors)
        users = np.zeros((_padded(size, _TOGETHER), factors.shape[1] + 1), np.float32)
        users[:size, :-1], users[:size, -1] = factors, 1.0
        found = TopItems(np.full((size, top), -1), np.full((size, top), -np.inf, np.float32))
        left_out = (np.zeros(size + 1, np.int64), np.empty(0, np.int64))
        if seen is not None:
            left_out = (np.asarray(seen.offsets), self._place[seen.items])
        with ThreadPoolExecutor(cores()) as pool:
            for first in range(0, self.items.size, ITEMS):
                tile = self._tile(first)
                count = min(ITEMS, self.items.size - first)

                def keep(begin: int, tile: np.ndarray = tile, first: int = first, count: int = count) -> None:
                    mine = slice(begin, min(begin + USERS, size))
                    scores = np.empty((_padded(mine.stop - begin, _TOGETHER), _padded(count, _WIDTH)), np.float32)
                    multiply(users[begin : begin + USERS].reshape(-1), tile, scores)
                    starts = left_out[0][mine.start : mine.stop + 1]
                    keep_best(scores[:, :count], first, starts, left_out[1], found.items[mine], found.scores[mine])

                list(pool.map(keep, range(0, size, USERS)))
        order = np.lexsort((found.items, -found.scores))
        items, scores = (np.take_along_axis(array, order, axis=1) for array in found)
        return TopItems(np.where(items >= 0, self.items[items], -1), scores)

    def _tile(self, first: int) -> np.ndarray:
        """Return the factors of a tile of candidates, followed by their biases, as `multiply` takes them."""
        mine = self.items[first : first + ITEMS]
        rows = np.zeros((_padded(mine.size, _WIDTH), self._factors.shape[1] + 1), np.float32)
        rows[: mine.size, :-1], rows[: mine.size, -1] = self._factors[mine], self._biases[mine]
        if self._scale is not None:
            rows[: mine.size, :-1] *= self._scale[mine, None]
        return rows.reshape(-1, _WIDTH, rows.shape[1]).transpose(0, 2, 1).reshape(-1)


def _padded(size: int, step: int) -> int:
    return -(-size // step) * step


@unmanaged_kernel
def multiply(users, tile, scores):
    """Set `scores`, float32 (n, C), to the inner products of users and items, summed in the order of the factors.

    users: float32 (n*R,). tile: float32 (C*R,), for each `_WIDTH` items in turn their first factors, then their second
    ones and so on. n is a multiple of `_TOGETHER`, and C of `_WIDTH`.
    """
    rank, items = users.size // scores.shape[0], scores.shape[1]
    for first in range(0, items, _WIDTH):
        for user in range(0, scores.shape[0], _TOGETHER):
            a0 = a1 = b0 = b1 = c0 = c1 = d0 = d1 = spread(np.float32(0.0))
            at, row = first * rank, user * rank
            for k in range(rank):
                one, other = load(tile, at), load(tile, at + LANE)
                a, b = spread(users[row + k]), spread(users[row + rank + k])
                c, d = spread(users[row + 2 * rank + k]), spread(users[row + 3 * rank + k])
                a0, a1 = fused(a, one, a0), fused(a, other, a1)
                b0, b1 = fused(b, one, b0), fused(b, other, b1)
                c0, c1 = fused(c, one, c0), fused(c, other, c1)
                d0, d1 = fused(d, one, d0), fused(d, other, d1)
                at += _WIDTH
            store_both(scores[user], first, a0, a1)
            store_both(scores[user + 1], first, b0, b1)
            store_both(scores[user + 2], first, c0, c1)
            store_both(scores[user + 3], first, d0, d1)


@inlined
def store_both(row, first, one, other):
    """Write two lanes to a row, float32 (C,), from `first` on."""
    store(row, first, one)
    store(row, first + LANE, other)


@unmanaged_kernel
def keep_best(scores, first, offsets, seen, items, best):
    """Update the best items of some users by the scores of a tile of items.

    scores: float32 (., C), of items from `first` on; changed to -inf for seen items. offsets: int64 (n+1,), where each
    user's items in seen, int64 (N,), start. items: int64 (n, T) and best: float32 (n, T), a heap for each user, whose
    first item is the worst; updated.
    """
    for user in range(items.shape[0]):
        row, heap, kept = scores[user], best[user], items[user]
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
