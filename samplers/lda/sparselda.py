"""SparseLDA: O(K_d + K_w) per token (Yao, Mimno and McCallum, KDD 2009, section 3.4).

The conditional is split into three buckets: smoothing, which hardly changes; the document bucket, over the document's
topics only; and the word bucket, over the word's topics only:

    p(k) ~ alpha_k*beta / (n_k^- + V*beta)  +  n_kd^-*beta / (n_k^- + V*beta)
           +  n_kw^- * (n_kd^- + alpha_k) / (n_k^- + V*beta)

The sums of the first two buckets, and the coefficients (n_kd + alpha_k) / (n_k + V*beta) of the third, are kept up to
date.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from ooc.rng import uniform
from samplers.lda.document_kernels import add_token, clear_document, first_above, open_document, remove_token
from samplers.lda.word_topic_rows import decrease, increase, nonzeros


@unmanaged_kernel
def sample_cell(cell, rows, counts, alpha, beta, in_place, key):
    """Sample the tokens of a cell and return how many changed topic.

    See `samplers.lda.document_kernels` for the other arguments.

    alpha: float64 (K,).
    key: key of the random stream; one draw per token.
    """
    offsets, token_topics, words, positions, state = cell.offsets, cell.topics, cell.words, cell.positions, cell.state
    topics, present, places, summary = counts.topics, counts.present, counts.places, counts.summary
    weights, row_topics, row_counts = counts.weights, counts.row_topics, counts.row_counts
    coefficients, smoothing = counts.of_topics, 0.0
    for k in range(alpha.size):
        coefficients[k] = alpha[k] / summary[k]
        smoothing += beta * coefficients[k]
    changed, draw = 0, np.uint64(0)
    for d in range(offsets.size - 1):
        first = first_above(positions, offsets[d], offsets[d + 1], cell.first - 1)
        last = first_above(positions, first, offsets[d + 1], cell.last - 1)
        if first == last:
            continue
        size = open_document(token_topics, offsets[d], offsets[d + 1], topics, present, places)
        document = open_buckets(topics, present, size, summary, alpha, beta, coefficients)
        for token in range(first, last):
            old, word = np.int64(token_topics[token]), words[token]
            smoothing, document = add_terms(-beta, topics, summary, alpha, old, smoothing, document)
            size = remove_token(topics, present, places, size, summary, old)
            smoothing, document = add_terms(beta, topics, summary, alpha, old, smoothing, document)
            coefficients[old] = (topics[old] + alpha[old]) / summary[old]
            if in_place:
                decrease(rows, word, old)

            occurring = nonzeros(rows, word, row_topics, row_counts)
            own = -1 if in_place else old
            of_word = word_bucket(row_topics, row_counts, occurring, own, coefficients, weights)
            x = uniform(key, draw) * (of_word + document + smoothing)
            if x < of_word:  # true for most draws
                new = np.int64(row_topics[min(first_above(weights, 0, occurring, x), occurring - 1)])
            elif x < of_word + document and size:
                new = draw_document(topics, present, size, summary, beta, x - of_word)
            else:
                new = draw_smoothing(summary, alpha, beta, x - of_word - document)

            smoothing, document = add_terms(-beta, topics, summary, alpha, new, smoothing, document)
            size = add_token(topics, present, places, size, summary, new)
            smoothing, document = add_terms(beta, topics, summary, alpha, new, smoothing, document)
            coefficients[new] = (topics[new] + alpha[new]) / summary[new]
            if in_place:
                increase(rows, word, new)
            token_topics[token] = new
            state[cell.base + positions[token], 0] = new
            changed += new != old
            draw += np.uint64(1)
        for i in range(size):
            coefficients[present[i]] = alpha[present[i]] / summary[present[i]]
        clear_document(token_topics, offsets[d], offsets[d + 1], topics)
    return changed


@inlined
def open_buckets(topics, present, size, summary, alpha, beta, coefficients):
    """Set the coefficients of the document's topics; returns the sum of the document bucket."""
    document = 0.0
    for i in range(size):
        k = present[i]
        coefficients[k] = (topics[k] + alpha[k]) / summary[k]
        document += topics[k] * beta / summary[k]
    return document


@inlined
def add_terms(beta, topics, summary, alpha, k, smoothing, document):
    """Return the sums of the smoothing and document buckets with the terms of topic k added; -beta removes them."""
    return smoothing + alpha[k] * beta / summary[k], document + topics[k] * beta / summary[k]


@inlined
def word_bucket(row_topics, row_counts, occurring, own, coefficients, cumulated):
    """Store the cumulative sums of the word bucket over the row's topics in `cumulated`; returns the total.

    own: topic under which the row counts the token itself, or -1 if the row does not count it.
    """
    total = 0.0
    for i in range(occurring):
        k = row_topics[i]
        total += (row_counts[i] - (k == own)) * coefficients[k]
        cumulated[i] = total
    return total


@inlined
def draw_document(topics, present, size, summary, beta, x):
    """Return the first topic at which the cumulative sum of the document bucket exceeds x."""
    i = 0
    x -= topics[present[0]] * beta / summary[present[0]]
    while x >= 0.0 and i < size - 1:
        i += 1
        x -= topics[present[i]] * beta / summary[present[i]]
    return np.int64(present[i])


@inlined
def draw_smoothing(summary, alpha, beta, x):
    """Return the first topic at which the cumulative sum of the smoothing bucket exceeds x."""
    k = 0
    x -= alpha[0] * beta / summary[0]
    while x >= 0.0 and k < alpha.size - 1:
        k += 1
        x -= alpha[k] * beta / summary[k]
    return k
