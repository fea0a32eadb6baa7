"""What all document-major samplers do with a document and with the rows of its words: kernels.

A document is *opened* (its tokens gathered, its topics counted), its tokens of one cell are sampled one after the
other, each taken out and put back, and it is *closed*. The counts of a document are always exact. The rows of words
and the summary row are

    updated in place  as a token is taken out and put back, or
    frozen            for the cell: `aggregate_words` brings them up to date afterwards. Column 1 of the state is the
                      topic under which the rows count a token, column 0 its topic now.

The summary row is a worker's own copy, in which its own tokens are always up to date.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel
from samplers.rows import clear_row, decrease, increase


class Cell(NamedTuple):
    """Documents of a block, and which of their tokens are to be sampled.

    state: topic type (N, 1 or 2). base: row of the block's word-major position 0. offsets: int64 (D+1,), where each
    document begins in `positions`, uint32, ascending inside a document. words: uint32 (N of the block,), word at each
    position. first, last: the positions of the cell.
    """

    state: np.ndarray
    base: int
    offsets: np.ndarray
    positions: np.ndarray
    words: np.ndarray
    first: int
    last: int


class Counts(NamedTuple):
    """Working memory of one worker: what is counted of the open document, and the summary row.

    topics: int32 (K,), n_kd, 0 between documents. present: int32 (K,), the topics that are not 0, in its first entries;
    places: int32 (K,), where a topic stands there. rows: int64 (longest document,), state row of each token.
    summary: float64 (K,), n_k + V*beta. weights: float64 (K,), for a sampler's cumulated weights.
    row_topics, row_counts: int32 (K+1,), for the row of a word.
    """

    topics: np.ndarray
    present: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    summary: np.ndarray
    weights: np.ndarray
    row_topics: np.ndarray
    row_counts: np.ndarray


@inlined
def tokens_of_cell(cell, d):
    """The tokens of document d that belong to the cell: first and last place in `cell.positions`."""
    first, last = cell.offsets[d], cell.offsets[d + 1]
    positions = cell.positions[first:last]
    return first + np.searchsorted(positions, cell.first), first + np.searchsorted(positions, cell.last)


@kernel
def open_document(cell, d, counts):
    """Gather the tokens of document d and count their topics; returns how many topics it has."""
    size = 0
    for i in range(cell.offsets[d + 1] - cell.offsets[d]):
        row = cell.base + cell.positions[cell.offsets[d] + i]
        counts.rows[i] = row
        topic = cell.state[row, 0]
        if counts.topics[topic] == 0:
            counts.present[size] = topic
            counts.places[topic] = size
            size += 1
        counts.topics[topic] += 1
    return size


@inlined
def close_document(counts, size):
    """Forget the open document, which has `size` topics."""
    for i in range(size):
        counts.topics[counts.present[i]] = 0


@inlined
def take_out(rows, counts, size, word, topic, in_place):
    """Take a token out of all counts; returns how many topics the document has left."""
    counts.summary[topic] -= 1.0
    if in_place:
        decrease(rows, word, topic)
    counts.topics[topic] -= 1
    if counts.topics[topic] == 0:
        size -= 1
        counts.present[counts.places[topic]] = counts.present[size]
        counts.places[counts.present[size]] = counts.places[topic]
    return size


@inlined
def put_back(rows, counts, size, word, topic, in_place):
    """Count a token under its topic; returns how many topics the document has now."""
    counts.summary[topic] += 1.0
    if in_place:
        increase(rows, word, topic)
    if counts.topics[topic] == 0:
        counts.present[size] = topic
        counts.places[topic] = size
        size += 1
    counts.topics[topic] += 1
    return size


@inlined
def smallest_exceeding(cumulated, size, x):
    """The first of `size` ascending numbers that is above x, or the last if rounding leaves none."""
    i = np.searchsorted(cumulated[:size], x, side="right")
    return min(i, size - 1)


@kernel
def aggregate_words(state, base, words, word_offsets, rows):
    """Bring the rows of some words of a block up to date with the topics of its tokens.

    state: column 1 is set to column 0. words: uint32 (n,). word_offsets: int64 (n+1,), their word-major positions.
    """
    for i in range(words.size):
        for row in range(base + word_offsets[i], base + word_offsets[i + 1]):
            if state[row, 0] != state[row, 1]:
                decrease(rows, words[i], state[row, 1])
                increase(rows, words[i], state[row, 0])
                state[row, 1] = state[row, 0]


@kernel
def count_words(state, bases, run_offsets, blocks, starts, lengths, rows, first):
    """Count the rows of some words anew; see `samplers.groups` for their runs. first: rank of the first word.

    Returns how many topics the rows have that are not 0.
    """
    for w in range(run_offsets.size - 1):
        clear_row(rows, first + w)
        for run in range(run_offsets[w], run_offsets[w + 1]):
            row = bases[blocks[run]] + starts[run]
            for i in range(row, row + lengths[run]):
                increase(rows, first + w, state[i, 0])
