"""AliasLDA: O(K_d) per token (Li, Ahmed, Ravi and Smola, KDD 2014, section 3).

The conditional splits into a part over the document's topics only and a rest, drawn from a table built earlier:

    p(k) ~ n_kd^- * (n_kw^- + beta) / (n_k^- + V*beta)  +  alpha_k * (n_kw^- + beta) / (n_k^- + V*beta)

Proposals come from q, whose second part uses the table's weights_k, alpha_k over an older n_k + V*beta, so that

    p(k) / q(k)  =  (n_kd^- + alpha_k) / (n_kd^- + weights_k * (n_k^- + V*beta))

A move s -> t is accepted with probability min(1, p(t) q(s) / (p(s) q(t))). The table and the ratio use the same row
n_kw; the token itself is excluded from both.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from ooc.rng import random_bits, uniform
from samplers.lda.document_kernels import add_token, clear_document, first_above, open_document, remove_token
from samplers.lda.word_tables import choose_word_entry, make_smoothing, make_table, settle_word
from samplers.lda.word_topic_rows import decrease, increase, row_count


@unmanaged_kernel
def sample_cell(cell, rows, word_tables, scratch, counts, alpha, beta, steps, in_place, key):
    """Sample the tokens of a cell and return how many changed topic.

    See `samplers.lda.document_kernels` for the other arguments.

    word_tables: the tables of all words or, in place, space for a single table, which is rebuilt for every token in
        O(K).
    scratch: AliasTableScratch.
    alpha: float64 (K,).
    steps: number of proposals per token.
    key: key of the random stream; 3 draws per proposal.
    """
    offsets, token_topics, words, positions, state = cell.offsets, cell.topics, cell.words, cell.positions, cell.state
    topics, present, places, summary, cumulated = counts[:5]
    weights = word_tables.weights
    changed, draw = 0, np.uint64(0)
    for d in range(offsets.size - 1):
        first = first_above(positions, offsets[d], offsets[d + 1], cell.first - 1)
        last = first_above(positions, first, offsets[d + 1], cell.last - 1)
        if first == last:
            continue
        size = open_document(token_topics, offsets[d], offsets[d + 1], topics, present, places)
        for token in range(first, last):
            old, word = np.int64(token_topics[token]), words[token]
            size = remove_token(topics, present, places, size, summary, old)
            if in_place:
                decrease(rows, word, old)
                for k in range(alpha.size):
                    weights[k] = alpha[k] / summary[k]
                make_smoothing(word_tables, scratch)
                make_table(word_tables, 0, rows, word, scratch)
                own, own_count, place, mass = np.int64(-1), np.int64(0), np.int64(0), word_tables.masses[0]
            else:
                own, own_count, place = old, row_count(rows, word, old), np.int64(word)
                mass = word_tables.masses[word] - weights[old]
            of_document = document_part(topics, present, size, summary, rows, word, own, beta, cumulated)
            smoothing_mass = beta * word_tables.masses[-1]
            new, importance_new = old, importance(topics, summary, weights, alpha, old)
            for _ in range(steps):
                x = uniform(key, draw) * (of_document + mass + smoothing_mass)
                if x < of_document:
                    proposed = np.int64(present[min(first_above(cumulated, 0, size, x), size - 1)])
                else:
                    stream = random_bits(key, draw + np.uint64(1))
                    chosen = choose_word_entry(word_tables, place, mass, smoothing_mass, stream)
                    proposed = settle_word(word_tables, place, chosen, own, own_count, stream)
                importance_proposed = importance(topics, summary, weights, alpha, proposed)
                if uniform(key, draw + np.uint64(2)) * importance_new < importance_proposed:
                    new, importance_new = proposed, importance_proposed
                draw += np.uint64(3)
            if in_place:
                increase(rows, word, new)
            size = add_token(topics, present, places, size, summary, new)
            token_topics[token] = new
            state[cell.base + positions[token], 0] = new
            changed += new != old
        clear_document(token_topics, offsets[d], offsets[d + 1], topics)
    return changed


@inlined
def importance(topics, summary, weights, alpha, k):
    """Return p(k) / q(k)."""
    return (topics[k] + alpha[k]) / (topics[k] + weights[k] * summary[k])


@inlined
def document_part(topics, present, size, summary, rows, word, own, beta, cumulated):
    """Store the cumulative sums of n_kd^- * (n_kw^- + beta) / (n_k^- + V*beta) over the document's topics in
    `cumulated`, and return the total."""
    total = 0.0
    for i in range(size):
        k = np.int64(present[i])
        of_word = row_count(rows, word, k) - (k == own) + beta
        total += topics[k] * of_word / summary[k]
        cumulated[i] = total
    return total
