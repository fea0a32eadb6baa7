"""AliasLDA: O(K_d) a token (Li, Ahmed, Ravi and Smola, KDD 2014, section 3).

The conditional falls into a part with only the document's topics and a rest, drawn from a table made earlier:

    p(k) ~ n_kd^- * (n_kw^- + beta) / (n_k^- + V*beta)  +  alpha_k * (n_kw^- + beta) / (n_k^- + V*beta)

Proposals come from q, the same with the table's weights_k, alpha_k over an older n_k + V*beta, in the rest, and

    p(k) / q(k)  =  (n_kd^- + alpha_k) / (n_kd^- + weights_k * (n_k^- + V*beta))

so that a move s -> t is accepted with the probability min(1, p(t) q(s) / (p(s) q(t))). The table's n_kw are those of
the row that stands in the ratio, the token itself taken out of both.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, kernel
from samplers.documents import clear_document, first_above, open_document, put_back, take_out
from samplers.rows import decrease, increase, row_count
from samplers.streams import bits, uniform
from samplers.word_tables import draw_word, make_smoothing, make_table


@kernel
def sample_cell(cell, rows, word_tables, scratch, counts, alpha, beta, steps, in_place, key):
    """Sample the tokens of a cell; returns how many changed topic. For the arguments see `samplers.documents`.

    word_tables: those of all words, or, in place, room for one, made anew for every token: O(K). scratch: TableScratch.
    alpha: float64 (K,). steps: proposals a token. key: the random stream; 3 draws a proposal.
    """
    offsets, token_topics, words, positions, state = cell.offsets, cell.topics, cell.words, cell.positions, cell.state
    topics, present, places, summary, cumulated = counts[:5]
    _, masks, starts, dense, tables = rows
    weights, smoothing, total, sizes, masses, entries, table_starts = word_tables
    changed, draw = 0, np.uint64(0)
    for d in range(offsets.size - 1):
        first = first_above(positions, offsets[d], offsets[d + 1], cell.first - 1)
        last = first_above(positions, first, offsets[d + 1], cell.last - 1)
        if first == last:
            continue
        size = open_document(token_topics, offsets[d], offsets[d + 1], topics, present, places)
        for token in range(first, last):
            old, word = np.int64(token_topics[token]), words[token]
            size = take_out(topics, present, places, size, summary, old)
            if in_place:
                decrease(masks, starts, dense, tables, word, old)
                weights[:] = alpha / summary
                make_smoothing(word_tables, scratch)
                make_table(word_tables, 0, rows, word, scratch)
                own, own_count, place, mass = np.int64(-1), np.int64(0), 0, masses[0]
            else:
                own, own_count = old, row_count(masks, starts, dense, tables, word, old)
                place, mass = word, masses[word] - weights[old]
            of_document = document_part(
                topics, present, size, summary, masks, starts, dense, tables, word, own, beta, cumulated
            )
            of_word = mass + beta * total[0]
            new, importance_new = old, importance(topics, summary, weights, alpha, old)
            for _ in range(steps):
                x = uniform(key, draw) * (of_document + of_word)
                if x < of_document:
                    proposed = np.int64(present[min(first_above(cumulated, 0, size, x), size - 1)])
                else:
                    stream = bits(key, draw + np.uint64(1))
                    proposed = draw_word(
                        entries,
                        table_starts[place],
                        sizes[place],
                        mass,
                        own,
                        own_count,
                        smoothing,
                        beta * total[0],
                        stream,
                    )
                importance_proposed = importance(topics, summary, weights, alpha, proposed)
                if uniform(key, draw + np.uint64(2)) * importance_new < importance_proposed:
                    new, importance_new = proposed, importance_proposed
                draw += np.uint64(3)
            if in_place:
                increase(masks, starts, dense, tables, word, new)
            size = put_back(topics, present, places, size, summary, new)
            token_topics[token] = new
            state[cell.base + positions[token], 0] = new
            changed += new != old
        clear_document(token_topics, offsets[d], offsets[d + 1], topics)
    return changed


@inlined
def importance(topics, summary, weights, alpha, k):
    """p(k) / q(k)."""
    return (topics[k] + alpha[k]) / (topics[k] + weights[k] * summary[k])


@inlined
def document_part(topics, present, size, summary, masks, starts, dense, tables, word, own, beta, cumulated):
    """Cumulate n_kd^- * (n_kw^- + beta) / (n_k^- + V*beta) over the document's topics; returns the sum."""
    total = 0.0
    for i in range(size):
        k = np.int64(present[i])
        of_word = row_count(masks, starts, dense, tables, word, k) - (k == own) + beta
        total += topics[k] * of_word / summary[k]
        cumulated[i] = total
    return total
