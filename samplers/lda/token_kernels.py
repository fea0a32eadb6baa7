"""Kernels for groups of tokens (those of a word or of a document), shared by all LDA samplers.

A group is the rows `scratch.where[:tokens]` of the local state. `document_*` kernels process part of a block:

    state: topic type (N, 1+M), column 0 is the topic. base: first row of the block.
    offsets: int64 (D+1,), start of each document in `positions`, uint32.

`word_*` kernels process part of a slice:

    bases: int64 (B,), row of word-major position 0 of each block (it may lie before the first row).
    run_offsets: int64 (W+1,); blocks, starts, lengths: uint32 (R,): the runs of each word, see
    `blocks.corpus.dataset.WordSlice`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel
from ooc.rng import uniform


class GroupPrior(NamedTuple):
    """Prior of the topics in a group: alpha for a document, beta for a word.

    `symmetric_prior` and `weighted_prior` fill all fields; kernels test `symmetric`, never array sizes.

    symmetric: whether all topics have the same weight.
    topics: K.
    total: sum of all weights.
    weights: float64 (K,), or (1,) if symmetric.
    cut, alias: alias table of the weights, float64 and uint32 (K,); unused, of size 1, if symmetric.
    """

    symmetric: bool
    topics: int
    total: float
    weights: np.ndarray
    cut: np.ndarray
    alias: np.ndarray


def symmetric_prior(topics: int, weight: float) -> GroupPrior:
    """Return a prior in which each of `topics` topics has the same weight."""
    return GroupPrior(True, topics, topics * weight, np.full(1, weight), np.ones(1), np.zeros(1, np.uint32))


def weighted_prior(weights: np.ndarray, cut: np.ndarray, alias: np.ndarray) -> GroupPrior:
    """Return a prior with a weight for each topic.

    weights: float64 (K,).
    cut, alias: result of `alias_table(weights)`, passed in because a table of a million topics is built once per
        iteration, not per part.
    """
    return GroupPrior(False, weights.size, float(weights.sum()), weights, cut, alias)


class GroupScratch(NamedTuple):
    """Working memory of one worker for groups of up to n tokens. Words with more tokens are not gathered, but walked
    run by run.

    where: int64 (n,), row of each token.
    topics: topic type (n,), new topics.
    counts: int32 (K,), number of tokens of each topic in a group, 0 between groups.
    """

    where: np.ndarray
    topics: np.ndarray
    counts: np.ndarray


@inlined
def draw_prior(prior, u):
    """Draw a topic from a prior, using a uniform number u."""
    x = u * prior.topics
    k = min(int(x), prior.topics - 1)
    return k if prior.symmetric or x - k < prior.cut[k] else np.int64(prior.alias[k])


@inlined
def prior_weight(prior, topic):
    """Return the weight of a topic in a prior."""
    return prior.weights[0 if prior.symmetric else topic]


@kernel
def gather_document(base, positions, where):
    """Set `where`, int64 (n,), to the rows of a document's tokens, given their positions, uint32 (n,)."""
    for i in range(positions.size):
        where[i] = base + positions[i]


@kernel
def gather_word(bases, blocks, starts, lengths, where):
    """Set `where` to the rows of a word's tokens, given its runs; returns the number of tokens."""
    tokens = 0
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        for i in range(lengths[run]):
            where[tokens + i] = row + i
        tokens += lengths[run]
    return tokens


@kernel
def word_tokens(lengths):
    """Return the number of tokens of a word, given the lengths of its runs."""
    tokens = 0
    for length in lengths:
        tokens += length
    return tokens


@kernel
def count_runs(state, bases, blocks, starts, lengths, counts):
    """Add the topics of a word's tokens to `counts`, int32 (K,), run by run; used for words too frequent to gather."""
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        for i in range(lengths[run]):
            counts[state[row + i, 0]] += 1


@kernel
def initial_topics(state, base, offsets, positions, topics, delta, key):
    """Draw a random topic for every token in part of a block, and write it to all columns of `state`.

    delta: int64 (K,), incremented by the number of tokens of each topic.
    Returns the number of tokens.
    """
    first = offsets[0]
    for token in range(first, offsets[-1]):
        topic = int(uniform(key, np.uint64(token - first)) * topics)
        delta[topic] += 1
        state[base + positions[token], :] = topic
    return offsets[-1] - first


@inlined
def count_group(state, where, counts):
    """Add the topics of a group's tokens to `counts`, int32 (K,)."""
    for row in where:
        counts[state[row, 0]] += 1


@kernel
def group_likelihood(state, where, counts, prior):
    """Return sum_k (lgamma(n_k + prior_k) - lgamma(prior_k)) over the topics of a group, and the number of topics."""
    count_group(state, where, counts)
    likelihood, nonzeros = 0.0, 0
    for row in where:
        k = np.int64(state[row, 0])
        if counts[k]:
            weight = prior_weight(prior, k)
            likelihood += math.lgamma(counts[k] + weight) - math.lgamma(weight)
            nonzeros += 1
            counts[k] = 0
    return likelihood, nonzeros


@kernel
def dense_likelihood(counts, prior):
    """Return the result of `group_likelihood`, given the counts of all topics, int32 (K,), which are reset to 0."""
    likelihood, nonzeros = 0.0, 0
    for k in range(counts.size):
        if counts[k]:
            weight = prior_weight(prior, k)
            likelihood += math.lgamma(counts[k] + weight) - math.lgamma(weight)
            nonzeros += 1
            counts[k] = 0
    return likelihood, nonzeros


@kernel
def document_likelihood(state, base, offsets, positions, scratch, prior):
    """Return the document part of the joint log-likelihood for part of a block."""
    likelihood = 0.0
    for d in range(offsets.size - 1):
        where = scratch.where[: offsets[d + 1] - offsets[d]]
        gather_document(base, positions[offsets[d] : offsets[d + 1]], where)
        likelihood += group_likelihood(state, where, scratch.counts, prior)[0]
        likelihood += math.lgamma(prior.total) - math.lgamma(prior.total + where.size)
    return likelihood


@kernel
def group_row(state, where, counts, row):
    """Write a group's topics and counts to `row`, uint64, as topic << 32 | count, ascending; returns the row's size."""
    count_group(state, where, counts)
    size = 0
    for token in where:
        k = np.int64(state[token, 0])
        if counts[k]:
            row[size] = np.uint64(k) << np.uint64(32) | np.uint64(counts[k])
            size += 1
            counts[k] = 0
    row[:size].sort()
    return size


@kernel
def dense_row(counts, row):
    """Write the row of `group_row`, given the counts of all topics, int32 (K,), which are reset to 0."""
    size = 0
    for k in range(counts.size):
        if counts[k]:
            row[size] = np.uint64(k) << np.uint64(32) | np.uint64(counts[k])
            size += 1
            counts[k] = 0
    return size


@kernel
def document_rows(state, base, offsets, positions, scratch, topics):
    """Return the topics of each document in a part: sizes, uint32 (D,), and the concatenated rows as `group_row` writes
    them."""
    sizes = np.empty(offsets.size - 1, np.uint32)
    rows = np.empty(offsets[-1] - offsets[0], np.uint64)
    filled = 0
    for d in range(offsets.size - 1):
        where = scratch.where[: offsets[d + 1] - offsets[d]]
        gather_document(base, positions[offsets[d] : offsets[d + 1]], where)
        sizes[d] = group_row(state, where, scratch.counts, rows[filled:])
        filled += sizes[d]
    return sizes, rows[:filled].copy()


@kernel
def word_rows(state, bases, run_offsets, blocks, starts, lengths, scratch, topics):
    """Return the topics of each word in a part: sizes, uint32 (W,), and the concatenated rows as `group_row` writes
    them."""
    sizes = np.empty(run_offsets.size - 1, np.uint32)
    most = 0
    for w in range(run_offsets.size - 1):
        most += min(word_tokens(lengths[run_offsets[w] : run_offsets[w + 1]]), topics)
    rows = np.empty(most, np.uint64)
    filled = 0
    for w in range(run_offsets.size - 1):
        runs = slice(run_offsets[w], run_offsets[w + 1])
        if word_tokens(lengths[runs]) > scratch.where.size:
            count_runs(state, bases, blocks[runs], starts[runs], lengths[runs], scratch.counts)
            sizes[w] = dense_row(scratch.counts, rows[filled:])
        else:
            tokens = gather_word(bases, blocks[runs], starts[runs], lengths[runs], scratch.where)
            sizes[w] = group_row(state, scratch.where[:tokens], scratch.counts, rows[filled:])
        filled += sizes[w]
    return sizes, rows[:filled].copy()
