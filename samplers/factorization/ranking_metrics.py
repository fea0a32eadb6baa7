"""Compare recommended items with held-out ratings: precision, recall, MAP and NDCG at T, and coverage.

For each user the T items with the highest predictions are chosen among the training items, without the items
that the user rated there. An item is relevant if the user's held-out rating of it is at least a threshold. With the
number of relevant items r and h_k, which is 1 if the item in place k is relevant and else 0:

    precision   sum_k h_k / T                                        recall   sum_k h_k / r
    MAP         sum_k h_k (h_1 + ... + h_k) / k, over min(r, T)
    NDCG        sum_k h_k / log2(k + 1), over its value for min(r, T) relevant items in the first places
    coverage    the fraction of all items that are recommended to at least one of the users

All but the coverage are means over the users with relevant items.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from samplers.factorization.model import Factorization, row_order
from samplers.factorization.rated_items import RatedItems, read_rated
from samplers.factorization.recommendation import UserBatch, candidates, known_users
from samplers.factorization.top_items import CandidateItems


class RankingMetrics(TypedDict):
    """Metrics of recommendations, see `samplers.factorization.ranking_metrics`."""

    precision: float
    recall: float
    map: float
    ndcg: float
    coverage: float


class RankingMetricsComparison(TypedDict):
    """Metrics of a model, and of recommending the items with the most training ratings to every user.

    top: T.
    users: number of users with relevant items.
    """

    top: int
    users: int
    model: RankingMetrics
    popularity: RankingMetrics


class _RankingMetricSums:
    """Sums of metrics over users.

    chosen: items to recommend.
    top: T.
    items: number of all items.
    """

    def __init__(self, chosen: CandidateItems, top: int, items: int) -> None:
        self._chosen, self._top = chosen, top
        self._sums, self._covered = np.zeros(4), np.zeros(items, bool)

    def add(self, factors: np.ndarray, seen: RatedItems, relevant: RatedItems) -> None:
        """Add users.

        factors: float (n, R).
        seen, relevant: items that each has rated, and relevant ones.
        """
        items = self._chosen.best(factors, self._top, seen).items
        self._covered[items[items >= 0]] = True
        hits = relevant.has(np.arange(len(factors))[:, None], items)
        counts, places = np.diff(relevant.offsets), np.arange(1, self._top + 1)
        gains = 1 / np.log2(places + 1)
        most = np.minimum(counts, self._top)
        self._sums += [
            np.sum(hits) / self._top,
            np.sum(hits.sum(axis=1) / counts),
            np.sum((hits * hits.cumsum(axis=1) / places).sum(axis=1) / most),
            np.sum((hits * gains).sum(axis=1) / gains.cumsum()[most - 1]),
        ]

    def means(self, users: int) -> RankingMetrics:
        """Return the metrics."""
        precision, recall, precisions, gains = (self._sums / users).tolist()
        covered = float(np.mean(self._covered))
        return {"precision": precision, "recall": recall, "map": precisions, "ndcg": gains, "coverage": covered}


def rank_held_out(
    model: Factorization, trained_on: Matrix, held_out: Matrix, top: int, threshold: float | None
) -> RankingMetricsComparison:
    """Return the metrics of recommendations for the users of a dataset; see `ranking_metrics`.

    trained_on: training ratings.
    held_out: ratings with the same names of users and items.
    """
    places = row_order(held_out)
    users = np.flatnonzero(places >= 0)
    batches = known_users(model, users, top, trained_on)
    pairs = ((some, read_rated(held_out, places[users[some.numbers]])) for some in batches)
    return ranking_metrics(model, pairs, top, threshold)


def rank_rated(
    model: Factorization, train: RatedItems, test: RatedItems, top: int, threshold: float | None
) -> RankingMetricsComparison:
    """Return the metrics of recommendations for the users with ratings in `test`; see `ranking_metrics`.

    train, test: ratings of all users of the model.
    """
    users = np.flatnonzero(np.diff(test.offsets))
    batches = known_users(model, users, top)
    pairs = ((some._replace(seen=train.of(users[some.numbers])), test.of(users[some.numbers])) for some in batches)
    return ranking_metrics(model, pairs, top, threshold)


def ranking_metrics(
    model: Factorization, batches: Iterable[tuple[UserBatch, RatedItems]], top: int, threshold: float | None
) -> RankingMetricsComparison:
    """Return the metrics of recommendations for users.

    batches: users with the items they have seen, and their held-out ratings.
    top: T.
    threshold: lowest rating of a relevant item, None if all are relevant.
    Raises RequestError if no user has a relevant item.
    """
    items, users = len(model.columns), 0
    chosen, ratings = candidates(model), np.asarray(model.columns.entries, np.float32)
    popular = CandidateItems(np.empty((items, 0), np.float32), ratings, chosen.items)
    of_model, of_popularity = (_RankingMetricSums(each, top, items) for each in (chosen, popular))
    for some, held_out in batches:
        assert some.seen is not None
        relevant = _relevant(held_out, some.seen, threshold)
        there = np.flatnonzero(np.diff(relevant.offsets))
        users += there.size
        seen, wanted = some.seen.of(there), relevant.of(there)
        of_model.add(some.factors[there], seen, wanted)
        of_popularity.add(np.empty((there.size, 0), np.float32), seen, wanted)
    if not users:
        told = "" if threshold is None else f" of at least {threshold:g}"
        raise RequestError(
            f"no user has a held-out rating{told} of an item that the user did not rate in the training data",
            "Hold out other ratings" + ("." if threshold is None else ", or use a lower threshold."),
        )
    return {"top": top, "users": users, "model": of_model.means(users), "popularity": of_popularity.means(users)}


def _relevant(held_out: RatedItems, seen: RatedItems, threshold: float | None) -> RatedItems:
    """Return the held-out ratings of relevant items that their users did not rate in the training data."""
    known = seen.has(held_out.users, held_out.items)
    return held_out.where(~known if threshold is None else ~known & (held_out.values >= threshold))
