"""How the topics of a model differ from the topics with the same numbers in an earlier model."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.compiled import kernel
from blocks.errors import RequestError
from samplers.topics.model import TopicCountRows, TopicModel, read_only


@kernel
def _compare(places, first_words, first_shares, second_words, second_shares, overlaps, words, changes):
    """Compare the shares of words in topics between two models.

    places: int64 (n, 2), row of each word in the first and in the second model, -1 where a model does not have it.
    first_words, second_words: TopicCountRows.
    first_shares, second_shares: float64 (K,), share of a topic's tokens that a count of 1 stands for.
    overlaps: float64 (K,), increased by sum_w sqrt(p_w q_w).
    words: int64 (2, K, T), set to the words whose shares rose most (row 0) and fell most (row 1).
    changes: float64 (2, K, T), zeros, set to the amounts of these changes, in descending order.
    """
    size = overlaps.size
    before, after = np.zeros(size), np.zeros(size)
    for word in range(places.shape[0]):
        first, second = _row(first_words.offsets, places[word, 0]), _row(second_words.offsets, places[word, 1])
        for entry in range(first[0], first[1]):
            k = first_words.topics[entry]
            before[k] = max(first_words.counts[entry], 0.0) * first_shares[k]
        for entry in range(second[0], second[1]):
            k = second_words.topics[entry]
            after[k] = max(second_words.counts[entry], 0.0) * second_shares[k]
            overlaps[k] += np.sqrt(before[k] * after[k])
            _keep(word, after[k] - before[k], words[:, k], changes[:, k])
            before[k] = 0.0
        for entry in range(first[0], first[1]):
            k = first_words.topics[entry]
            _keep(word, -before[k], words[:, k], changes[:, k])
            before[k] = 0.0


@kernel
def _row(offsets, place):
    """Return the first entry of a row, and the entry after its last; an empty range for -1."""
    return (offsets[place], offsets[place + 1]) if place >= 0 else (np.int64(0), np.int64(0))


@kernel
def _keep(word, change, words, changes):
    """Insert a word into the words whose shares rose (row 0) or fell (row 1) most."""
    side, size, place = (0 if change > 0.0 else 1), abs(change), changes.shape[1]
    while place and size > changes[side, place - 1]:
        place -= 1
    for later in range(changes.shape[1] - 1, place, -1):
        words[side, later], changes[side, later] = words[side, later - 1], changes[side, later - 1]
    if place < changes.shape[1]:
        words[side, place], changes[side, place] = word, size


def topic_changes(model: TopicModel, earlier: TopicModel, top: int) -> list[dict[str, Any]]:
    """Return, for each topic, how it differs from the topic with the same number in an earlier model.

    Each dictionary has `distance`, the Hellinger distance of the shares of words, n_kw / n_k, from 0 (equal shares) to
    1 (no common word), and `gained` and `lost`, the `top` words whose shares rose and fell most, with these changes.
    Raises RequestError if the models have different numbers of topics.
    """
    if model.topics != earlier.topics:
        raise RequestError(
            f"--since: the earlier model has {earlier.topics:,} topics, and this one {model.topics:,}",
            "Use a run with the same number of topics, such as the run of --from.",
        )
    vocabulary, before = model.vocabulary(), {word: place for place, word in enumerate(earlier.vocabulary())}
    pairs = [(before.pop(word, -1), place) for place, word in enumerate(vocabulary)]
    vocabulary = [*vocabulary, *before]
    places = np.array([*pairs, *((place, -1) for place in before.values())], np.int64).reshape(-1, 2)
    overlaps, words = np.zeros(model.topics), np.full((2, model.topics, top), -1)
    changes = np.zeros((2, model.topics, top))
    sides = (side for each in (earlier, model) for side in (_counts(each), 1.0 / _totals(each)))
    _compare(places, *sides, overlaps, words, changes)
    return [
        {"distance": float(np.sqrt(max(1.0 - overlap, 0.0)))}
        | {
            name: [
                {"word": vocabulary[word], "change": sign * change}
                for word, change in zip(words[side, k].tolist(), changes[side, k].tolist(), strict=True)
                if word >= 0
            ]
            for side, (name, sign) in enumerate((("gained", 1.0), ("lost", -1.0)))
        }
        for k, overlap in enumerate(overlaps.tolist())
    ]


def _counts(model: TopicModel) -> TopicCountRows:
    return TopicCountRows(*map(read_only, model.words))


def _totals(model: TopicModel) -> np.ndarray:
    """Return the sum of the counts of each topic, float64 (K,); 1 for an empty topic."""
    sums = np.bincount(model.words.topics, np.maximum(model.words.counts, 0), model.topics)
    return np.where(sums > 0.0, sums, 1.0)
