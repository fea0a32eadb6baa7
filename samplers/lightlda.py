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

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, unmanaged_kernel
from samplers.documents import clear_document, count_document, first_above
from samplers.groups import draw_prior
from samplers.rows import decrease, increase, row_count
from samplers.streams import bits, uniform
from samplers.word_tables import choose_word_entry, make_smoothing, make_table, settle_word

PROPOSALS = ("cycle", "word", "doc")
CYCLE, WORD, DOCUMENT = range(3)
BATCH = 64


class Batch(NamedTuple):
    """Proposals for the next tokens of a document, and the counts n_kw that judge them.

    They are drawn and looked up for many tokens at a time, so that many reads of memory are under way at once: the
    word proposals do not depend on what becomes of the tokens before, and for those of the document, which do, what
    they would be now is mostly what they will be. topics, counts: int64 (B,), each token's topic and its n_kw. word,
    word_counts, document, document_counts: int64 (B, steps).
    """

    topics: np.ndarray
    counts: np.ndarray
    word: np.ndarray
    word_counts: np.ndarray
    document: np.ndarray
    document_counts: np.ndarray


@kernel
def sample_cell(cell, rows, word_tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key):
    """Sample the tokens of a cell; returns how many changed topic. For the arguments see `samplers.documents`.

    word_tables: those of all words, or, in place, room for one, made anew for every token: O(K). scratch: TableScratch.
    prior: that of the topics in a document; alpha: the same as float64 (K,). proposal: CYCLE, WORD or DOCUMENT. steps:
    for each token so many word proposals, document proposals, or both in turn. key: the random stream, 4 draws a step.
    """
    size = 1 if in_place else BATCH
    single, many = (size,), (size, steps)
    batch = Batch(
        np.empty(single, np.int64),
        np.empty(single, np.int64),
        np.empty(many, np.int64),
        np.empty(many, np.int64),
        np.empty(many, np.int64),
        np.empty(many, np.int64),
    )
    return _sample(cell, rows, word_tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key, batch)


@unmanaged_kernel
def _sample(cell, rows, word_tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key, batch):
    changed, draw = 0, np.uint64(0)
    for d in range(cell.offsets.size - 1):
        begin, end = cell.offsets[d], cell.offsets[d + 1]
        first = first_above(cell.positions, begin, end, cell.first - 1)
        last = first_above(cell.positions, first, end, cell.last - 1)
        if first == last:
            continue
        count_document(cell.topics, begin, end, counts.topics)
        while first < last:
            after = min(first + batch.topics.size, last)
            if in_place:
                take_out_of_row(rows, word_tables, scratch, counts.summary, cell.words[first], cell.topics[first])
            propose(
                cell, begin, end, first, after, rows, word_tables, prior, beta, proposal, in_place, key, draw, batch
            )
            for token in range(first, after):
                changed += sample_token(
                    cell,
                    begin,
                    end,
                    token,
                    rows,
                    word_tables,
                    counts,
                    prior,
                    alpha,
                    beta,
                    proposal,
                    in_place,
                    key,
                    draw,
                    batch,
                    token - first,
                )
                draw += np.uint64(4 * steps)
            if in_place:
                increase(rows, cell.words[first], np.int64(cell.topics[first]))
            first = after
        clear_document(cell.topics, begin, end, counts.topics)
    return changed


@inlined
def take_out_of_row(rows, word_tables, scratch, summary, word, topic):
    """Take a token out of its word's row and make the tables of what is left, in place."""
    decrease(rows, word, np.int64(topic))
    for k in range(summary.size):
        word_tables.weights[k] = 1.0 / (summary[k] - (k == topic))
    make_smoothing(word_tables, scratch)
    make_table(word_tables, 0, rows, word, scratch)


@inlined
def propose(cell, begin, end, first, after, rows, word_tables, prior, beta, proposal, in_place, key, draw, batch):
    """Fill `batch` for the tokens first to after of the document with tokens begin to end."""
    steps, smoothing_mass = batch.word.shape[1], beta * word_tables.masses[-1]
    for i in range(after - first):
        batch.topics[i] = cell.topics[first + i]
        batch.counts[i] = row_count(rows, cell.words[first + i], batch.topics[i])
    if proposal != DOCUMENT:
        for i in range(after - first):
            place = 0 if in_place else np.int64(cell.words[first + i])
            mass = word_tables.masses[place]
            if not in_place:
                mass -= word_tables.weights[batch.topics[i]]
            for step in range(steps):
                stream = bits(key, draw + np.uint64(4 * (i * steps + step)))
                batch.word[i, step] = choose_word_entry(word_tables, place, mass, smoothing_mass, stream)
        for i in range(after - first):
            place = 0 if in_place else np.int64(cell.words[first + i])
            own = -1 if in_place else batch.topics[i]
            for step in range(steps):
                stream = bits(key, draw + np.uint64(4 * (i * steps + step)))
                batch.word[i, step] = settle_word(word_tables, place, batch.word[i, step], own, batch.counts[i], stream)
        for i in range(after - first):
            for step in range(steps):
                batch.word_counts[i, step] = row_count(rows, cell.words[first + i], batch.word[i, step])
    if proposal != WORD:
        for i in range(after - first):
            for step in range(steps):
                u = uniform(key, draw + np.uint64(4 * (i * steps + step) + 2))
                topic = draw_document(cell.topics, begin, end, first + i, prior, u)
                batch.document[i, step] = topic
                batch.document_counts[i, step] = row_count(rows, cell.words[first + i], topic)


@inlined
def sample_token(
    cell, begin, end, token, rows, word_tables, counts, prior, alpha, beta, proposal, in_place, key, draw, batch, i
):
    """Take a token out, let it walk over the proposals number i of `batch`, and put it back; returns if it moved."""
    topics, summary, weights, old = counts.topics, counts.summary, word_tables.weights, batch.topics[i]
    topics[old] -= 1
    summary[old] -= 1.0
    own, new, of_new = (np.int64(-1), old, batch.counts[i]) if in_place else (old, old, batch.counts[i] - 1)
    for step in range(batch.word.shape[1]):
        if proposal != DOCUMENT:
            proposed = batch.word[i, step]
            forward = (topics[proposed] + alpha[proposed]) * weights[new] * summary[new]
            back = (topics[new] + alpha[new]) * weights[proposed] * summary[proposed]
            moves = uniform(key, draw + np.uint64(1)) * back < forward
            of_new = batch.word_counts[i, step] - (proposed == own) if moves else of_new
            new = proposed if moves else new
        if proposal != WORD:
            u = uniform(key, draw + np.uint64(2))
            proposed = draw_document(cell.topics, begin, end, token, prior, u)
            of_proposed = batch.document_counts[i, step]
            if proposed != batch.document[i, step]:
                of_proposed = row_count(rows, cell.words[token], proposed)
            of_proposed -= proposed == own
            forward, back = (of_proposed + beta) * summary[new], (of_new + beta) * summary[proposed]
            moves = uniform(key, draw + np.uint64(3)) * back < forward
            of_new = of_proposed if moves else of_new
            new = proposed if moves else new
        draw += np.uint64(4)
    topics[new] += 1
    summary[new] += 1.0
    cell.topics[token] = new
    cell.state[cell.base + cell.positions[token], 0] = new
    return new != old


@inlined
def draw_document(token_topics, begin, end, token, prior, u):
    """A topic from n_kd^- + alpha_k: that of another of the document's tokens, begin to end, or one from the prior."""
    others = end - begin - 1
    x = u * (others + prior.total)
    if x < others:
        other = begin + int(x)
        topic = np.int64(token_topics[other + (other >= token)])
    else:
        topic = draw_prior(prior.topics, prior.cut, prior.alias, (x - others) / prior.total)
    return topic
