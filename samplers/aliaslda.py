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
from samplers.documents import (
    close_document,
    open_document,
    put_back,
    smallest_exceeding,
    take_out,
    tokens_of_cell,
)
from samplers.rows import row_count
from samplers.streams import bits, uniform
from samplers.word_tables import draw_word, make_smoothing, make_table, word_mass


@kernel
def sample_cell(cell, rows, tables, scratch, counts, alpha, beta, steps, in_place, key):
    """Sample the tokens of a cell; returns how many changed topic. For the arguments see `samplers.documents`.

    tables: those of all words, or, in place, room for one, made anew for every token: O(K). scratch: TableScratch.
    alpha: float64 (K,). steps: proposals a token. key: the random stream; 3 draws a proposal.
    """
    changed, draw = 0, np.uint64(0)
    for d in range(cell.offsets.size - 1):
        first, last = tokens_of_cell(cell, d)
        if first == last:
            continue
        size = open_document(cell, d, counts)
        for token in range(first, last):
            row, word = counts.rows[token - cell.offsets[d]], cell.words[cell.positions[token]]
            old = np.int64(cell.state[row, 0])
            size = take_out(rows, counts, size, word, old, in_place)
            own, place = old, word
            if in_place:
                own, place = np.int64(-1), 0
                tables.weights[:] = alpha / counts.summary
                make_smoothing(tables, scratch)
                make_table(tables, place, rows, word, scratch)
            of_document = document_part(rows, counts, size, word, own, beta)
            mass = of_document + word_mass(tables, place, beta, own)
            new, importance_new = old, importance(counts, tables, alpha, old)
            for _ in range(steps):
                x = uniform(key, draw) * mass
                if x < of_document:
                    proposed = np.int64(counts.present[smallest_exceeding(counts.weights, size, x)])
                else:
                    proposed = draw_word(tables, place, rows, word, beta, own, bits(key, draw + np.uint64(1)))
                importance_proposed = importance(counts, tables, alpha, proposed)
                if uniform(key, draw + np.uint64(2)) * importance_new < importance_proposed:
                    new, importance_new = proposed, importance_proposed
                draw += np.uint64(3)
            size = put_back(rows, counts, size, word, new, in_place)
            cell.state[row, 0] = new
            changed += new != old
        close_document(counts, size)
    return changed


@inlined
def importance(counts, tables, alpha, k):
    """p(k) / q(k)."""
    return (counts.topics[k] + alpha[k]) / (counts.topics[k] + tables.weights[k] * counts.summary[k])


@kernel
def document_part(rows, counts, size, word, own, beta):
    """Cumulate n_kd^- * (n_kw^- + beta) / (n_k^- + V*beta) over the document's topics in `counts.weights`; the sum."""
    total = 0.0
    for i in range(size):
        k = np.int64(counts.present[i])
        of_word = row_count(rows, word, k) - (k == own) + beta
        total += counts.topics[k] * of_word / counts.summary[k]
        counts.weights[i] = total
    return total
