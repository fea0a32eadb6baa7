"""LightLDA: O(1) per token (Yuan et al., WWW 2015, section 4; equations 4 to 9).

Proposals alternate between the word and the document. Word proposals, q_w(k) ~ (n_kw^- + beta) * weights_k with
weights_k = 1 / (n_k + V*beta) for an older n_k, are drawn from an alias table. Document proposals, q_d(k) ~ n_kd^- +
alpha_k, are the topic of another token of the document or a draw from the prior. With the target

    p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta)

a move s -> t is accepted with probability min(1, p(t) q(s) / (p(s) q(t))), in which the word factors cancel for q_w and
the document factors for q_d. This differs from the published code in that q in the ratio is the probability with which
the move is actually proposed, the token itself is excluded from the table and the row, and the counts of the document
are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, unmanaged_kernel
from ooc.rng import random_bits, uniform
from ooc.workers.intrinsics import prefetch
from samplers.lda.document_kernels import (
    DocumentCell,
    DocumentCountsScratch,
    clear_document,
    count_document,
    first_above,
)
from samplers.lda.token_kernels import GroupPrior, draw_prior
from samplers.lda.word_tables import WordAliasTables, choose_word_entry, make_smoothing, make_table, settle_word
from samplers.lda.word_topic_rows import WordTopicRows, decrease, increase, prefetch_row, row_count

PROPOSALS = ("cycle", "word", "doc")
CYCLE, WORD, DOCUMENT = range(3)
BATCH = 64


class LightLdaArguments(NamedTuple):
    """Arguments of the kernels that sample single tokens; see `sample_cell`."""

    cell: DocumentCell
    rows: WordTopicRows
    tables: WordAliasTables
    counts: DocumentCountsScratch
    prior: GroupPrior
    alpha: np.ndarray
    beta: float
    proposal: int
    in_place: bool
    key: np.uint64


class ProposalBatch(NamedTuple):
    """Proposals for the next tokens of a document, and the counts n_kw that their acceptance needs.

    Proposals are drawn and counts looked up for many tokens at once, so that many memory reads overlap. This is
    possible because word proposals do not depend on earlier tokens, and document proposals, which do, rarely change.

    topics, counts: int64 (B,), topic of each token and its n_kw.
    word, word_counts, document, document_counts: int64 (B, steps), proposed topics and their n_kw.
    """

    topics: np.ndarray
    counts: np.ndarray
    word: np.ndarray
    word_counts: np.ndarray
    document: np.ndarray
    document_counts: np.ndarray


@kernel
def sample_cell(cell, rows, word_tables, scratch, counts, prior, alpha, beta, proposal, steps, in_place, key):
    """Sample the tokens of a cell and return how many changed topic.

    See `samplers.lda.document_kernels` for the other arguments.

    word_tables: the tables of all words or, in place, space for a single table, which is rebuilt for every token in
        O(K).
    scratch: AliasTableScratch.
    prior: prior of the topics in a document.
    alpha: the same prior as float64 (K,).
    proposal: CYCLE, WORD or DOCUMENT.
    steps: number of word proposals, document proposals, or pairs of both, per token.
    key: key of the random stream; 4 draws per step.
    """
    size = 1 if in_place else BATCH
    topics, own_counts = np.empty(size, np.int64), np.empty(size, np.int64)
    word, word_counts = np.empty((size, steps), np.int64), np.empty((size, steps), np.int64)
    document, document_counts = np.empty((size, steps), np.int64), np.empty((size, steps), np.int64)
    batch = ProposalBatch(topics, own_counts, word, word_counts, document, document_counts)
    chain = LightLdaArguments(cell, rows, word_tables, counts, prior, alpha, beta, proposal, in_place, key)
    return sample_documents(chain, batch, scratch)


@unmanaged_kernel
def sample_documents(chain, batch, scratch):
    """Sample the tokens of the cell and return how many changed topic."""
    cell, topics = chain.cell, chain.counts.topics
    steps, changed, draw = batch.word.shape[1], 0, np.uint64(0)
    for d in range(cell.offsets.size - 1):
        document = cell.offsets[d], cell.offsets[d + 1]
        first = first_above(cell.positions, document[0], document[1], cell.first - 1)
        last = first_above(cell.positions, first, document[1], cell.last - 1)
        if first == last:
            continue
        count_document(cell.topics, document[0], document[1], topics)
        while first < last:
            after = min(first + batch.topics.size, last)
            if chain.in_place:
                take_out_of_row(chain, first, scratch)
            propose(chain, batch, document, first, after, draw)
            for token in range(first, after):
                changed += sample_token(chain, batch, token - first, document, token, draw)
                draw += np.uint64(4 * steps)
            if chain.in_place:
                increase(chain.rows, cell.words[first], np.int64(cell.topics[first]))
            first = after
        clear_document(cell.topics, document[0], document[1], topics)
    return changed


@inlined
def take_out_of_row(chain, token, scratch):
    """Remove a token from its word's row, and build the alias tables without the token (in place)."""
    topic, word, summary = np.int64(chain.cell.topics[token]), chain.cell.words[token], chain.counts.summary
    decrease(chain.rows, word, topic)
    for k in range(summary.size):
        chain.tables.weights[k] = 1.0 / (summary[k] - (k == topic))
    make_smoothing(chain.tables, scratch)
    make_table(chain.tables, 0, chain.rows, word, scratch)


@inlined
def propose(chain, batch, document, first, after, draw):
    """Fill `batch` for tokens first to after of a document, whose tokens are document[0] to document[1]."""
    rows, tables, words, topics = chain.rows, chain.tables, chain.cell.words, chain.cell.topics
    steps, smoothing_mass = batch.word.shape[1], chain.beta * tables.masses[-1]
    for i in range(after - first):
        batch.topics[i] = topics[first + i]
        prefetch_row(rows, words[first + i], batch.topics[i])
    for i in range(after - first):
        place = 0 if chain.in_place else np.int64(words[first + i])
        mass = tables.masses[place] - (0.0 if chain.in_place else tables.weights[batch.topics[i]])
        for step in range(steps):
            n = draw + np.uint64(4 * (i * steps + step))
            if chain.proposal != DOCUMENT:
                batch.word[i, step] = choose_word_entry(tables, place, mass, smoothing_mass, random_bits(chain.key, n))
                prefetch(tables.entries, batch.word[i, step])
            if chain.proposal != WORD:
                u = uniform(chain.key, n + np.uint64(2))
                batch.document[i, step] = draw_document(topics, document, first + i, chain.prior, u)
                prefetch_row(rows, words[first + i], batch.document[i, step])
    for i in range(after - first):
        place = 0 if chain.in_place else np.int64(words[first + i])
        own = -1 if chain.in_place else batch.topics[i]
        batch.counts[i] = row_count(rows, words[first + i], batch.topics[i])
        if chain.proposal != DOCUMENT:
            for step in range(steps):
                stream = random_bits(chain.key, draw + np.uint64(4 * (i * steps + step)))
                batch.word[i, step] = settle_word(tables, place, batch.word[i, step], own, batch.counts[i], stream)
                prefetch_row(rows, words[first + i], batch.word[i, step])
    for i in range(after - first):
        for step in range(steps):
            if chain.proposal != DOCUMENT:
                batch.word_counts[i, step] = row_count(rows, words[first + i], batch.word[i, step])
            if chain.proposal != WORD:
                batch.document_counts[i, step] = row_count(rows, words[first + i], batch.document[i, step])


@inlined
def sample_token(chain, batch, i, document, token, draw):
    """Remove a token, accept or reject its proposals batch.word[i] and batch.document[i], and add it back.

    Returns whether its topic changed.
    """
    cell, alpha, beta, weights, old = chain.cell, chain.alpha, chain.beta, chain.tables.weights, batch.topics[i]
    topics, summary = chain.counts.topics, chain.counts.summary
    topics[old] -= 1
    summary[old] -= 1.0
    own, new, of_new = (np.int64(-1), old, batch.counts[i]) if chain.in_place else (old, old, batch.counts[i] - 1)
    for step in range(batch.word.shape[1]):  # branch-free moves: a branch would be mispredicted
        if chain.proposal != DOCUMENT:
            proposed = batch.word[i, step]
            forward = (topics[proposed] + alpha[proposed]) * weights[new] * summary[new]
            back = (topics[new] + alpha[new]) * weights[proposed] * summary[proposed]
            moves = uniform(chain.key, draw + np.uint64(1)) * back < forward
            of_new = batch.word_counts[i, step] - (proposed == own) if moves else of_new
            new = proposed if moves else new
        if chain.proposal != WORD:
            u = uniform(chain.key, draw + np.uint64(2))
            proposed = draw_document(cell.topics, document, token, chain.prior, u)
            of_proposed = batch.document_counts[i, step]
            if proposed != batch.document[i, step]:
                of_proposed = row_count(chain.rows, cell.words[token], proposed)
            of_proposed -= proposed == own
            forward, back = (of_proposed + beta) * summary[new], (of_new + beta) * summary[proposed]
            moves = uniform(chain.key, draw + np.uint64(3)) * back < forward
            of_new = of_proposed if moves else of_new
            new = proposed if moves else new
        draw += np.uint64(4)
    topics[new] += 1
    summary[new] += 1.0
    cell.topics[token] = new
    cell.state[cell.base + cell.positions[token], 0] = new
    return new != old


@inlined
def draw_document(token_topics, document, token, prior, u):
    """Draw a topic from n_kd^- + alpha_k: the topic of another token of the document, or one from the prior."""
    others = document[1] - document[0] - 1
    x = u * (others + prior.total)
    if x < others:
        other = document[0] + int(x)
        topic = np.int64(token_topics[other + (other >= token)])
    else:
        topic = draw_prior(prior, (x - others) / prior.total)
    return topic
