"""Compute the scores of all items for many users, for a tile of users and items at a time.

The score of an item is the inner product of its factors and the user's, plus its bias. Scores are computed for tiles
of users and items, each as a sum in the order of the factors, so that a score depends on nothing but its user and item.
BLAS is not used: several threads that call it at once wait for each other's threads, which took five times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from blocks.control_groups import core_count
from samplers.factorization.simd import LANE, fused, load, spread, store

USERS = 128  # users in a tile
ITEMS = 1 << 13  # items in a tile, whose scores take 4 MB
_TOGETHER = 4  # users whose scores are computed together
_WIDTH = 2 * LANE  # items whose scores are computed together


class ItemTiles:
    """Items whose scores are computed, in tiles.

    factors: float32 (I, R).
    biases: float32 (I,).
    items: int64 (C,), indices of the items to compute scores for.
    scale: float32 (I,), multiplies the factors of each item; None for 1.
    """

    def __init__(
        self, factors: np.ndarray, biases: np.ndarray, items: np.ndarray, scale: np.ndarray | None = None
    ) -> None:
        self._factors, self._biases, self._items, self._scale = factors, biases, items, scale

    def score(self, factors: np.ndarray, take: Callable[[slice, int, np.ndarray, int], None]) -> None:
        """Call a function with the scores of each tile, in several threads.

        factors: float (n, R), factors of the users.
        take: called with the users of the tile, the position of its first item among `items`, the scores, float32 (at
            least as many users, at least as many items), and the number of items. The tiles of a user follow one
            another.
        """
        size = len(factors)
        users = np.zeros((_padded(size, _TOGETHER), factors.shape[1] + 1), np.float32)
        users[:size, :-1], users[:size, -1] = factors, 1.0
        with ThreadPoolExecutor(core_count()) as pool:
            for first in range(0, self._items.size, ITEMS):
                tile, count = self._tile(first), min(ITEMS, self._items.size - first)

                def score(begin: int, tile: np.ndarray = tile, first: int = first, count: int = count) -> None:
                    batch = slice(begin, min(begin + USERS, size))
                    scores = np.empty((_padded(batch.stop - begin, _TOGETHER), _padded(count, _WIDTH)), np.float32)
                    multiply(users[begin : begin + USERS].reshape(-1), tile, scores)
                    take(batch, first, scores, count)

                list(pool.map(score, range(0, size, USERS)))

    def _tile(self, first: int) -> np.ndarray:
        """Return the factors of a tile of items, followed by their biases, as `multiply` takes them."""
        tile_items = self._items[first : first + ITEMS]
        rows = np.zeros((_padded(tile_items.size, _WIDTH), self._factors.shape[1] + 1), np.float32)
        rows[: tile_items.size, :-1], rows[: tile_items.size, -1] = self._factors[tile_items], self._biases[tile_items]
        if self._scale is not None:
            rows[: tile_items.size, :-1] *= self._scale[tile_items, None]
        return rows.reshape(-1, _WIDTH, rows.shape[1]).transpose(0, 2, 1).reshape(-1)


def _padded(size: int, step: int) -> int:
    return -(-size // step) * step


@unmanaged_kernel
def multiply(users, tile, scores):
    """Set `scores`, float32 (n, C), to the inner products of users and items, summed in the order of the factors.

    users: float32 (n*R,).
    tile: float32 (C*R,), for each `_WIDTH` items in turn their first factors, then their second ones and so on. n is a
        multiple of `_TOGETHER`, and C of `_WIDTH`.
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
