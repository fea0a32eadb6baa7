"""Rank the words of topics by probability, lift, FREX or c-TF-IDF, to name topics by their most characteristic words.

probability   phi_kw = (n_kw + beta) / (n_k + V beta)
lift          phi_kw / p_w, with p_w the fraction of all tokens that are word w
frex          1 / (w / F_kw + (1 - w) / E_kw), w = 0.5 (Bischof and Airoldi 2012, in the form of stm's `calcfrex`
              without shrinkage): F_kw is the rank of phi_kw among the words of the topic, by V, and E_kw the rank of
              the exclusivity phi_kw / sum_j phi_jw, by V; equal words share the mean rank
c-tf-idf      (n_kw / n_k) log(1 + A / n_w), with n_w the tokens of word w, and A the mean number of tokens per topic
              (Grootendorst 2022, equation 2)

A topic lists only words that occur in it or have a prior of their own there, and no word that its prior excludes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocks.compiled import kernel
from samplers.topics.model import TopicModel
from samplers.topics.relevance import word_totals

RANKINGS = ("probability", "frex", "lift", "c-tf-idf")  # the first is the default
_ENTRIES = 1 << 21  # number of word counts that are in memory at a time


def ranked_words(model: TopicModel, ranking: str, top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the highest-ranked words of each topic by a ranking other than probability.

    Returns words, int64 (K, top), padded with -1; their counts in the topic, float64 (K, top); and their values,
    float64 (K, top), in descending order, padded with NaN. Words with equal values are in vocabulary order.
    """
    masses = model.topic_counts + model.vocabulary_size * model.beta
    totals = _probability_sums(model, masses) if ranking == "frex" else word_totals(model)
    ordered, tokens = np.sort(totals), model.topic_tokens
    found = (
        np.full((model.topics, top), -1, np.int64),
        np.zeros((model.topics, top)),
        np.full((model.topics, top), np.nan),
    )
    for k, words, counts in entries_by_topic(model):
        shares = (counts + model.beta) / masses[k]
        if ranking == "frex":
            values = _frex(shares, shares / totals[words], model.beta / masses[k], totals[words], ordered)
        elif ranking == "c-tf-idf":
            values = counts / max(tokens[k], 1.0) * np.log1p(tokens.mean() / np.maximum(totals[words], 1.0))
        else:
            with np.errstate(divide="ignore"):  # words without tokens divide by 0, and are not listed
                values = shares / (totals[words] / max(ordered.sum(), 1.0))
        best = np.argsort(-values, kind="stable")
        best = best[(shares[best] > 0.0) & np.isfinite(values[best])][:top]
        for array, of_topic in zip(found, (words, counts, values), strict=True):
            array[k, : best.size] = of_topic[best]
    return found


def entries_by_topic(model: TopicModel) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each topic with the words that have a count in it, int64 (n,), ascending, and the counts, float64 (n,)."""
    sizes = np.zeros(model.topics, np.int64)
    _count_entries(model.words.topics, sizes)
    first = 0
    while first < model.topics:
        last = first + max(int(np.searchsorted(np.cumsum(sizes[first:]), _ENTRIES, side="right")), 1)
        ends = np.cumsum(sizes[first:last])
        filled = ends - sizes[first:last]
        words, counts = np.empty(ends[-1], np.int64), np.empty(ends[-1])
        _gather_entries(*model.words, first, filled, words, counts)
        for k in range(first, last):
            mine = slice(int(ends[k - first] - sizes[k]), int(ends[k - first]))
            yield k, words[mine], counts[mine]
        first = last


def _frex(
    shares: np.ndarray, exclusivities: np.ndarray, rest: float, sums: np.ndarray, all_sums: np.ndarray
) -> np.ndarray:
    """Return the FREX scores of the n words that occur in a topic, float64 (n,).

    shares, exclusivities: phi and exclusivity of these words, float64 (n,).
    rest: phi of all other words.
    sums: float64 (n,), sums of phi over topics for these words.
    all_sums: float64 (V,), the same sums for all words, ascending.
    """
    size = all_sums.size
    absent = size - shares.size
    frequency = (absent * (shares > rest) + _mean_ranks(shares)) / size
    # An absent word has the exclusivity rest / sum: it is below x if its sum is above rest / x.
    with np.errstate(divide="ignore"):
        limits = rest / exclusivities
    own = np.sort(sums)
    above = (
        size - np.searchsorted(all_sums, limits, side="right") - (own.size - np.searchsorted(own, limits, side="right"))
    )
    until = size - np.searchsorted(all_sums, limits) - (own.size - np.searchsorted(own, limits))
    exclusivity = (_mean_ranks(exclusivities) + 0.5 * (above + until)) / size
    return 1.0 / (0.5 / frequency + 0.5 / exclusivity)


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1, ascending; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - 0.5 * (counts - 1))[places]


def _probability_sums(model: TopicModel, masses: np.ndarray) -> np.ndarray:
    """Return the sum over topics of the probability of each word, float64 (V,)."""
    sums = np.full(model.vocabulary_size, (model.beta / masses).sum())
    _add_probabilities(*model.words, 1.0 / masses, sums)
    return sums


@kernel
def _count_entries(topics, sizes):
    """Count the words that occur in each topic.

    sizes: int64 (K,), increased.
    """
    for entry in range(topics.size):
        sizes[topics[entry]] += 1


@kernel
def _gather_entries(offsets, topics, counts, first, filled, found_words, found_counts):
    """Copy the words, and their counts, of the topics from index `first` on.

    filled: int64 (n,), start of each topic in the result, moved to its end.
    """
    for word in range(offsets.size - 1):
        for entry in range(offsets[word], offsets[word + 1]):
            slot = np.int64(topics[entry]) - first
            if 0 <= slot < filled.size:
                found_words[filled[slot]], found_counts[filled[slot]] = word, counts[entry]
                filled[slot] += 1


@kernel
def _add_probabilities(offsets, topics, counts, scale, sums):
    """Add n_kw / (n_k + V beta) over topics.

    scale: float64 (K,), 1 / (n_k + V beta).
    sums: float64 (V,), increased.
    """
    for word in range(offsets.size - 1):
        for entry in range(offsets[word], offsets[word + 1]):
            sums[word] += counts[entry] * scale[topics[entry]]
