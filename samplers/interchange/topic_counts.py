"""Build topic models from the output of other programs: topic assignments of tokens, or word weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samplers.lda.program import topic_type
from samplers.topics.model import TopicCountRows, TopicModel


def model_of_tokens(
    documents: np.ndarray,
    words: np.ndarray,
    topics: np.ndarray,
    alpha: np.ndarray,
    beta: float,
    vocabulary: list[str],
    names: list[str] | None,
    count: int,
) -> TopicModel:
    """Return the model of N tokens.

    documents, words, topics: uint32 (N,), indices of each token's document, word and topic.
    alpha: float64 (K,).
    names: names of the documents, if any.
    count: number of documents.
    """
    return TopicModel(
        alpha=alpha,
        beta=beta,
        topic_counts=np.bincount(topics, minlength=alpha.size).astype(np.int64),
        words=_counted(words, topics, len(vocabulary), alpha.size),
        documents=_counted(documents, topics, count, alpha.size),
        vocabulary=vocabulary,
        document_names=names,
    )


def _counted(rows: np.ndarray, topics: np.ndarray, count: int, size: int) -> TopicCountRows:
    """Return how often each of `topics` occurs with each row, as sparse rows."""
    keys, counts = np.unique(rows.astype(np.uint64) * np.uint64(size) + topics, return_counts=True)
    found, of = np.divmod(keys, np.uint64(size))
    offsets = np.searchsorted(found, np.arange(count + 1))
    return TopicCountRows(offsets.astype(np.int64), of.astype(topic_type(size)), counts.astype(np.uint32))


def model_of_weights(weights: np.ndarray, alpha: np.ndarray, vocabulary: Sequence[str]) -> TopicModel:
    """Return the model with the given word weights, float64 (K, V), which include the prior. It has no documents."""
    beta = float(weights.min())
    topics, words = np.nonzero((weights - beta).astype(np.float32))
    order = np.lexsort((topics, words))
    topics, words = topics[order], words[order]
    counts = (weights[topics, words] - beta).astype(np.float32)
    of = topic_type(alpha.size)
    return TopicModel(
        alpha=alpha,
        beta=beta,
        topic_counts=np.bincount(topics, counts, alpha.size),
        words=TopicCountRows(
            np.searchsorted(words, np.arange(len(vocabulary) + 1)).astype(np.int64), topics.astype(of), counts
        ),
        documents=TopicCountRows(np.zeros(1, np.int64), np.empty(0, of), np.empty(0, np.uint32)),
        vocabulary=list(vocabulary),
    )
