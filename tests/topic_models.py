"""Topic models in memory with random counts."""

from __future__ import annotations

import numpy as np

from samplers.lda.running_mean import DECAY
from samplers.topics.model import TopicCountRows, TopicModel


def random_model(documents: int = 200, words: int = 60, topics: int = 5, seed: int = 0) -> TopicModel:
    """Return a model of a single state; some documents and words have no tokens."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(topics, 0.5), documents)
    counts = rng.poisson(shares * rng.integers(0, 30, (documents, 1)))
    by_word = rng.multinomial(counts.sum(axis=0), rng.dirichlet(np.full(words, 0.2), topics)).T
    return TopicModel(
        alpha=rng.uniform(0.1, 0.5, topics),
        beta=0.05,
        topic_counts=by_word.sum(axis=0),
        words=rows_of(by_word),
        documents=rows_of(counts),
        vocabulary=[f"w{word:03}" for word in range(words)],
    )


def rows_of(counts: np.ndarray) -> TopicCountRows:
    """Return sparse rows of dense counts, (n, K)."""
    rows, topics = np.nonzero(counts)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(counts)))))
    return TopicCountRows(offsets, topics.astype(np.uint8), counts[rows, topics].astype(np.uint32))


def dense(rows: TopicCountRows, topics: int) -> np.ndarray:
    """Return the counts of sparse rows, float64 (n, K)."""
    counts = np.zeros((rows.offsets.size - 1, topics))
    counts[np.repeat(np.arange(len(counts)), np.diff(rows.offsets)), rows.topics] = rows.counts
    return counts


def weighted(states: list[np.ndarray]) -> np.ndarray:
    """Return the weighted mean of states, in which state t has weight binom(t + DECAY - 1, DECAY), about t^DECAY: the
    closed form of the recursion.
    """
    assert DECAY == 2
    weights = np.array([t * (t + 1) for t in range(1, len(states) + 1)])
    return np.tensordot(weights / weights.sum(), np.array(states, np.float64), 1)
