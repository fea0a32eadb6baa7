"""Reference sampler: collapsed Gibbs sampling of LDA, O(K) per token (Griffiths and Steyvers, 2004).

p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta)
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from ooc.rng import uniform
from samplers.lda.document_kernels import clear_document, count_document, first_above
from samplers.lda.word_prior import add_to, reset
from samplers.lda.word_topic_rows import decrease, increase, nonzeros


@unmanaged_kernel
def sample_cell(cell, rows, counts, alpha, beta, in_place, key, word_prior=None):
    """Sample the tokens of a cell and return how many changed topic.

    See `samplers.lda.document_kernels` for the other arguments.

    alpha: float64 (K,).
    key: key of the random stream; one draw per token.
    word_prior: `samplers.lda.word_prior.WordPrior`, or None.
    """
    offsets, token_topics, words, positions, state = cell.offsets, cell.topics, cell.words, cell.positions, cell.state
    topics, summary = counts.topics, counts.summary
    weights, of_word, row_topics, row_counts = counts.weights, counts.of_topics, counts.row_topics, counts.row_counts
    of_word[:] = 0.0
    changed, draw = 0, np.uint64(0)
    for d in range(offsets.size - 1):
        first = first_above(positions, offsets[d], offsets[d + 1], cell.first - 1)
        last = first_above(positions, first, offsets[d + 1], cell.last - 1)
        if first == last:
            continue
        count_document(token_topics, offsets[d], offsets[d + 1], topics)
        for token in range(first, last):
            old, word = np.int64(token_topics[token]), words[token]
            topics[old] -= 1
            summary[old] -= 1.0
            if in_place:
                decrease(rows, word, old)
            occurring = nonzeros(rows, word, row_topics, row_counts)
            for i in range(occurring):
                of_word[row_topics[i]] = row_counts[i]
            of_word[old] -= not in_place  # a frozen row still counts the token
            add_to(of_word, word_prior, word)
            new = draw_topic(topics, of_word, summary, alpha, beta, weights, uniform(key, draw))
            of_word[old] = 0.0
            for i in range(occurring):
                of_word[row_topics[i]] = 0.0
            reset(of_word, word_prior, word)
            if in_place:
                increase(rows, word, new)
            topics[new] += 1
            summary[new] += 1.0
            token_topics[token] = new
            state[cell.base + positions[token], 0] = new
            changed += new != old
            draw += np.uint64(1)
        clear_document(token_topics, offsets[d], offsets[d + 1], topics)
    return changed


@inlined
def draw_topic(of_document, of_word, summary, alpha, beta, cumulated, u):
    """Draw the topic of a token that was removed from all counts, using a uniform number u.

    of_document: int32 (K,), n_kd^-.
    of_word: float64 (K,), n_kw^-.
    summary: float64 (K,), n_k^- + V*beta.
    cumulated: float64 (K,), set to the cumulative sums.
    """
    total = 0.0
    for k in range(alpha.size):
        total += (of_document[k] + alpha[k]) * (of_word[k] + beta) / summary[k]
        cumulated[k] = total
    return min(first_above(cumulated, 0, alpha.size, u * total), alpha.size - 1)
