"""Ratings for benchmarks: drawn with the popularity and the habits of film ratings, and cut into three parts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

_RANK = 12  # of what is planted
_PARTS = {"train": 0.8, "validation": 0.1, "test": 0.1}
_CHUNK = 1 << 20


class Ratings(NamedTuple):
    """users, items: uint32 (N,). values: float32 (N,)."""

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray


def draw(users: int, items: int, ratings: int, seed: int = 0) -> Ratings:
    """Ratings from half a star to five, each pair of user and item once.

    How many a user gives is log-normal, how popular an item is falls off as a power law cut short (as in MovieLens); a
    rating is a mean, two biases, a product of planted factors, and noise, to the next half star.
    """
    random = np.random.default_rng(seed)
    activity = random.lognormal(0.0, 1.2, users)
    popularity = (np.arange(items) + 20.0) ** -1.1
    who, what = (random.permutation(weights / weights.sum()).cumsum() for weights in (activity, popularity))
    pairs = np.empty(0, np.int64)
    while pairs.size < ratings:
        more = 3 * (ratings - pairs.size) + 1000
        drawn = np.searchsorted(who, random.random(more)) * items + np.searchsorted(what, random.random(more))
        pairs = np.unique(np.concatenate([pairs, np.minimum(drawn, users * items - 1)]))
    pairs = random.permutation(pairs)[:ratings]
    chosen = (pairs // items).astype(np.uint32), (pairs % items).astype(np.uint32)
    values = random.normal(3.5, 0.75, ratings).astype(np.float32)
    for side, numbers, spread in zip((users, items), chosen, (0.4, 0.45), strict=True):
        values += random.normal(0, spread, side).astype(np.float32)[numbers]
    tastes, features = (random.normal(0, 0.4, (side, _RANK)).astype(np.float32) for side in (users, items))
    for first in range(0, ratings, _CHUNK):
        some = slice(first, first + _CHUNK)
        values[some] += np.einsum("ij,ij->i", tastes[chosen[0][some]], features[chosen[1][some]])
    return Ratings(*chosen, np.clip(np.round(2 * values) / 2, 0.5, 5).astype(np.float32))


def cut(ratings: Ratings, seed: int = 0) -> dict[str, Ratings]:
    """Parts to train on, to choose settings by, and to test on; in the latter users and items that are trained on."""
    order = np.random.default_rng(seed).permutation(ratings.users.size)
    bounds = (np.cumsum([0, *_PARTS.values()]) * order.size).astype(np.int64)
    parts = {
        name: Ratings(*(column[order[bounds[part] : bounds[part + 1]]] for column in ratings))
        for part, name in enumerate(_PARTS)
    }
    seen = [np.unique(column) for column in parts["train"][:2]]
    for name in ("validation", "test"):
        known = np.isin(parts[name].users, seen[0]) & np.isin(parts[name].items, seen[1])
        parts[name] = Ratings(*(column[known] for column in parts[name]))
    return parts


def write_tsv(ratings: Ratings, path: Path) -> None:
    """Lines of user, item and rating."""
    with path.open("w", encoding="ascii") as file:
        for first in range(0, ratings.users.size, _CHUNK):
            columns = (column[first : first + _CHUNK].tolist() for column in ratings)
            file.writelines(f"{user}\t{item}\t{value:g}\n" for user, item, value in zip(*columns, strict=True))


def read_tsv(path: Path) -> Ratings:
    """Ratings from lines of user, item and rating, numbered from 0 in the order of the numbers they have there."""
    table = np.loadtxt(path, np.float64, usecols=(0, 1, 2))
    users, items = (np.unique(table[:, side], return_inverse=True)[1].astype(np.uint32) for side in (0, 1))
    return Ratings(users, items, table[:, 2].astype(np.float32))
