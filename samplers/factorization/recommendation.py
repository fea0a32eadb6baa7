"""Use a trained factorization: recommend items, find similar items, and fold in new users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.number_spool import NumberSpool
from blocks.ratings.matrix import Matrix
from samplers.external_sort import ReorderedRows
from samplers.factorization.model import Factorization, FactorModel, row_order
from samplers.factorization.new_ratings import require_counts
from samplers.factorization.rated_items import RatedItems, read_rated
from samplers.factorization.top_items import CandidateItems, TopItems

_NUMBERS = 1 << 22  # factors, ratings or recommended items that are held at a time
_SWEEPS = 200  # maximum number of sweeps for nonnegative factors
_LEAST_PENALTY = 1e-10  # relative to the trace, for a direct solution, which at rank 64 takes a 16th of the time


class UserBatch(NamedTuple):
    """Some users.

    numbers: int64 (n,), position of each user among those that were asked for.
    factors: float (n, R).
    biases: float (n,).
    seen: the items that each has rated, None if not needed.
    """

    numbers: np.ndarray
    factors: np.ndarray
    biases: np.ndarray
    seen: RatedItems | None


def known_users(
    model: Factorization, users: np.ndarray, top: int, trained_on: Matrix | None = None
) -> Iterator[UserBatch]:
    """Yield training users in batches, in the order in which the training ratings are stored.

    users: int64 (n,), indices of their names.
    top: number of items that each user gets.
    trained_on: training ratings, if the rated items are needed.
    """
    places = row_order(trained_on)[users] if trained_on else users
    order = np.argsort(places, kind="stable")
    for some in _batches(order, model, top, trained_on):
        seen = read_rated(trained_on, places[some]) if trained_on else None
        lines = users[some]
        yield UserBatch(some, model.rows.factors[lines], model.rows.biases[lines], seen)


def require_trained_on(model: FactorModel, ratings: Matrix) -> None:
    """Raise RequestError unless a dataset has the training ratings, and all of them."""
    if ratings.identity != model.manifest["dataset"]:
        raise RequestError(
            f"{ratings.path} does not contain all ratings that {model.path} was trained on",
            "Set --data to the training dataset; for a run on shards, to the dataset that was split.",
        )


def later_users(model: Factorization, ratings: Matrix, users: np.ndarray, top: int) -> Iterator[UserBatch]:
    """Yield users of other ratings in batches, with factors solved for from these ratings.

    ratings: ratings of the model's items, from `ooc ingest ratings --items-from`.
    users: int64 (n,), indices of their names.
    top: see `known_users`.
    Raises RequestError if the items are others.
    """
    if ratings.column_names() != model.columns.names:
        raise RequestError(
            f"{ratings.path} and the model have different items",
            "Ingest the ratings again with --items-from and the training ratings.",
        )
    require_counts(model, ratings.low, ratings.path)
    places = row_order(ratings)[users]
    for some in _batches(np.argsort(places, kind="stable"), model, top, ratings):
        yield folded_in(model, some, read_rated(ratings, places[some]))


def memory_users(model: Factorization, rated: RatedItems, users: np.ndarray, top: int) -> Iterator[UserBatch]:
    """Yield users of ratings in memory in batches, with factors solved for from these ratings.

    users: int64 (n,), some of the users of `rated`.
    top: see `known_users`.
    """
    for some in _batches(np.arange(users.size), model, top, None):
        yield folded_in(model, some, rated.of(users[some]))


def folded_in(model: Factorization, numbers: np.ndarray, rated: RatedItems) -> UserBatch:
    """Return users with factors solved for from their ratings.

    numbers: see `UserBatch`.
    """
    solved = np.empty((numbers.size, 1 + model.rank))
    for user, (first, last) in enumerate(zip(rated.offsets[:-1], rated.offsets[1:], strict=True)):
        solved[user] = fold_in(model, rated.items[first:last], rated.values[first:last])
    return UserBatch(numbers, solved[:, 1:], solved[:, 0], rated)


def _batches(order: np.ndarray, model: Factorization, top: int, ratings: Matrix | None) -> Iterator[np.ndarray]:
    numbers = max(model.rank, top, ratings.entries // max(ratings.rows, 1) if ratings else 0, 1)
    step = max(_NUMBERS // numbers, 1)
    for first in range(0, order.size, step):
        yield order[first : first + step]


def fold_in(model: Factorization, items: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the bias and best factors of a new user, with all items fixed: float64 (1 + R,).

    items: indices of the rated items.
    values: ratings or counts. The objective is the objective of training, see `samplers.factorization.program` and
        `samplers.factorization.als`.
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
    if solver["nonnegative"]:
        solved[used] = _nonnegative(system[used, used], wanted[used])
    elif penalties.min() > _LEAST_PENALTY * np.trace(system):
        solved[used] = np.linalg.solve(system[used, used], wanted[used])
    else:  # the system may be singular
        solved[used] = np.linalg.lstsq(system[used, used], wanted[used], rcond=None)[0]
    solved[1:] /= unit
    return solved


def _nonnegative(system: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the best solution of a system of equations whose numbers are all at least 0."""
    found, diagonal = np.zeros(wanted.size), np.diag(system)
    for _ in range(_SWEEPS):
        for k in np.flatnonzero(diagonal > 0):
            found[k] = max(found[k] + (wanted[k] - system[k] @ found) / diagonal[k], 0.0)
    return found


def candidates(model: Factorization, items: np.ndarray | None = None) -> CandidateItems:
    """Return the items that can be recommended: those with training ratings.

    items: int64, indices of the items to choose from, None for all.
    """
    wanted = np.ones(len(model.columns), bool) if items is None else np.zeros(len(model.columns), bool)
    wanted[slice(None) if items is None else items] = True
    rated = np.flatnonzero(wanted & (np.asarray(model.columns.entries) > 0))
    return CandidateItems(model.columns.factors, model.columns.biases, rated)


def recommend(
    model: Factorization, batches: Iterable[UserBatch], top: int, chosen: CandidateItems, *, exclude_seen: bool
) -> Iterator[tuple[np.ndarray, TopItems]]:
    """Yield the numbers of some users, int64 (n,), and the items with the highest predictions for them; scores are
    predictions.
    """
    for users in batches:
        found = chosen.best(users.factors, top, users.seen if exclude_seen else None)
        predictions = (found.scores + (model.mean + users.biases)[:, None]).astype(np.float32)
        yield users.numbers, TopItems(found.items, predictions)


def in_order(
    found: Iterable[tuple[np.ndarray, TopItems]], count: int, top: int, scratch: Path
) -> Iterator[tuple[int, TopItems]]:
    """Put recommendations for `count` users into the order in which the users were asked for.

    Yields the number of the first of some users, and their items.

    scratch: directory for temporary files.
    """
    place, done = np.empty(count, np.int64), 0
    with NumberSpool(scratch, "uint32") as spool:
        for numbers, best in found:
            place[numbers] = np.arange(done, done + numbers.size)
            done += numbers.size
            spool.add(np.hstack([best.items.astype(np.uint32), best.scores.view(np.uint32)]))
        stored = spool.mapped(-1)
    with ReorderedRows(scratch, stored, 2 * top * np.arange(count + 1), place) as ordered:
        for first, _, run in ordered.runs():
            items, scores = np.hsplit(run.reshape(-1, 2 * top), 2)
            yield first, TopItems(items.astype(np.int32), np.ascontiguousarray(scores).view(np.float32))


def similar_items(model: Factorization, items: np.ndarray, top: int) -> Iterator[tuple[np.ndarray, TopItems]]:
    """Yield some of the items, and those with the highest cosine similarity of factors to each of them.

    items: int64 (n,), indices of items.
    """
    factors = model.columns.factors
    lengths = np.sqrt(np.einsum("ij,ij->i", factors, factors))
    scale = np.float32(1.0) / np.maximum(lengths, np.finfo(np.float32).tiny)
    chosen = CandidateItems(factors, np.zeros(lengths.size, np.float32), np.flatnonzero(lengths > 0), scale)
    for some in _batches(items, model, top, None):
        itself = RatedItems(np.arange(some.size + 1), some, np.ones(some.size))
        yield some, chosen.best(factors[some] * scale[some, None], top, itself)
