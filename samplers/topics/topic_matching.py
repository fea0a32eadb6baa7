"""Match the topics of two models one to one, maximizing the sum of similarities (Kuhn 1955; shortest augmenting paths
of Jonker and Volgenant 1987, O(K^3))."""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel


@kernel
def best_matching(similarities):
    """Return the column matched to each row, int64 (K,), in the one-to-one matching with the largest sum.

    similarities: float64 (K, K).
    """
    size = similarities.shape[0]
    row_price, column_price = np.zeros(size + 1), np.zeros(size + 1)
    row_of, before = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)  # per column; 1-based, 0 means none
    for row in range(1, size + 1):
        row_of[0], column = row, 0
        least, done = np.full(size + 1, np.inf), np.zeros(size + 1, np.bool_)
        while row_of[column]:
            done[column] = True
            current, shortest, following = row_of[column], np.inf, 0
            for other in range(1, size + 1):
                if done[other]:
                    continue
                cost = -similarities[current - 1, other - 1] - row_price[current] - column_price[other]
                if cost < least[other]:
                    least[other], before[other] = cost, column
                if least[other] < shortest:
                    shortest, following = least[other], other
            for other in range(size + 1):
                if done[other]:
                    row_price[row_of[other]] += shortest
                    column_price[other] -= shortest
                else:
                    least[other] -= shortest
            column = following
        while column:
            row_of[column] = row_of[before[column]]
            column = before[column]
    matched = np.empty(size, np.int64)
    for other in range(1, size + 1):
        matched[row_of[other] - 1] = other - 1
    return matched


def shared_words(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the fraction of top words that each topic of one model shares with each topic of another, float64 (K, K).

    first, second: int64 (K, T), distinct top words of each topic, -1 where missing.
    """
    size = int(max(first.max(), second.max())) + 1
    there = np.zeros((len(first), size + 1), np.float32)  # the last column is for missing words
    np.put_along_axis(there, first, 1.0, axis=1)
    there[:, size] = 0.0
    common = np.stack([there[:, words[words >= 0]].sum(axis=1) for words in second], axis=1)
    return common.astype(np.float64) / first.shape[1]
