"""Words that distinguish a topic from others, by relevance (Sievert and Shirley 2014, "LDAvis", section 3.1):

    r(w, k | lambda) = lambda log phi_kw + (1 - lambda) log(phi_kw / p_w)

phi_kw = (n_kw + beta) / (n_k + V beta); p_w is the fraction of all tokens that are word w. lambda = 1 ranks words by
their probability in the topic, lambda = 0 by their lift. Only words that occur in the topic, or have a prior of their
own in it, are ranked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from samplers.topics.model import TopicModel, row_numbers

LEVELS = np.linspace(0.0, 1.0, 21)  # values of lambda


class RelevantWords(NamedTuple):
    """Relevant words of topics.

    words: for each topic, int64 (n,), ascending, the words that are among its most relevant words at some lambda.
    counts: for each topic, float64 (n,), the words' tokens in the topic.
    """

    words: list[np.ndarray]
    counts: list[np.ndarray]


def relevant_words(model: TopicModel, slots: np.ndarray, top: int) -> RelevantWords:
    """Return the union over LEVELS of the `top` most relevant words of each topic.

    slots: int64 (K,), position of each topic in the result, or -1 to leave it out.
    """
    size = int(slots.max()) + 1
    words = np.full((size, LEVELS.size, top), -1, np.int64)
    values = np.full((size, LEVELS.size, top), -np.inf)
    masses = model.topic_counts + model.vocabulary_size * model.beta
    _most_relevant(*model.words, word_totals(model), slots, masses, model.beta, LEVELS, words, values)
    listed = [np.unique(of_topic[of_topic >= 0]) for of_topic in words]
    topics = np.argsort(slots)[-size:]  # the topic in each slot
    return RelevantWords(listed, [_counts(model, int(k), found) for k, found in zip(topics, listed, strict=True)])


def word_totals(model: TopicModel) -> np.ndarray:
    """Return the number of tokens of each word, float64 (V,)."""
    totals = np.zeros(model.vocabulary_size)
    _row_totals(model.words.offsets, model.words.counts, totals)
    if model.prior is not None:
        totals = np.maximum(totals - np.bincount(row_numbers(model.prior), model.prior.counts, totals.size), 0.0)
    return totals


def _counts(model: TopicModel, topic: int, words: np.ndarray) -> np.ndarray:
    """Return the token counts of words in a topic, float64 (n,); all words must occur in the topic."""
    counts = np.zeros(words.size)
    _counts_of(*model.words, topic, words, counts)
    return counts


@kernel
def _row_totals(offsets, counts, totals):
    for row in range(totals.size):
        for entry in range(offsets[row], offsets[row + 1]):
            totals[row] += counts[entry]


@kernel
def _counts_of(offsets, topics, counts, topic, words, found):
    for i in range(words.size):
        for entry in range(offsets[words[i]], offsets[words[i] + 1]):
            if topics[entry] == topic:
                found[i] = counts[entry]


@kernel
def _most_relevant(offsets, topics, counts, totals, slots, masses, beta, levels, top_words, top_values):
    """Find the most relevant words of some topics.

    offsets, topics, counts: sparse rows of words.
    totals: float64 (V,), tokens of each word.
    slots: int64 (K,).
    masses: float64 (K,), n_k + V beta.
    levels: float64 (L,).
    top_words: int64 (S, L, T), set, -1 where there are fewer words.
    top_values: float64 (S, L, T), set, -inf where there are fewer words. Both are in descending order of relevance;
        ties keep the order of the words.
    """
    tokens = totals.sum()
    for word in range(offsets.size - 1):
        for entry in range(offsets[word], offsets[word + 1]):
            slot = slots[topics[entry]]
            if slot < 0:
                continue
            probability = np.log((counts[entry] + beta) / masses[topics[entry]])
            if probability == -np.inf or totals[word] == 0.0:
                continue
            lift = probability - np.log(totals[word] / tokens)
            for level in range(levels.size):
                relevance = levels[level] * probability + (1.0 - levels[level]) * lift
                _insert(word, relevance, top_words[slot, level], top_values[slot, level])


@kernel
def _insert(word, value, words, values):
    """Insert a word at its rank among the best words, unless all of them are better."""
    place = values.size - 1
    if value <= values[place]:
        return
    while place and value > values[place - 1]:
        words[place], values[place] = words[place - 1], values[place - 1]
        place -= 1
    words[place], values[place] = word, value
