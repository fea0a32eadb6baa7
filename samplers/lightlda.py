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
from samplers.documents import clear_document, count_document, first_above
from samplers.groups import draw_prior
from samplers.rows import decrease, increase, row_count
from samplers.streams import bits, uniform
from samplers.word_tables import draw_word, make_smoothing, make_table

PROPOSALS = ("cycle", "word", "doc")
CYCLE, WORD, DOCUMENT = range(3)


@kernel
def sample_cell(cell, rows, word_tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key):
    """Sample the tokens of a cell; returns how many changed topic. For the arguments see `samplers.documents`.

    word_tables: those of all words, or, in place, room for one, made anew for every token: O(K). scratch: TableScratch.
    prior: that of the topics in a document; alpha: the same as float64 (K,). proposal: CYCLE, WORD or DOCUMENT. steps:
    for each token so many word proposals, document proposals, or both in turn. key: the random stream, 4 draws a step.
    """
    offsets, positions, token_topics, topics = cell.offsets, cell.positions, cell.topics, counts.topics
    changed = 0
    for d in range(offsets.size - 1):
        first = first_above(positions, offsets[d], offsets[d + 1], cell.first - 1)
        last = first_above(positions, first, offsets[d + 1], cell.last - 1)
        if first < last:
            count_document(token_topics, offsets[d], offsets[d + 1], topics)
            changed += sample_document(
                cell,
                d,
                first,
                last,
                rows,
                word_tables,
                scratch,
                counts,
                prior,
                alpha,
                beta,
                proposal,
                steps,
                in_place,
                key,
            )
            clear_document(token_topics, offsets[d], offsets[d + 1], topics)
    return changed


@inlined
def sample_document(
    cell, d, first, last, rows, word_tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key
):
    """Sample the tokens first to last of document d, whose topics are counted; returns how many changed topic."""
    begin, end, token_topics, words = cell.offsets[d], cell.offsets[d + 1], cell.topics, cell.words
    topics, summary = counts.topics, counts.summary
    _, masks, starts, dense, tables = rows
    weights, smoothing, total, sizes, masses, entries, table_starts = word_tables
    number, prior_total, _, cut, alias = prior
    changed, draw = 0, np.uint64(4 * steps * (first - cell.offsets[0]))
    for token in range(first, last):
        old, word = np.int64(token_topics[token]), words[token]
        topics[old] -= 1
        summary[old] -= 1.0
        if in_place:
            decrease(masks, starts, dense, tables, word, old)
            weights[:] = 1.0 / summary
            make_smoothing(word_tables, scratch)
            make_table(word_tables, 0, rows, word, scratch)
            own, own_count, place, mass = np.int64(-1), np.int64(0), 0, masses[0]
            of_new = row_count(masks, starts, dense, tables, word, old)
        else:
            own, own_count = old, row_count(masks, starts, dense, tables, word, old)
            place, mass, of_new = word, masses[word] - weights[old], own_count - 1
        new, start, size, smoothing_mass = old, table_starts[place], sizes[place], beta * total[0]
        for _ in range(steps):
            if proposal != DOCUMENT:
                stream = bits(key, draw)
                proposed = draw_word(entries, start, size, mass, own, own_count, smoothing, smoothing_mass, stream)
                ratio = word_ratio(topics, summary, weights, alpha, new, proposed)
                if proposed != new and uniform(key, draw + np.uint64(1)) < ratio:
                    new, of_new = proposed, row_count(masks, starts, dense, tables, word, proposed) - (proposed == own)
            if proposal != WORD:
                u = uniform(key, draw + np.uint64(2))
                proposed = draw_document(token_topics, begin, end, token, number, prior_total, cut, alias, u)
                if proposed != new:
                    of_proposed = row_count(masks, starts, dense, tables, word, proposed) - (proposed == own)
                    ratio = (of_proposed + beta) * summary[new] / ((of_new + beta) * summary[proposed])
                    if uniform(key, draw + np.uint64(3)) < ratio:
                        new, of_new = proposed, of_proposed
            draw += np.uint64(4)
        if in_place:
            increase(masks, starts, dense, tables, word, new)
        topics[new] += 1
        summary[new] += 1.0
        token_topics[token] = new
        cell.state[cell.base + cell.positions[token], 0] = new
        changed += new != old
    return changed


@inlined
def word_ratio(topics, summary, weights, alpha, s, t):
    """p(t) q_w(s) / (p(s) q_w(t)): the factors n_kw^- + beta of p and q_w cancel."""
    forward = (topics[t] + alpha[t]) * weights[s] * summary[s]
    return forward / ((topics[s] + alpha[s]) * weights[t] * summary[t])


@inlined
def draw_document(token_topics, begin, end, token, number, prior_total, cut, alias, u):
    """A topic from n_kd^- + alpha_k: that of another of the document's tokens, begin to end, or one from the prior."""
    others = end - begin - 1
    x = u * (others + prior_total)
    if x < others:
        other = begin + int(x)
        topic = np.int64(token_topics[other + (other >= token)])
    else:
        topic = draw_prior(number, cut, alias, (x - others) / prior_total)
    return topic
