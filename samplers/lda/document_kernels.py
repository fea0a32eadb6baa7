"""Kernels shared by all document-major samplers, for documents and for the rows of their words.

A block is first laid out document by document. Then, cell by cell, each document is *opened* (its topics are counted),
its tokens in the cell are sampled one after another, each taken out and put back, and the document is *closed*. The
counts of a document are always exact. The word rows and the summary row are either

    updated in place  whenever a token is taken out or put back, or
    frozen            while the cell is sampled, and updated afterwards by `aggregate_words`. `counted` holds the topics
                      under which the rows count the block's tokens; the state holds their current topics.

The summary row is a worker's own copy, always up to date with that worker's tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from samplers.lda.word_topic_rows import clear_row, decrease, increase


class DocumentCell(NamedTuple):
    """The documents of a block, and the range of their tokens to sample.

    offsets: int64 (D+1,), start of each document in the block's arrays.
    topics: topic type (N,), current topic of each token.
    words: uint32 (N,), word of each token.
    positions: uint32 (N,), word-major positions, ascending within a document.
    state: topic type (rows, 1).
    base: row of position 0.
    first, last: range of positions in the cell.
    """

    offsets: np.ndarray
    topics: np.ndarray
    words: np.ndarray
    positions: np.ndarray
    state: np.ndarray
    base: int
    first: int
    last: int


class DocumentCountsScratch(NamedTuple):
    """Working memory of one worker: the counts of the open document, and the summary row.

    topics: int32 (K,), n_kd, 0 between documents.
    present: int32 (K+1,), starts with the topics whose counts are not 0.
    places: int32 (K,), index of each topic in `present`.
    summary: float64 (K,), n_k + V*beta.
    weights: float64 (K,), cumulative weights of a sampler.
    of_topics, scales: float64 (K,), per-topic data of a sampler.
    row_topics, row_counts: int32 (K+1,), topics and counts of a word's row.
    """

    topics: np.ndarray
    present: np.ndarray
    places: np.ndarray
    summary: np.ndarray
    weights: np.ndarray
    of_topics: np.ndarray
    scales: np.ndarray
    row_topics: np.ndarray
    row_counts: np.ndarray


@inlined
def first_above(values, first, last, x):
    """Return the first index at which the ascending values[first:last] exceed x, or `last` if there is none."""
    while first < last:
        middle = (first + last) >> 1
        if values[middle] > x:
            last = middle
        else:
            first = middle + 1
    return first


@inlined
def count_document(token_topics, first, last, topics):
    """Count the topics of a document's tokens, from first to last."""
    for token in range(first, last):
        topics[token_topics[token]] += 1


@inlined
def clear_document(token_topics, first, last, topics):
    """Reset the counts of a counted or opened document to 0."""
    for token in range(first, last):
        topics[token_topics[token]] = 0


@inlined
def open_document(token_topics, first, last, topics, present, places):
    """Count the topics of a document and list those with a nonzero count; returns the length of the list."""
    size = 0
    for token in range(first, last):
        topic = token_topics[token]
        new = topics[topic] == 0  # branch-free: a branch would be mispredicted
        present[size] = topic
        places[topic] = size if new else places[topic]
        size += new
        topics[topic] += 1
    return size


@inlined
def remove_token(topics, present, places, size, summary, topic):
    """Remove a token from its document and the summary row; returns the number of topics left in the document."""
    summary[topic] -= 1.0
    topics[topic] -= 1
    if topics[topic] == 0:
        size -= 1
        present[places[topic]] = present[size]
        places[present[size]] = places[topic]
    return size


@inlined
def add_token(topics, present, places, size, summary, topic):
    """Add a token to its document and the summary row; returns the number of topics in the document."""
    summary[topic] += 1.0
    if topics[topic] == 0:
        present[size] = topic
        places[topic] = size
        size += 1
    topics[topic] += 1
    return size


@unmanaged_kernel
def find_words(words, word_offsets, position_words):
    """Set the word at each position of the given words, uint32 (n,).

    word_offsets: int64 (n+1,), start of each word's positions.
    """
    for i in range(words.size):
        for position in range(word_offsets[i], word_offsets[i + 1]):
            position_words[position] = words[i]


@unmanaged_kernel
def order_tokens(state, base, positions, position_words, topics, words, counted):
    """Set the `topics` and `words` of tokens, given their positions, uint32 (n,), and the word at each position.

    counted: topic type (N,), set at these positions.
    """
    for token in range(positions.size):
        position = positions[token]
        words[token] = position_words[position]
        topics[token] = counted[position] = state[base + position, 0]


@unmanaged_kernel
def aggregate_words(state, base, counted, words, word_offsets, rows):
    """Update the rows of some words of a block to the current topics of their tokens.

    counted: topic type (N,), set to the topics in the state.
    words: uint32 (n,).
    word_offsets: int64 (n+1,), start of each word's word-major positions.
    """
    for i in range(words.size):
        for position in range(word_offsets[i], word_offsets[i + 1]):
            topic = state[base + position, 0]
            if topic != counted[position]:
                decrease(rows, words[i], counted[position])
                increase(rows, words[i], topic)
                counted[position] = topic


@unmanaged_kernel
def count_words(state, bases, run_offsets, blocks, starts, lengths, rows, first):
    """Recount the rows of some words, given their runs (see `samplers.lda.token_kernels`).

    first: rank of the first word.
    """
    for w in range(run_offsets.size - 1):
        clear_row(rows, first + w)
        for run in range(run_offsets[w], run_offsets[w + 1]):
            row = bases[blocks[run]] + starts[run]
            for i in range(row, row + lengths[run]):
                increase(rows, first + w, state[i, 0])
