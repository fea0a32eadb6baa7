"""Kernels of all document-major samplers on documents and on the rows of their words.

A block is laid out document by document first. Then, cell by cell, each document is *opened* (its topics counted), its
tokens of the cell are sampled one after the other, each taken out and put back, and it is *closed*. The counts of a
document are always exact. The rows of words and the summary row are

    updated in place  as a token is taken out and put back, or
    frozen            for the cell: `aggregate_words` brings them up to date afterwards. `counted` has the topics under
                      which the rows count the tokens of the block, the state their topics now.

The summary row is a worker's own copy, in which its own tokens are always up to date.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from samplers.lda.rows import clear_row, decrease, increase


class Cell(NamedTuple):
    """Documents of a block, and which of their tokens to sample.

    offsets: int64 (D+1,), begin of each document in the arrays of the block. topics: topic type (N,), present topic of
    each token. words: uint32 (N,). positions: uint32 (N,), word-major positions, ascending in a document. state: topic
    type (rows, 1). base: row of position 0. first, last: positions of the cell.
    """

    offsets: np.ndarray
    topics: np.ndarray
    words: np.ndarray
    positions: np.ndarray
    state: np.ndarray
    base: int
    first: int
    last: int


class Counts(NamedTuple):
    """Working memory of one worker: counts of the open document, and the summary row.

    topics: int32 (K,), n_kd, 0 between documents. present: int32 (K+1,), the topics with nonzero counts first. places:
    int32 (K,), index of each topic in `present`. summary: float64 (K,), n_k + V*beta. weights: float64 (K,), cumulated
    weights of a sampler. of_topics, scales: float64 (K,), a sampler's data of each topic. row_topics, row_counts: int32
    (K+1,), for the row of a word.
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
    """Return the index of the first of the ascending values[first:last] above x, or `last`."""
    while first < last:
        middle = (first + last) >> 1
        if values[middle] > x:
            last = middle
        else:
            first = middle + 1
    return first


@inlined
def count_document(token_topics, first, last, topics):
    """Count the topics of a document, tokens first to last."""
    for token in range(first, last):
        topics[token_topics[token]] += 1


@inlined
def clear_document(token_topics, first, last, topics):
    """Reset the counts of a counted or opened document to 0."""
    for token in range(first, last):
        topics[token_topics[token]] = 0


@inlined
def open_document(token_topics, first, last, topics, present, places):
    """Count the topics of a document and list the nonzero ones; returns their number."""
    size = 0
    for token in range(first, last):
        topic = token_topics[token]
        new = topics[topic] == 0  # no branch: it could not be foreseen
        present[size] = topic
        places[topic] = size if new else places[topic]
        size += new
        topics[topic] += 1
    return size


@inlined
def take_out(topics, present, places, size, summary, topic):
    """Remove a token from its document and the summary row; returns the document's number of topics."""
    summary[topic] -= 1.0
    topics[topic] -= 1
    if topics[topic] == 0:
        size -= 1
        present[places[topic]] = present[size]
        places[present[size]] = places[topic]
    return size


@inlined
def put_back(topics, present, places, size, summary, topic):
    """Add a token to its document and the summary row; returns the document's number of topics."""
    summary[topic] += 1.0
    if topics[topic] == 0:
        present[size] = topic
        places[topic] = size
        size += 1
    topics[topic] += 1
    return size


@unmanaged_kernel
def find_words(words, word_offsets, position_words):
    """Set the word at each position of some words, uint32 (n,). word_offsets: int64 (n+1,), begin of their
    positions."""
    for i in range(words.size):
        for position in range(word_offsets[i], word_offsets[i + 1]):
            position_words[position] = words[i]


@unmanaged_kernel
def lay_out(state, base, positions, position_words, topics, words, counted):
    """Set `topics` and `words` of tokens given their positions, uint32 (n,), and the word at each position. counted:
    topic type (N,), set at their positions."""
    for token in range(positions.size):
        position = positions[token]
        words[token] = position_words[position]
        topics[token] = counted[position] = state[base + position, 0]


@unmanaged_kernel
def aggregate_words(state, base, counted, words, word_offsets, rows):
    """Update the rows of some words of a block to the present topics of its tokens.

    counted: topic type (N,), set to the topics in the state. words: uint32 (n,). word_offsets: int64 (n+1,), begin of
    their word-major positions.
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
    """Recount the rows of some words; see `samplers.lda.groups` for their runs. first: rank of the first word."""
    for w in range(run_offsets.size - 1):
        clear_row(rows, first + w)
        for run in range(run_offsets[w], run_offsets[w + 1]):
            row = bases[blocks[run]] + starts[run]
            for i in range(row, row + lengths[run]):
                increase(rows, first + w, state[i, 0])
