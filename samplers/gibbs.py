"""Collapsed Gibbs sampling of LDA by dense conditionals, the reference: O(K) a token (Griffiths and Steyvers 2004).

p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta)
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel
from samplers.documents import (
    close_document,
    open_document,
    put_back,
    smallest_exceeding,
    take_out,
    tokens_of_cell,
)
from samplers.rows import nonzeros
from samplers.streams import uniform


@kernel
def sample_cell(cell, rows, counts, alpha, beta, in_place, key):
    """Sample the tokens of a cell; returns how many changed topic. For the arguments see `samplers.documents`.

    alpha: float64 (K,). key: the random stream; one draw a token.
    """
    changed, draw = 0, np.uint64(0)
    word_counts = np.zeros(alpha.size)
    for d in range(cell.offsets.size - 1):
        first, last = tokens_of_cell(cell, d)
        if first == last:
            continue
        size = open_document(cell, d, counts)
        for token in range(first, last):
            row, word = counts.rows[token - cell.offsets[d]], cell.words[cell.positions[token]]
            old = np.int64(cell.state[row, 0])
            size = take_out(rows, counts, size, word, old, in_place)
            occurring = nonzeros(rows, word, counts.row_topics, counts.row_counts)
            for i in range(occurring):
                word_counts[counts.row_topics[i]] = counts.row_counts[i]
            if not in_place:
                word_counts[old] -= 1.0
            new = draw_topic(counts, word_counts, alpha, beta, uniform(key, draw))
            for i in range(occurring):
                word_counts[counts.row_topics[i]] = 0.0
            size = put_back(rows, counts, size, word, new, in_place)
            cell.state[row, 0] = new
            changed += new != old
            draw += np.uint64(1)
        close_document(counts, size)
    return changed


@kernel
def draw_topic(counts, word_counts, alpha, beta, u):
    """The topic that a uniform number draws for a token that was taken out of all counts; word_counts: float64 (K,)."""
    total = 0.0
    for k in range(alpha.size):
        total += (counts.topics[k] + alpha[k]) * (word_counts[k] + beta) / counts.summary[k]
        counts.weights[k] = total
    return smallest_exceeding(counts.weights, alpha.size, u * total)
