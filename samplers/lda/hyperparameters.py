"""Maximum-likelihood estimates of the LDA hyperparameters given the current topics: asymmetric alpha, symmetric beta.

Given the topics of all tokens, documents are draws from a Dirichlet-multinomial distribution with parameters alpha, and
topics are draws from one with parameter beta for every word. Minka's fixed-point iteration ("Estimating a Dirichlet
distribution", 2000, eq. 55) maximises such a likelihood; no step lowers the likelihood:

    alpha_k <- alpha_k * sum_d (psi(n_kd + alpha_k) - psi(alpha_k)) / sum_d (psi(N_d + abar) - psi(abar))
    beta    <- beta * sum_kw (psi(n_kw + beta) - psi(beta)) / (V * sum_k (psi(n_k + V*beta) - psi(V*beta)))

The sums run over histograms of the counts, as in Wallach ("Structured topic models for language", 2008, section 2.3).
Histograms hold integers, so they do not depend on the order in which they were gathered.

Weights are kept within bounds because some corpora carry no information about a weight, so that the likelihood has its
maximum at 0 or at infinity: alpha_k of a topic without tokens; beta if every word occurs once. Without bounds the
sampler would follow such an estimate, and the next estimate would go further.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel

LEAST_ALPHA, MOST_ALPHA = 0.01, 100.0  # minimum of the sum of alpha over all topics; maximum for one topic
LEAST_BETA, MOST_BETA = 1e-6, 1.0
TOLERANCE = 1e-6  # maximum relative change of a weight at which the iteration has converged
MOST_ROUNDS = 200
COUNT = np.uint64(0xFFFFFFFF)
_MERGE_AT = 1 << 20  # number of values that are buffered before they are merged


class ValueHistogram(NamedTuple):
    """Distinct values, uint64 (n,), ascending, and their multiplicities, int64 (n,), or weights, float64."""

    values: np.ndarray
    times: np.ndarray


class DirichletMultinomialCounts(NamedTuple):
    """Counts drawn from a Dirichlet-multinomial distribution, as int64 histograms.

    starts: (P+1,), start of each parameter's distinct counts in `counts`, (n,), whose multiplicities are `times`, (n,).
    totals: (m,), distinct sums of a draw's counts, whose multiplicities are `total_times`, (m,).
    """

    starts: np.ndarray
    counts: np.ndarray
    times: np.ndarray
    totals: np.ndarray
    total_times: np.ndarray


class PriorWeightBounds(NamedTuple):
    """Bounds of each weight of an estimated prior."""

    least: float
    most: float

    def including(self, weights: np.ndarray) -> PriorWeightBounds:
        """Return the bounds, widened to include the weights given to a run."""
        return PriorWeightBounds(min(self.least, float(weights.min())), max(self.most, float(weights.max())))


def alpha_bounds(topics: int) -> PriorWeightBounds:
    """Return the bounds of alpha. The minimum depends on K in the same way as the default alpha."""
    return PriorWeightBounds(LEAST_ALPHA / topics, MOST_ALPHA)


BETA_BOUNDS = PriorWeightBounds(LEAST_BETA, MOST_BETA)


def bounds_met(name: str, weights: np.ndarray, bounds: PriorWeightBounds) -> dict[str, str]:
    """Return a message for each bound that a weight of a prior, float64 (P,), has reached, keyed by bound."""
    found = {}
    for which, bound in (("smallest", bounds.least), ("largest", bounds.most)):
        if count := int(np.count_nonzero(weights == bound)):
            whose = f" of {count:,} of {weights.size:,} topics" if weights.size > 1 else ""
            found[f"{which} {name}"] = f"the estimate of {name}{whose} is at its {which} allowed value, {bound:g}"
    return found


def histogram(values: np.ndarray) -> ValueHistogram:
    """Return the histogram of values, uint64 (n,)."""
    found, times = np.unique(values, return_counts=True)
    return ValueHistogram(found, times.astype(np.int64))


def add_histograms(histograms: list[ValueHistogram]) -> ValueHistogram:
    """Return the sum of several histograms."""
    values = np.concatenate([part.values for part in histograms])
    times = np.concatenate([part.times for part in histograms])
    found, places = np.unique(values, return_inverse=True)
    summed = np.zeros(found.size, times.dtype)
    np.add.at(summed, places, times)
    return ValueHistogram(found, summed)


def merge_histograms(histograms: Iterable[ValueHistogram]) -> ValueHistogram:
    """Return the sum of histograms given one by one; memory grows only with the number of distinct values."""
    merged = ValueHistogram(np.empty(0, np.uint64), np.empty(0, np.int64))
    waiting: list[ValueHistogram] = []
    for part in histograms:
        waiting.append(part)
        if sum(other.values.size for other in waiting) > max(_MERGE_AT, merged.values.size):
            merged, waiting = add_histograms([merged, *waiting]), []
    return add_histograms([merged, *waiting])


def observed_documents(rows: ValueHistogram, lengths: ValueHistogram, topics: int) -> DirichletMultinomialCounts:
    """Return the data for estimating alpha: a histogram of topic << 32 | n_kd, and one of the document lengths."""
    starts = np.searchsorted(rows.values, np.arange(topics + 1, dtype=np.uint64) << np.uint64(32))
    return DirichletMultinomialCounts(
        starts.astype(np.int64),
        (rows.values & COUNT).astype(np.int64),
        rows.times,
        lengths.values.astype(np.int64),
        lengths.times,
    )


def observed_words(counts: ValueHistogram, topic_counts: np.ndarray) -> DirichletMultinomialCounts:
    """Return the data for estimating beta: a histogram of n_kw over words and topics, and n_k, int64 (K,)."""
    totals = histogram(topic_counts.astype(np.uint64))
    return DirichletMultinomialCounts(
        np.array([0, counts.values.size]),
        counts.values.astype(np.int64),
        counts.times,
        totals.values.astype(np.int64),
        totals.times,
    )


@kernel
def digamma(x):
    """Return psi(x) for x > 0, to about 1e-14: recurrence up to 10, then the asymptotic series."""
    shift = 0.0
    while x < 10.0:
        shift += 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * (691 / 32760 - y / 12))))))
    return math.log(x) - 0.5 / x - series - shift


@kernel
def digamma_rise(counts, times, weight):
    """Return sum_i times_i * (psi(counts_i + weight) - psi(weight)).

    counts, times: int64 (n,).
    """
    base, rise = digamma(weight), 0.0
    for i in range(counts.size):
        rise += times[i] * (digamma(counts[i] + weight) - base)
    return rise


@kernel
def improve_prior(prior, outcomes, observed, bounds):
    """Do one step of Minka's fixed-point iteration; returns the largest relative change of a weight.

    prior: float64 (P,), updated: a weight for each outcome, or (1,), a weight common to all outcomes.
    outcomes: number of outcomes.
    observed: DirichletMultinomialCounts of P parameters.
    bounds: PriorWeightBounds.
    """
    share = outcomes / prior.size
    fall = share * digamma_rise(observed.totals, observed.total_times, prior.sum() * share)
    largest = 0.0
    for k in range(prior.size):
        mine = slice(observed.starts[k], observed.starts[k + 1])
        rise = digamma_rise(observed.counts[mine], observed.times[mine], prior[k])
        weight = min(max(prior[k] * rise / fall, bounds.least), bounds.most)
        largest = max(largest, abs(weight - prior[k]) / prior[k])
        prior[k] = weight
    return largest


def fit_prior(
    prior: np.ndarray, outcomes: int, observed: DirichletMultinomialCounts, bounds: PriorWeightBounds
) -> np.ndarray:
    """Return the prior to which the fixed-point iteration from `prior` converges, after at most MOST_ROUNDS steps of
    `improve_prior`."""
    fitted = np.array(prior, np.float64)
    for _ in range(MOST_ROUNDS):
        if improve_prior(fitted, outcomes, observed, bounds) <= TOLERANCE:
            break
    return fitted
