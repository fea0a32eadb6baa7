"""Read the ratings of chosen users from a matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.ratings.matrix import Matrix


class RatedItems(NamedTuple):
    """The N ratings of n users.

    offsets: int64 (n+1,), start of each user's ratings.
    items: integers (N,), indices of items.
    values: float (N,).
    """

    offsets: np.ndarray
    items: np.ndarray
    values: np.ndarray

    @property
    def users(self) -> np.ndarray:
        """Return the user of each rating, int64 (N,), from 0 to n - 1."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def of(self, users: np.ndarray) -> RatedItems:
        """Return the ratings of some users, int64."""
        counts = np.diff(self.offsets)[users]
        mine = _ranges(self.offsets[users], counts)
        return RatedItems(offsets_of(counts), self.items[mine], self.values[mine])

    def has(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Return whether each user has rated the item: bool, in the common shape of users and items.

        users, items: integers; there is no rating of a negative item.
        """
        span = 1 + int(max(self.items.max(initial=0), items.max(initial=0)))
        rated = np.append(np.sort(self.users * span + self.items), -1)  # so that there is one after the last
        wanted = users * span + items
        return (rated[np.searchsorted(rated[:-1], wanted)] == wanted) & (items >= 0)

    def where(self, kept: np.ndarray) -> RatedItems:
        """Return the ratings where `kept`, bool (N,), is true."""
        counts = np.bincount(self.users[kept], minlength=self.offsets.size - 1)
        return RatedItems(offsets_of(counts), self.items[kept], self.values[kept])


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return where each of several groups of these sizes starts, and where the last one ends: int64 (n+1,)."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def group_by_user(count: int, users: np.ndarray, items: np.ndarray, values: np.ndarray) -> RatedItems:
    """Return ratings, given in any order, of `count` users; of several ratings of an item by a user, the last counts.

    users, items: integers (N,).
    values: float (N,).
    """
    order = np.lexsort((items, users))
    users, items, values = users[order], items[order], values[order]
    last = np.append((np.diff(users) != 0) | (np.diff(items) != 0), True)[: users.size]
    return RatedItems(offsets_of(np.bincount(users[last], minlength=count)), items[last], values[last])


def read_rated(matrix: Matrix, places: np.ndarray) -> RatedItems:
    """Return the ratings of users, from one block after the other.

    places: int64 (n,), positions of rows in the matrix, or -1 for users without ratings. Items are lines in
        columns.txt.
    """
    blocks = np.searchsorted(matrix.index.block_bounds, places, side="right") - 1
    counts, read = np.zeros(places.size, np.int64), []
    order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
    for number in np.unique(blocks[places >= 0]).tolist():
        block, mine = matrix.block(number), order[blocks[order] == number]
        rows = places[mine] - int(matrix.index.block_bounds[number])
        counts[mine] = block.offsets[rows + 1] - block.offsets[rows]
        entries = _ranges(block.offsets[rows], counts[mine])
        read.append((block.columns[entries], block.values[entries]))
    if not read:
        return RatedItems(offsets_of(counts), np.empty(0, np.uint32), np.empty(0, np.float32))
    columns, values = map(np.concatenate, zip(*read, strict=True))
    by_place = RatedItems(offsets_of(counts[order]), matrix.index.column_ids[columns], values)
    missing = np.flatnonzero(places < 0)  # have no ratings, and come last
    by_place = by_place._replace(offsets=np.append(by_place.offsets, np.full(missing.size, columns.size)))
    position = np.empty(places.size, np.int64)
    position[np.append(order, missing)] = np.arange(places.size)
    return by_place.of(position)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers of several ranges, one range after the other: int64 (sum of counts,)."""
    return np.repeat(starts - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
