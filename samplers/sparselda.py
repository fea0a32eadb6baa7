"""SparseLDA: O(K_d + K_w) a token (Yao, Mimno and McCallum, KDD 2009, section 3.4).

The conditional falls into three buckets, of which the first hardly changes, the second has only the document's topics
and the third only the word's:

    p(k) ~ alpha_k*beta / (n_k^- + V*beta)  +  n_kd^-*beta / (n_k^- + V*beta)
           +  n_kw^- * (n_kd^- + alpha_k) / (n_k^- + V*beta)

The sums of the first two, and the coefficients (n_kd + alpha_k) / (n_k + V*beta) of the third, are kept up to date.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, kernel
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
    coefficients = alpha / counts.summary
    smoothing = beta * coefficients.sum()
    for d in range(cell.offsets.size - 1):
        first, last = tokens_of_cell(cell, d)
        if first == last:
            continue
        size = open_document(cell, d, counts)
        document = open_buckets(counts, size, alpha, beta, coefficients)
        for token in range(first, last):
            row, word = counts.rows[token - cell.offsets[d]], cell.words[cell.positions[token]]
            old = np.int64(cell.state[row, 0])
            before = shares(counts, alpha, beta, old)
            size = take_out(rows, counts, size, word, old, in_place)
            after = shares(counts, alpha, beta, old)
            coefficients[old] = (after[0] + after[1]) / beta
            smoothing, document = smoothing + after[0] - before[0], document + after[1] - before[1]

            own = -1 if in_place else old
            u = uniform(key, draw)
            new = draw_topic(rows, counts, size, word, own, smoothing, document, coefficients, alpha, beta, u)

            before = shares(counts, alpha, beta, new)
            size = put_back(rows, counts, size, word, new, in_place)
            after = shares(counts, alpha, beta, new)
            coefficients[new] = (after[0] + after[1]) / beta
            smoothing, document = smoothing + after[0] - before[0], document + after[1] - before[1]
            cell.state[row, 0] = new
            changed += new != old
            draw += np.uint64(1)
        for i in range(size):
            k = counts.present[i]
            coefficients[k] = alpha[k] / counts.summary[k]
        close_document(counts, size)
    return changed


@inlined
def shares(counts, alpha, beta, k):
    """What topic k adds to the smoothing and to the document bucket."""
    scale = beta / counts.summary[k]
    return alpha[k] * scale, counts.topics[k] * scale


@inlined
def open_buckets(counts, size, alpha, beta, coefficients):
    """Set the coefficients of the document's topics; returns the sum of the document bucket."""
    document = 0.0
    for i in range(size):
        k = counts.present[i]
        coefficients[k] = (counts.topics[k] + alpha[k]) / counts.summary[k]
        document += counts.topics[k] * beta / counts.summary[k]
    return document


@kernel
def draw_topic(rows, counts, size, word, own, smoothing, document, coefficients, alpha, beta, u):
    """The topic that a uniform number draws: the word bucket is walked first, most draws end there.

    own: topic under which the row counts the token itself, or -1 if it does not.
    """
    occurring = nonzeros(rows, word, counts.row_topics, counts.row_counts)
    of_word = 0.0
    for i in range(occurring):
        k = counts.row_topics[i]
        of_word += (counts.row_counts[i] - (k == own)) * coefficients[k]
        counts.weights[i] = of_word
    x = u * (smoothing + document + of_word)
    if x < of_word:
        return np.int64(counts.row_topics[smallest_exceeding(counts.weights, occurring, x)])
    x -= of_word
    if x < document:
        for i in range(size):
            k = np.int64(counts.present[i])
            x -= counts.topics[k] * beta / counts.summary[k]
            if x < 0.0 or i == size - 1:
                return k
    x -= document
    for k in range(alpha.size):
        x -= alpha[k] * beta / counts.summary[k]
        if x < 0.0:
            return k
    return alpha.size - 1
