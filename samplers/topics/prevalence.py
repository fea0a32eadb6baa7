"""Prevalence of topics in groups of documents, with intervals, and differences between groups.

The prevalence of a topic in a group is the mean of theta_dk = (n_dk + alpha_k) / (N_d + abar) over its documents, which
all have the same weight. Intervals are those of the method of composition (Treier and Jackman 2008; stm's
estimateEffect): mixtures are drawn from their posterior given the topics of tokens, Dirichlet(n_d + alpha), the mean of
each group is estimated from every draw, and an estimate is drawn from its sampling distribution. With infinitely many
draws, the variance of the mean of n documents is, by Rubin's rules,

    (s^2 + 2 v) / n,  with s^2 the variance of theta_dk over documents,
                      and v the mean of theta_dk (1 - theta_dk) / (N_d + abar + 1)

so nothing is drawn here: sums of theta, theta^2 and the posterior variances are taken in one pass. Deviation:
estimateEffect has one variance for all groups; here each group has its own. The topics of tokens are those of the
trained model.

Differences are between a group and all other documents. Intervals and two-sided p-values are based on Student's t
distribution, with n - 1 degrees of freedom, or Welch's for differences; `q` is the p-value adjusted by Benjamini and
Hochberg (1995) over all topics and groups of a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocks.compiled import kernel
from samplers.topics.model import TopicModel, read_only
from samplers.topics.student_t import quantile, two_sided


@kernel
def topic_shares(offsets, topics, counts, alpha, k, shares):
    """Return the share of topic k in each document; 0 for documents without a token of the topic.

    offsets: int64 (n+1,), start of each document in topics and counts, uint32 or float32.
    alpha: float64 (K,).
    shares: float64 (n,), set.
    """
    mass = alpha.sum()
    for document in range(offsets.size - 1):
        total, own = mass, 0.0
        for entry in range(offsets[document], offsets[document + 1]):
            total += counts[entry]
            if topics[entry] == k:
                own = counts[entry]
        shares[document] = (own + alpha[k]) / total if own > 0 else 0.0


@kernel
def add_moments(offsets, topics, counts, alpha, states, groups, sizes, bases, moments):
    """Add the moments of the mixtures of documents to those of their groups.

    offsets: int64 (n+1,), start of each document in topics and counts.
    alpha: float64 (K,).
    states: number of summed states.
    groups: int32 (n,), -1 to leave out a document; documents without tokens are left out too.
    sizes: int64 (G,), number of documents, and bases: float64 (G, 4), sums of 1/T, 1/T^2, 1/(T (T' + 1)), 1/(T^2 (T' +
        1)), with T = N + abar and T' = T / states: the terms common to all topics.
    moments: float64 (G, K, 3), sums of the remaining terms of theta, theta^2 and the posterior variance over the topics
        that occur. sizes, bases and moments are increased.
    """
    mass = alpha.sum()
    for document in range(offsets.size - 1):
        group, first, last = groups[document], offsets[document], offsets[document + 1]
        if group < 0 or first == last:
            continue
        total = mass
        for entry in range(first, last):
            total += counts[entry]
        inverse, spread = 1.0 / total, 1.0 / (total / states + 1.0)
        sizes[group] += 1
        bases[group, 0] += inverse
        bases[group, 1] += inverse * inverse
        bases[group, 2] += inverse * spread
        bases[group, 3] += inverse * inverse * spread
        for entry in range(first, last):
            k, count = topics[entry], float(counts[entry])
            share = count * inverse
            square = count * (count + 2.0 * alpha[k]) * inverse * inverse
            moments[group, k, 0] += share
            moments[group, k, 1] += square
            moments[group, k, 2] += (share - square) * spread


NUMBERS = ("prevalence", "low", "high", "difference", "difference_low", "difference_high", "p", "q")  # of a group


@dataclass(frozen=True)
class PrevalenceComparison:
    """Prevalence of K topics in G groups of documents.

    Attributes: `by`, the expression that documents are grouped by; `groups`, values of the groups, in order;
    `documents`, int64 (G,); `level`, confidence level of the intervals; `prevalence`, `low`, `high` float64 (G, K);
    `difference`, `difference_low`, `difference_high`, `p`, `q` float64 (G, K), between a group and all other documents,
    NaN for a single group; `without_value` and `without_tokens`, numbers of documents that were left out.
    """

    by: str
    groups: list[Any]
    documents: np.ndarray
    level: float
    prevalence: np.ndarray
    low: np.ndarray
    high: np.ndarray
    difference: np.ndarray
    difference_low: np.ndarray
    difference_high: np.ndarray
    p: np.ndarray
    q: np.ndarray
    without_value: int
    without_tokens: int

    def rows(self, topics: Iterable[int] | None = None) -> Iterator[dict[str, Any]]:
        """Yield a row for each group of each topic: topic, group, number of documents, and the statistics in NUMBERS.

        topics: topics of the rows, None for all.
        """
        sizes = self.documents.tolist()
        for topic in range(self.prevalence.shape[1]) if topics is None else topics:
            columns = [getattr(self, name)[:, topic].tolist() for name in NUMBERS]
            for group, size, *numbers in zip(self.groups, sizes, *columns, strict=True):
                yield {"topic": topic, "group": group, "documents": size, **dict(zip(NUMBERS, numbers, strict=True))}


class GroupMoments:
    """Sums over the documents of groups, which are discovered while documents are added.

    model: the model whose trained mixtures are used.
    """

    def __init__(self, model: TopicModel) -> None:
        self._model, self._alpha = model, read_only(model.alpha)
        self._documents = [read_only(array) for array in model.documents]
        self.sizes = np.zeros(0, np.int64)
        self._bases, self._sums = np.zeros((0, 4)), np.zeros((0, model.topics, 3))
        self.without_tokens = 0

    def add(self, first: int, groups: np.ndarray) -> None:
        """Add documents first, first + 1, ... with their groups, int32 (n,), -1 to leave out a document."""
        offsets, topics, counts = self._documents
        some = offsets[first : first + groups.size + 1]
        size = int(groups.max(initial=-1)) + 1 - self.sizes.size
        if size > 0:
            self.sizes = np.append(self.sizes, np.zeros(size, np.int64))
            self._bases = np.append(self._bases, np.zeros((size, 4)), axis=0)
            self._sums = np.append(self._sums, np.zeros((size, self._model.topics, 3)), axis=0)
        self.without_tokens += int(np.count_nonzero((groups >= 0) & (np.diff(some) == 0)))
        entries = slice(int(some[0]), int(some[-1]))
        own = read_only(some - some[0]), read_only(topics[entries]), read_only(counts[entries])
        add_moments(*own, self._alpha, self._model.states, read_only(groups), self.sizes, self._bases, self._sums)

    def sums(self) -> np.ndarray:
        """Return the sums of theta, of theta^2 and of the posterior variances, float64 (G, K, 3)."""
        alpha, bases = self._alpha[None, :], self._bases[:, :, None]
        whole = self._sums.copy()
        whole[:, :, 0] += alpha * bases[:, 0]
        whole[:, :, 1] += alpha**2 * bases[:, 1]
        whole[:, :, 2] += alpha * bases[:, 2] - alpha**2 * bases[:, 3]
        return whole


def compared(
    moments: GroupMoments, by: str, groups: Sequence[Any], *, level: float, without_value: int, order: Sequence[int]
) -> PrevalenceComparison:
    """Return the comparison of groups from their moments.

    order: order of the groups, which must have documents with tokens.
    """
    places = np.array(order, np.int64)
    sizes, sums = moments.sizes[places], moments.sums()[places]
    mean, variance = _means(sizes, sums)
    rest, rest_variance = _means(sizes.sum() - sizes, sums.sum(axis=0) - sums)
    error, difference = np.sqrt(variance), mean - rest
    freedom = np.broadcast_to(np.where(sizes > 1, sizes - 1.0, np.nan)[:, None], mean.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(variance + rest_variance)
        others = np.where(sizes.sum() - sizes > 1, sizes.sum() - sizes - 1.0, np.nan)[:, None]
        welch = spread**4 / (variance**2 / freedom + rest_variance**2 / others)
        p = two_sided(difference / spread, welch)
    margin, margin_of_difference = quantile(level, freedom) * error, quantile(level, welch) * spread
    return PrevalenceComparison(
        by=by,
        groups=[groups[place] for place in order],
        documents=sizes,
        level=level,
        prevalence=mean,
        low=np.maximum(mean - margin, 0.0),
        high=np.minimum(mean + margin, 1.0),
        difference=difference,
        difference_low=difference - margin_of_difference,
        difference_high=difference + margin_of_difference,
        p=p,
        q=benjamini_hochberg(p),
        without_value=without_value,
        without_tokens=moments.without_tokens,
    )


def _means(sizes: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and their variances, float64 (G, K); the variance is NaN for fewer than two documents."""
    with np.errstate(invalid="ignore", divide="ignore"):
        count = sizes[:, None].astype(np.float64)
        mean = sums[:, :, 0] / count
        spread = np.maximum(sums[:, :, 1] - count * mean**2, 0.0) / (count - 1)
        variance = (spread + 2.0 * sums[:, :, 2] / count) / count
    variance[sizes < 2] = np.nan
    return mean, variance


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Return p-values adjusted to control the false discovery rate; NaN values are kept."""
    flat = p.ravel()
    order = np.argsort(flat, kind="stable")  # NaN last
    count = int(np.count_nonzero(~np.isnan(flat)))
    ranked = flat[order[:count]] * count / np.arange(1, count + 1)
    adjusted = np.full(flat.size, np.nan)
    adjusted[order[:count]] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return adjusted.reshape(p.shape)


def batches_of(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of at most `size` values."""
    together: list[Any] = []
    for value in values:
        together.append(value)
        if len(together) == size:
            yield together
            together = []
    if together:
        yield together
