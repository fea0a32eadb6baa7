"""Write one block: order its tokens by word and encode them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocks.arrays import write_arrays
from blocks.compiled import kernel
from blocks.corpus.dataset import TokenBlock


def write_block(
    root: Path,
    number: int,
    documents: np.ndarray,
    offsets: np.ndarray,
    ranks: np.ndarray,
    slice_bounds: np.ndarray,
) -> dict[str, Any]:
    """Encode and publish one block.

    documents: uint64 (D,), original index of each document.
    offsets: int64 (D+1,).
    ranks: uint32 (N,), word rank of each token in document order, sorted in place within each document.
    Returns the block's manifest entry.
    """
    positions, counts = word_major(ranks, offsets, int(slice_bounds[-1]))
    words = np.flatnonzero(counts).astype(np.uint32)
    word_offsets = np.concatenate(([0], np.cumsum(counts[words]))).astype(np.int64)
    block = TokenBlock(documents.astype(np.uint64), offsets.astype(np.int64), positions, words, word_offsets)
    entry = write_arrays(root, f"blocks/{number:05}.h5", block._asdict())
    cell_starts = np.searchsorted(words, slice_bounds)
    return {
        **entry,
        "documents": documents.size,
        "tokens": int(ranks.size),
        "longest": int(np.diff(offsets).max(initial=0)),
        "cells": np.diff(word_offsets[cell_starts]).tolist(),
    }


@kernel
def word_major(words, offsets, vocabulary_size):
    """Order a block's tokens by word.

    words: uint32 (N,), word of each token in document order; sorted in place within each document.
    offsets: int64 (D+1,), start of each document.
    Returns `positions` uint32 (N,), the word-major position of each token, and `counts` int64 (vocabulary_size,), the
    number of tokens of each word. Tokens of the same word keep the order of their documents.
    """
    counts = np.zeros(vocabulary_size, np.int64)
    for word in words:
        counts[word] += 1
    following = np.empty(vocabulary_size, np.int64)
    total = 0
    for word in range(vocabulary_size):
        following[word] = total
        total += counts[word]
    documents = np.empty(words.size, np.uint32)  # document of each token, in word-major order
    for document in range(offsets.size - 1):
        for token in range(offsets[document], offsets[document + 1]):
            documents[following[words[token]]] = document
            following[words[token]] += 1
    next_token = offsets[:-1].copy()
    positions = np.empty(words.size, np.uint32)
    position = 0
    for word in range(vocabulary_size):
        while position < following[word]:
            token = next_token[documents[position]]
            next_token[documents[position]] += 1
            words[token] = word
            positions[token] = position
            position += 1
    return positions, counts
