"""Kernels of the two-phase sampler's word phase when the tokens of a word are on several machines.

A machine needs a word's row n_kw, summed over all machines, which moves around the ring with its slice. A machine that
receives the row adds the changes of its own document phase since the last visit, walks the proposals of its tokens as
in `samplers.lda.two_phase` (using the counts of the row, which include the tokens of all machines), counts the new
topics, draws new proposals from the row, and sends it on. So a row lacks only the changes of the document phases of
machines that it has not visited yet. The last column of a token is the topic under which the row counts it.

A row is sent as bytes (`samplers.lda.packed_counts`). The rows of a part's words are consecutive, so a worker reads the
arriving bytes and writes the leaving bytes in one pass.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.cpython.unsafe import numbers

from blocks.compiled import inlined, kernel, unmanaged_kernel
from ooc.rng import random_bits, uniform
from samplers.lda.packed_counts import SIZE_BYTES, read_entry, read_size, write_entry
from samplers.lda.token_kernels import draw_prior, prior_weight, word_tokens
from samplers.lda.two_phase import accept_token, move_token
from samplers.lda.word_prior import prior_of_word, weight_of
from samplers.lda.word_tables import choose_entry, fill_table, topic_of
from samplers.lda.word_topic_rows import add_tokens, clear_row, nonzeros

trailing_zeros: Any = numbers.trailing_zeros  # number of trailing zero bits of an integer: one instruction
SPARE = 1  # columns after the proposals: the topic under which the row counts the token
MOST_SPREAD = 1 << 16  # maximum number of a word's tokens that are stored one by one to draw from, if there are
_SPREAD = 16  # at most this many tokens per topic on average; otherwise an alias table is used


class RotatingRowScratch(NamedTuple):
    """Working memory of a worker.

    counted: COUNT (K,), counts of the current row, 0 between words.
    marks: uint64 (ceil(K / 64),), one bit for each topic that may have a count.
    groups: uint64 (ceil(K / 4096),), one bit for each nonzero mark.
    topics, counts: int32 (K,), the listed topics and their counts.
    order, shares, entries: int32, float64 and uint64 (K,), for an alias table.
    tokens: uint32 (MOST_SPREAD,), topic of each token.
    """

    counted: np.ndarray
    marks: np.ndarray
    groups: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    shares: np.ndarray
    order: np.ndarray
    entries: np.ndarray
    tokens: np.ndarray


@inlined
def mark(work, topic):
    """Mark a topic as one that may have a count."""
    place = np.uint64(topic)
    word = place >> np.uint64(6)
    work.marks[word] |= np.uint64(1) << (place & np.uint64(63))
    work.groups[word >> np.uint64(6)] |= np.uint64(1) << (word & np.uint64(63))


@unmanaged_kernel
def open_row(data, at, end, work):
    """Count the tokens of a row, which is the bytes from `at` to `end`."""
    topic = np.int64(-1)
    while at < end:
        step, count, at = read_entry(data, at)
        topic += step
        work.counted[topic]["count"] = count
        mark(work, topic)


@unmanaged_kernel
def list_topics(work):
    """Set `topics` and `counts` to the counted topics, ascending, and clear the marks; returns the number of topics and
    the number of tokens."""
    size, tokens, one = 0, np.int64(0), np.uint64(1)
    for group in range(work.groups.size):
        words = work.groups[group]
        work.groups[group] = 0
        while words:
            word = np.uint64(group << 6) + np.uint64(trailing_zeros(words))
            words &= words - one
            topics = work.marks[word]
            work.marks[word] = 0
            while topics:
                topic = np.int64((word << np.uint64(6)) + np.uint64(trailing_zeros(topics)))
                topics &= topics - one
                count = work.counted[topic]["count"]
                work.topics[size], work.counts[size] = topic, count
                size += count > 0
                tokens += count
    return size, tokens


@unmanaged_kernel
def close_row(size, work, data, at):
    """Write the listed topics as a row and reset the counts; returns the position after the row."""
    first, before = at + SIZE_BYTES, np.int64(-1)
    end = first
    for i in range(size):
        topic = np.int64(work.topics[i])
        end = write_entry(data, end, topic - before, np.int64(work.counts[i]))
        work.counted[topic]["count"] = 0
        before = topic
    for byte in range(SIZE_BYTES):
        data[at + byte] = (end - first) >> (8 * byte) & 255
    return end


@unmanaged_kernel
def recount_run(rows, work):
    """Count tokens under their current topics if the row counts them under others.

    rows: state of the tokens.
    """
    last = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        old, new = np.int64(rows[i, last]), np.int64(rows[i, 0])
        if old != new:
            work.counted[old]["count"] -= 1
            work.counted[new]["count"] += 1
            mark(work, new)


@unmanaged_kernel
def walk_run(rows, prior, totals, counted, key, draw):
    """Walk the proposals of tokens and return how many changed topic.

    The final topic replaces the first proposal, as counts must not change meanwhile.

    rows: state of the tokens.
    totals: `two_phase.TopicTotals`.
    draw: index of the first of M draws per token.
    """
    changed, proposals = 0, np.uint64(rows.shape[1] - 1 - SPARE)
    for i in range(rows.shape[0]):
        topic = accept_token(rows, i, prior, totals.topics, counted, key, draw, SPARE)
        draw += proposals
        changed += move_token(totals.topics, totals.changes, rows[i, 0], topic)
        rows[i, 1] = topic
    return changed


@unmanaged_kernel
def move_run(rows, work):
    """Set the topics of tokens to the final topics of their walks, and count the tokens under these topics."""
    last = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        old, new = np.int64(rows[i, 0]), np.int64(rows[i, 1])
        if old != new:
            work.counted[old]["count"] -= 1
            work.counted[new]["count"] += 1
            mark(work, new)
        rows[i, 0] = rows[i, last] = rows[i, 1]


@unmanaged_kernel
def spread_tokens(size, work):
    """Set `tokens` to the topic of each token of the listed row."""
    filled = 0
    for i in range(size):
        for _ in range(work.counts[i]):
            work.tokens[filled] = work.topics[i]
            filled += 1


@inlined
def draw_token(work, size, tokens, spread, x, random):
    """Return the topic of a random token among `tokens`, given a uniform number x below `tokens` and 64 random bits."""
    if spread:
        return np.int64(work.tokens[np.uint64(x)])
    return topic_of(work.entries[choose_entry(0, size, random)], random)


@unmanaged_kernel
def draw_run(rows, size, work, tokens, spread, prior, key, draw):
    """Draw new proposals for tokens from `n_kw^- + beta`.

    tokens: number of the word's tokens on all machines.
    spread: whether their topics are in `work.tokens`; otherwise an alias table is in `work.entries`.
    draw: index of the first of M draws per token.
    """
    others = np.float64(tokens - 1)
    stretch = tokens / max(others, 1.0)
    for i in range(rows.shape[0]):
        own = np.int64(rows[i, 0])
        own_count = np.float64(work.counted[own]["count"])
        for m in range(1, rows.shape[1] - SPARE):
            x = uniform(key, draw) * (others + prior.total)
            if x >= others:
                topic = draw_prior(prior, (x - others) / prior.total)
            else:
                stream, again = random_bits(key, draw), np.uint64(0)
                topic = draw_token(work, size, tokens, spread, x * stretch, random_bits(stream, again))
                # One of the tokens of this topic is the token itself; if it is drawn, draw again.
                while topic == own and uniform(stream, again + np.uint64(1)) * own_count < 1.0:
                    again += np.uint64(2)
                    y = uniform(stream, again) * tokens
                    topic = draw_token(work, size, tokens, spread, y, random_bits(stream, again))
            rows[i, m] = topic
            draw += np.uint64(1)


@unmanaged_kernel
def sample_word(state, bases, blocks, starts, lengths, work, prior, totals, key, draw):
    """Run the word phase for the tokens of one word on this machine, whose row is open; returns the number of listed
    topics and how many tokens changed topic."""
    proposals = np.uint64(state.shape[1] - 1 - SPARE)
    changed = 0
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        recount_run(state[row : row + lengths[run]], work)
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        changed += walk_run(state[row : row + lengths[run]], prior, totals, work.counted, key, draw)
        draw += proposals * lengths[run]
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        move_run(state[row : row + lengths[run]], work)
    size, tokens = list_topics(work)
    spread = tokens <= min(work.tokens.size, _SPREAD * size)
    if spread:
        spread_tokens(size, work)
    else:
        for i in range(size):
            work.shares[i] = work.counts[i]
        fill_table(work.topics, work.shares, work.order, size, work.entries)
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        draw_run(state[row : row + lengths[run]], size, work, tokens, spread, prior, key, draw)
        draw += proposals * lengths[run]
    return size, changed


@kernel
def word_phase(state, bases, run_offsets, blocks, starts, lengths, passage, work, common, totals, key, word_prior=None):
    """Run the word phase for the words of a part, from their arrived rows to new rows, and return how many tokens
    changed topic.

    state: topic type (N, 1+M+SPARE). bases to lengths: see `samplers.lda.token_kernels`.
    passage: `ooc.ring.packet_slots.PartInTransit`.
    common: prior of words without one of their own in word_prior, a WordPrior of these words or None.
    totals: `two_phase.TopicTotals`.
    """
    arrived, leaving, left = passage
    changed, at, to = 0, 0, 0
    draw = np.uint64(0)
    for w in range(run_offsets.size - 1):
        runs = slice(run_offsets[w], run_offsets[w + 1])
        first = at + SIZE_BYTES
        end = first + read_size(arrived, at)
        if runs.start == runs.stop:
            leaving[to : to + end - at] = arrived[at:end]
            to += end - at
        else:
            open_row(arrived, first, end, work)
            prior = common
            if word_prior is not None:
                prior = prior_of_word(word_prior, w, common)
            mine = blocks[runs], starts[runs], lengths[runs]
            size, moved = sample_word(state, bases, *mine, work, prior, totals, key, draw)
            to = close_row(size, work, leaving, to)
            draw += np.uint64(2 * word_tokens(lengths[runs]) * (state.shape[1] - 1 - SPARE))
            changed += moved
        at = end
    left[0] = to
    return changed


@kernel
def count_phase(state, bases, run_offsets, blocks, starts, lengths, arrived, leaving, work):
    """Add the tokens of this machine to the rows of a part's words, under the topics in the tokens' last column.

    arrived: rows, empty on the first machine.
    Returns the number of bytes written.
    """
    at, to, last = 0, 0, state.shape[1] - 1
    for w in range(run_offsets.size - 1):
        if arrived.size:
            first = at + SIZE_BYTES
            at = first + read_size(arrived, at)
            open_row(arrived, first, at, work)
        for run in range(run_offsets[w], run_offsets[w + 1]):
            row = bases[blocks[run]] + starts[run]
            for i in range(lengths[run]):
                topic = np.int64(state[row + i, last])
                work.counted[topic]["count"] += 1
                mark(work, topic)
        to = close_row(list_topics(work)[0], work, leaving, to)
    return to


@kernel
def rows_likelihood(data, words, prior, word_prior=None):
    """Return the word part of the joint log-likelihood of `words` rows without its topic terms, and the total number of
    topics over words.

    prior: symmetric prior of words without one of their own in word_prior, a WordPrior of these words or None.
    """
    weight = prior_weight(prior, 0)
    from_prior = math.lgamma(weight)
    likelihood, nonzeros, at = 0.0, 0, 0
    for word in range(words):
        end, topic = at + SIZE_BYTES + read_size(data, at), np.int64(-1)
        at += SIZE_BYTES
        while at < end:
            step, count, at = read_entry(data, at)
            topic += step
            if word_prior is not None:
                weight = weight_of(word_prior, word, topic, prior.weights[0])
                from_prior = math.lgamma(weight)
            likelihood += math.lgamma(count + weight) - from_prior
            nonzeros += 1
    return likelihood, nonzeros


@kernel
def unpack_rows(data, words, sizes, rows):
    """Unpack `words` rows to sizes, uint32 (W,), and rows in the form of `samplers.lda.token_kernels.group_row`,
    uint64; returns the total number of entries.
    """
    at, filled = 0, 0
    for w in range(words):
        end, topic, first = at + SIZE_BYTES + read_size(data, at), np.int64(-1), filled
        at += SIZE_BYTES
        while at < end:
            step, count, at = read_entry(data, at)
            topic += step
            rows[filled] = np.uint64(topic) << np.uint64(32) | np.uint64(count)
            filled += 1
        sizes[w] = filled - first
    return filled


@kernel
def load_rows(data, rows, first, words):
    """Set the rows of some words (`samplers.lda.word_topic_rows`) to the arrived rows.

    first: rank of the first word.
    """
    at = 0
    for word in range(first, first + words):
        end, topic = at + SIZE_BYTES + read_size(data, at), np.int64(-1)
        at += SIZE_BYTES
        clear_row(rows, word)
        while at < end:
            step, count, at = read_entry(data, at)
            topic += step
            add_tokens(rows, word, topic, count)


@kernel
def pack_rows(rows, first, words, counts, leaving, work):
    """Write the rows of some words to `leaving`; returns the number of bytes written.

    counts: `samplers.lda.document_kernels.DocumentCountsScratch`, whose `row_topics` and `row_counts` are overwritten.
    """
    to = 0
    for word in range(first, first + words):
        for i in range(nonzeros(rows, word, counts.row_topics, counts.row_counts)):
            topic = np.int64(counts.row_topics[i])
            work.counted[topic]["count"] = counts.row_counts[i]
            mark(work, topic)
        to = close_row(list_topics(work)[0], work, leaving, to)
    return to
