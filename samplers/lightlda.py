"""LightLDA: O(1) a token (Yuan et al., WWW 2015, section 4; equations 4 to 9).

Proposals come in turn from the word, q_w(k) ~ (n_kw^- + beta) * weights_k, weights_k being 1 over an older
n_k + V*beta, drawn from an alias table, and from the document, q_d(k) ~ n_kd^- + alpha_k, drawn as the topic of
another of its tokens or from the prior. With the target

    p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta)

a move s -> t is accepted with the probability min(1, p(t) q(s) / (p(s) q(t))), where for q_w the word factors cancel
and for q_d those of the document. Deviations from the published code: q in the ratio is the probability with which the
move would really be proposed. The token itself is taken out of table and row, and the document's counts are exact.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, kernel
from samplers.documents import close_document, open_document, put_back, take_out, tokens_of_cell
from samplers.groups import draw_prior
from samplers.rows import row_count
from samplers.streams import bits, uniform
from samplers.word_tables import draw_word, make_smoothing, make_table

PROPOSALS = ("cycle", "word", "doc")
CYCLE, WORD, DOCUMENT = range(3)


@kernel
def sample_cell(cell, rows, tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key):
    """Sample the tokens of a cell; returns how many changed topic. For the arguments see `samplers.documents`.

    tables: those of all words, or, in place, room for one, made anew for every token: O(K). scratch: TableScratch.
    prior: that of the topics in a document; alpha: the same as float64 (K,). proposal: CYCLE, WORD or DOCUMENT. steps:
    for each token so many word proposals, document proposals, or both in turn. key: the random stream; 2 draws each.
    """
    changed, draw = 0, np.uint64(0)
    for d in range(cell.offsets.size - 1):
        first, last = tokens_of_cell(cell, d)
        if first == last:
            continue
        size = open_document(cell, d, counts)
        length = cell.offsets[d + 1] - cell.offsets[d]
        for token in range(first, last):
            i, word = token - cell.offsets[d], cell.words[cell.positions[token]]
            old = np.int64(cell.state[counts.rows[i], 0])
            size = take_out(rows, counts, size, word, old, in_place)
            own, place = old, word
            if in_place:
                own, place = np.int64(-1), 0
                tables.weights[:] = 1.0 / counts.summary
                make_smoothing(tables, scratch)
                make_table(tables, place, rows, word, scratch)
            new = old
            for _ in range(steps):
                if proposal != DOCUMENT:
                    proposed = draw_word(tables, place, rows, word, beta, own, bits(key, draw))
                    ratio = word_ratio(counts, tables, alpha, new, proposed)
                    new = proposed if uniform(key, draw + np.uint64(1)) < ratio else new
                    draw += np.uint64(2)
                if proposal != WORD:
                    proposed = draw_document(cell, counts, length, i, prior, uniform(key, draw))
                    ratio = document_ratio(rows, counts, word, own, beta, new, proposed)
                    new = proposed if uniform(key, draw + np.uint64(1)) < ratio else new
                    draw += np.uint64(2)
            size = put_back(rows, counts, size, word, new, in_place)
            cell.state[counts.rows[i], 0] = new
            changed += new != old
        close_document(counts, size)
    return changed


@inlined
def word_ratio(counts, tables, alpha, s, t):
    """p(t) q_w(s) / (p(s) q_w(t)): the factors n_kw^- + beta of p and q_w cancel."""
    forward = (counts.topics[t] + alpha[t]) * tables.weights[s] * counts.summary[s]
    return forward / ((counts.topics[s] + alpha[s]) * tables.weights[t] * counts.summary[t])


@inlined
def document_ratio(rows, counts, word, own, beta, s, t):
    """p(t) q_d(s) / (p(s) q_d(t)): the factors n_kd^- + alpha_k of p and q_d cancel."""
    if s == t:
        return 1.0
    of_s = row_count(rows, word, s) - (s == own) + beta
    of_t = row_count(rows, word, t) - (t == own) + beta
    return of_t * counts.summary[s] / (of_s * counts.summary[t])


@inlined
def draw_document(cell, counts, length, i, prior, u):
    """A topic from n_kd^- + alpha_k: that of another token than the document's i-th, or one from the prior."""
    others = length - 1
    x = u * (others + prior.total)
    if x >= others:
        return draw_prior(prior, (x - others) / prior.total)
    j = int(x)
    return np.int64(cell.state[counts.rows[j + (j >= i)], 0])
