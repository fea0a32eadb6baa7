"""Use a trained factorization: recommend items, find similar items, and fold in new users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix, RowBlock
from samplers.factorization.model import Factorization, FactorModel, Side, row_order

_SCORES = 1 << 24  # number of scores computed at a time
_SWEEPS = 200  # maximum number of sweeps for nonnegative factors


class Users(NamedTuple):
    """Some users: names, factors float (n, R), biases float (n,), and the indices of the items that each has rated."""

    names: list[str]
    factors: np.ndarray
    biases: np.ndarray
    seen: list[np.ndarray]


class Recommendations(NamedTuple):
    """Recommended items for a user, or items similar to an item: name of the user or item, and the items with their
    scores, best first.
    """

    name: str
    items: list[str]
    scores: list[float]


def known_users(model: FactorModel, names: Sequence[str], trained_on: Matrix | None = None) -> Iterator[Users]:
    """Yield users seen in training, in batches. trained_on: training ratings, if the rated items are needed."""
    if trained_on and trained_on.identity != model.manifest["dataset"]:
        raise RequestError(
            f"--exclude-seen: {model.path} was trained on several shards, and {trained_on.path} is only one of them",
            "Leave --exclude-seen out: the other ratings are on other machines.",
        )
    order = row_order(trained_on) if trained_on else None
    for some in _batches(names, _SCORES // len(model.columns)):
        places = [model.rows.places[name] for name in some]
        seen = [_row(trained_on, int(order[place]))[0] for place in places] if trained_on and order is not None else []
        yield Users(some, model.rows.factors[places], model.rows.biases[places], seen)


def later_users(model: FactorModel, ratings: Matrix, names: Sequence[str]) -> Iterator[Users]:
    """Yield users of other ratings, in batches, with factors fitted to these ratings.

    ratings: ratings of the model's items, from `ooc ingest ratings --items-from`.
    """
    if ratings.column_names() != model.columns.names:
        raise RequestError(
            f"{ratings.path} and {model.path} have different items",
            "Ingest the ratings again with --items-from and the training ratings.",
        )
    order = row_order(ratings)
    lines = {name: line for line, name in enumerate(ratings.row_names())}
    for some in _batches(names, _SCORES // len(model.columns)):
        rows = [_row(ratings, int(order[lines[name]])) for name in some]
        solved = np.array([fold_in(model, *row) for row in rows])
        yield Users(some, solved[:, 1:], solved[:, 0], [seen for seen, _ in rows])


def _batches(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(names), max(size, 1)):
        yield list(names[first : first + max(size, 1)])


def _row(matrix: Matrix, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the items of a row, as line numbers in columns.txt, and the row's values; empty for index -1."""
    if place < 0:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    number = int(np.searchsorted(matrix.index.block_bounds, place, side="right")) - 1
    block = _block(matrix, number)
    row = place - int(matrix.index.block_bounds[number])
    mine = slice(block.offsets[row], block.offsets[row + 1])
    return matrix.index.column_ids[block.columns[mine]], block.values[mine]


@lru_cache(maxsize=16)
def _block(matrix: Matrix, number: int) -> RowBlock:
    return matrix.block(number)


def fold_in(model: Factorization, items: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the bias and best factors of a new user, with all items fixed: float64 (1 + R,).

    items: indices of the rated items. values: ratings or counts. The objective is that of training, see
    `samplers.factorization.program` and `samplers.factorization.als`.
    """
    solver, alpha, unit = model.solver, model.solver["alpha"], model.solver.get("unit", 1.0)
    factors = model.columns.factors[items].astype(np.float64) / unit
    weights = alpha * values if alpha else np.ones(values.size)
    target = 1 + weights if alpha else values - model.mean - model.columns.biases[items]
    features = np.column_stack([np.ones(values.size), factors])
    penalty = solver["regularization"] * (max(values.size, 1) if solver["per_entry"] else 1)
    # so that biases and factors are treated alike
    penalties = np.append(penalty, np.full(model.rank, penalty / unit**2))
    system = (features.T * weights) @ features + np.diag(penalties)
    wanted = features.T @ target
    if alpha:
        system[1:, 1:] += model.column_products
    solved = np.zeros(1 + model.rank)
    used = slice(0 if model.biased else 1, None)
    solved[used] = _solve(system[used, used], wanted[used], nonnegative=solver["nonnegative"])
    solved[1:] /= unit
    return solved


def _solve(system: np.ndarray, wanted: np.ndarray, *, nonnegative: bool) -> np.ndarray:
    if not nonnegative:
        return np.linalg.lstsq(system, wanted, rcond=None)[0]
    found, diagonal = np.zeros(wanted.size), np.diag(system)
    for _ in range(_SWEEPS):
        for k in np.flatnonzero(diagonal > 0):
            found[k] = max(found[k] + (wanted[k] - system[k] @ found) / diagonal[k], 0.0)
    return found


def recommend(
    model: Factorization, batches: Iterator[Users], top: int, *, exclude_seen: bool
) -> Iterator[Recommendations]:
    """Yield the items with the highest predictions for each user; items without training ratings are left out."""
    for users in batches:
        scores = (users.factors @ model.columns.factors.T).astype(np.float32)
        scores += model.columns.biases
        scores[:, model.columns.entries == 0] = -np.inf
        if exclude_seen:
            for row, seen in enumerate(users.seen):
                scores[row, seen] = -np.inf
        for name, bias, row in zip(users.names, users.biases.tolist(), scores, strict=True):
            yield _best(model.columns, name, row, top, model.mean + bias)


def similar_items(model: Factorization, names: Sequence[str], top: int) -> Iterator[Recommendations]:
    """Yield the items with the highest cosine similarity of factors to each named item."""
    factors = model.columns.factors
    lengths = np.sqrt(np.einsum("ij,ij->i", factors, factors))
    for some in _batches(names, _SCORES // len(model.columns)):
        places = np.array([model.columns.places[name] for name in some])
        scores = factors[places] @ factors.T / np.maximum(lengths * lengths[places, None], np.finfo(np.float32).tiny)
        scores[:, lengths == 0] = -np.inf
        scores[np.arange(places.size), places] = -np.inf
        for name, row in zip(some, scores, strict=True):
            yield _best(model.columns, name, row, top, 0.0)


def _best(side: Side, name: str, scores: np.ndarray, top: int, added: float) -> Recommendations:
    """Return the best items by score; ties go to the first."""
    possible = int(np.count_nonzero(scores > -np.inf))
    top = min(top, possible)
    if not top:
        return Recommendations(name, [], [])
    least = np.partition(scores, scores.size - top)[scores.size - top]
    places = np.flatnonzero(scores >= least)
    places = places[np.argsort(-scores[places], kind="stable")][:top]
    return Recommendations(name, [side.names[place] for place in places.tolist()], (scores[places] + added).tolist())
