"""Partition a corpus: words into slices, documents into blocks."""

from __future__ import annotations

import math
from heapq import heapreplace

import numpy as np

# A block of 16-bit topics and proposals takes 4 MB, so the pages of its state stay in the second-level TLB. Measured on
# 24M tokens at K = 1,000: the document phase is 1.2 times as fast as with 4M tokens; smaller blocks are no faster.
BLOCK_TOKENS = 1 << 20
PART_TOKENS = 1 << 17  # about 5 ms of sampling
DROPPED = np.uint32(0xFFFFFFFF)  # the rank of a token whose word was filtered out


def slice_count(tokens: int) -> int:
    """Return the number of slices: the square root of the number of blocks, so that cells, blocks and slices all grow
    with the corpus."""
    return max(1, math.ceil(math.sqrt(tokens / BLOCK_TOKENS)))


def least_slices(shards: int) -> int:
    """Return the minimum number of slices for a ring of `shards` shards: a rank works on one slice while another
    arrives."""
    return 2 * shards + 2


def rank_words(frequencies: np.ndarray, slices: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rank the words: slice by slice, by descending frequency within a slice.

    frequencies: int64 (V,), in vocabulary order.
    Returns `word_ids` uint32 (V,) and `slice_bounds` int64 (S+1,), see `blocks.corpus.dataset.CorpusIndex`. Ties
    between words keep vocabulary order; ties between slices are broken by the seed.
    """
    by_frequency = np.argsort(-frequencies, kind="stable")
    slice_order = np.random.default_rng(seed).permutation(slices)
    slice_of = assign_slices(frequencies, by_frequency, slice_order)
    word_ids = by_frequency[np.argsort(slice_of[by_frequency], kind="stable")]
    bounds = np.concatenate(([0], np.cumsum(np.bincount(slice_of, minlength=slices))))
    return word_ids.astype(np.uint32), bounds.astype(np.int64)


def assign_slices(frequencies: np.ndarray, order: np.ndarray, slice_order: np.ndarray) -> np.ndarray:
    """Assign words, by descending frequency, each to the slice with the fewest tokens so far.

    frequencies: int64 (V,), number of tokens of each word.
    order: int64 (V,), words by descending frequency.
    slice_order: int64 (S,), order in which ties between slices are broken.
    Returns int64 (V,), the slice of each word.
    """
    slices = [(0, place, number) for place, number in enumerate(slice_order.tolist())]
    dealt = []
    # A word that never occurs has a weight of 1, or all such words would be assigned to one slice.
    for weight in np.maximum(frequencies[order], 1).tolist():
        load, place, number = slices[0]
        dealt.append(number)
        heapreplace(slices, (load + weight, place, number))
    slice_of = np.empty(frequencies.size, np.int64)
    slice_of[order] = dealt
    return slice_of


def blocks_of_buckets(bucket_tokens: np.ndarray) -> np.ndarray:
    """Merge buckets without tokens into their neighbours, so that no block is empty unless all buckets are.

    bucket_tokens: int64 (B,).
    Returns int64 (blocks+1,), the first bucket of each block; the last element is B.
    """
    begins = np.flatnonzero(bucket_tokens)[1:]
    return np.concatenate(([0], begins, [bucket_tokens.size]))


def bucket_count(tokens: int, block_tokens: int) -> int:
    """Return the number of buckets for `tokens` tokens, at least 1."""
    return max(1, -(-tokens // block_tokens))
