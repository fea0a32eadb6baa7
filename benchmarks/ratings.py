"""Ratings for benchmarks: simulated to resemble ratings of films, and split into three parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars

_RANK = 12  # of what is planted
_PARTS = {"train": 0.8, "validation": 0.1, "test": 0.1}
_CHUNK = 1 << 20


class RatingArrays(NamedTuple):
    """Ratings as arrays.

    users, items: uint32 (N,).
    values: float32 (N,).
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray


class UserHabits:
    """Parameters of simulated users and items.

    The number of ratings per user is log-normal, and the popularity of items follows a truncated power law (as in
    MovieLens). A rating is a mean plus two biases, a product of planted factors, and noise, rounded to half stars from
    0.5 to 5.
    """

    def __init__(self, users: int, items: int, seed: int) -> None:
        self.random = random = np.random.default_rng(seed)
        activity = random.lognormal(0.0, 1.2, users)
        popularity = (np.arange(items) + 20.0) ** -1.1
        self._users, self._items = (
            random.permutation(weights / weights.sum()).cumsum() for weights in (activity, popularity)
        )
        self._biases = [
            random.normal(0, spread, side).astype(np.float32) for side, spread in ((users, 0.4), (items, 0.45))
        ]
        self._factors = [random.normal(0, 0.4, (side, _RANK)).astype(np.float32) for side in (users, items)]

    def pairs(self, count: int) -> np.ndarray:
        """Return random pairs as user * items + item, int64 (count,), with repetitions."""
        users, items = (
            np.minimum(np.searchsorted(cumulated, self.random.random(count)), cumulated.size - 1)
            for cumulated in (self._users, self._items)
        )
        return users * self._items.size + items

    def rate(self, pairs: np.ndarray) -> RatingArrays:
        """Return the ratings of some pairs."""
        sides = pairs // self._items.size, pairs % self._items.size
        values = self.random.normal(3.5, 0.75, pairs.size).astype(np.float32)
        for biases, numbers in zip(self._biases, sides, strict=True):
            values += biases[numbers]
        for first in range(0, pairs.size, _CHUNK):
            some = slice(first, first + _CHUNK)
            factors = (side[numbers[some]] for side, numbers in zip(self._factors, sides, strict=True))
            values[some] += np.einsum("ij,ij->i", *factors)
        users, items = (numbers.astype(np.uint32) for numbers in sides)
        return RatingArrays(users, items, np.clip(np.round(2 * values) / 2, 0.5, 5).astype(np.float32))


def draw(users: int, items: int, ratings: int, seed: int = 0) -> RatingArrays:
    """Draw ratings by `UserHabits`, with each pair of user and item at most once."""
    habits, pairs = UserHabits(users, items, seed), np.empty(0, np.int64)
    while pairs.size < ratings:
        pairs = np.unique(np.concatenate([pairs, habits.pairs(3 * (ratings - pairs.size) + 1000)]))
    return habits.rate(habits.random.permutation(pairs)[:ratings])


def stream(users: int, items: int, ratings: int, seed: int = 0) -> Iterator[RatingArrays]:
    """Yield ratings by `UserHabits`, some millions at a time; pairs may be repeated."""
    habits = UserHabits(users, items, seed)
    for first in range(0, ratings, 4 * _CHUNK):
        yield habits.rate(habits.pairs(min(4 * _CHUNK, ratings - first)))


def cut(ratings: RatingArrays, seed: int = 0) -> dict[str, RatingArrays]:
    """Split ratings into parts for training, validation and testing; the latter two only have users and items of the
    training part.
    """
    order = np.random.default_rng(seed).permutation(ratings.users.size)
    bounds = (np.cumsum([0, *_PARTS.values()]) * order.size).astype(np.int64)
    parts = {
        name: RatingArrays(*(column[order[bounds[part] : bounds[part + 1]]] for column in ratings))
        for part, name in enumerate(_PARTS)
    }
    seen = [np.unique(column) for column in parts["train"][:2]]
    for name in ("validation", "test"):
        known = np.isin(parts[name].users, seen[0]) & np.isin(parts[name].items, seen[1])
        parts[name] = RatingArrays(*(column[known] for column in parts[name]))
    return parts


def write_tsv(some: Iterable[RatingArrays], path: Path) -> None:
    """Write lines of user, item and rating."""
    with path.open("wb") as file:
        for ratings in some:
            polars.DataFrame(ratings._asdict()).write_csv(file, include_header=False, separator="\t")


def read_tsv(path: Path) -> RatingArrays:
    """Read lines of user, item and rating; users and items are numbered from 0 in the order of their ids."""
    table = np.loadtxt(path, np.float64, usecols=(0, 1, 2))
    users, items = (np.unique(table[:, side], return_inverse=True)[1].astype(np.uint32) for side in (0, 1))
    return RatingArrays(users, items, table[:, 2].astype(np.float32))
