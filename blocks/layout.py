"""The order of tokens inside a block, and the dealing of words into slices: kernels on arrays."""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel


@kernel
def word_major(words, offsets, vocabulary_size):
    """Order a block's tokens by word.

    words: uint32 (N,), word of each token in document order; sorted in place within each document.
    offsets: int64 (D+1,), where each document begins.
    Returns `positions` uint32 (N,), the word-major position of each token, and `counts` int64 (vocabulary_size,),
    the tokens of each word. Tokens of one word keep the order of their documents.
    """
    counts = np.zeros(vocabulary_size, np.int64)
    for word in words:
        counts[word] += 1
    following = np.empty(vocabulary_size, np.int64)
    total = 0
    for word in range(vocabulary_size):
        following[word] = total
        total += counts[word]
    positions = np.empty(words.size, np.uint32)
    for document in range(offsets.size - 1):
        words[offsets[document] : offsets[document + 1]].sort()
        for token in range(offsets[document], offsets[document + 1]):
            positions[token] = following[words[token]]
            following[words[token]] += 1
    return positions, counts


@kernel
def deal(frequencies, order, slice_order):
    """Deal words, most frequent first, each to the slice that has the fewest tokens so far.

    frequencies: int64 (V,), tokens of each word. order: int64 (V,), words by descending frequency.
    slice_order: int64 (S,), which slice goes first among equally light ones.
    Returns int64 (V,), the slice of each word.
    """
    load = np.zeros(slice_order.size, np.int64)
    slice_of = np.empty(frequencies.size, np.int64)
    for word in order:
        lightest = slice_order[0]
        for candidate in slice_order:
            if load[candidate] < load[lightest]:
                lightest = candidate
        slice_of[word] = lightest
        # A word that never occurs still weighs something, or all of them would land in one slice.
        load[lightest] += max(frequencies[word], 1)
    return slice_of
