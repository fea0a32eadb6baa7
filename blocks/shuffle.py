"""Shuffle documents into blocks.

A hash of a document's index gives its bucket, and a seeded permutation gives its position; neither depends on how the
work was divided.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel
from blocks.corpus.partition import DROPPED


@kernel
def document_bucket(document, seed, buckets):
    """Return the bucket of a document: splitmix64 of its index and the seed, modulo the number of buckets."""
    z = np.uint64(document) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z % np.uint64(buckets))


@kernel
def sample_buckets(numbers, seed, buckets):
    """Return the bucket of each sample, int64 (n,).

    numbers: uint64 (n,), indices of the samples.
    """
    found = np.empty(numbers.size, np.int64)
    for place in range(numbers.size):
        found[place] = document_bucket(numbers[place], seed, buckets)
    return found


@kernel
def partition(ranks, lengths, first_document, seed, buckets):
    """Sort consecutive documents by bucket, without dropped tokens; the order within a bucket is kept.

    ranks: uint32 (N,), word rank of each token, or DROPPED.
    lengths: uint32 (D,), number of tokens of each document, including dropped ones.
    Returns, bucket by bucket, `documents` uint64 (D,), `kept_lengths` uint32 (D,), `kept` uint32 (n,), then
    `document_bounds` and `token_bounds`, int64 (buckets+1,), the start of each bucket in them.
    """
    bucket = np.empty(lengths.size, np.int64)
    remaining = np.zeros(lengths.size, np.uint32)
    document_bounds = np.zeros(buckets + 1, np.int64)
    token_bounds = np.zeros(buckets + 1, np.int64)
    token = 0
    for document in range(lengths.size):
        bucket[document] = document_bucket(first_document + document, seed, buckets)
        for _ in range(lengths[document]):
            remaining[document] += ranks[token] != DROPPED
            token += 1
        document_bounds[bucket[document] + 1] += 1
        token_bounds[bucket[document] + 1] += remaining[document]
    document_bounds = np.cumsum(document_bounds)
    token_bounds = np.cumsum(token_bounds)

    documents = np.empty(lengths.size, np.uint64)
    kept_lengths = np.empty(lengths.size, np.uint32)
    kept = np.empty(token_bounds[buckets], np.uint32)
    next_document = document_bounds[:-1].copy()
    next_token = token_bounds[:-1].copy()
    token = 0
    for document in range(lengths.size):
        target = bucket[document]
        documents[next_document[target]] = first_document + document
        kept_lengths[next_document[target]] = remaining[document]
        next_document[target] += 1
        for _ in range(lengths[document]):
            if ranks[token] != DROPPED:
                kept[next_token[target]] = ranks[token]
                next_token[target] += 1
            token += 1
    return documents, kept_lengths, kept, document_bounds, token_bounds


@kernel
def partition_entries(entries, seed, buckets):
    """Sort entries by the bucket of their row, without dropped entries; the order within a bucket is kept.

    entries: ENTRY (N,); a row or column may be DROPPED.
    Returns ENTRY (n,) and int64 (buckets+1,), the start of each bucket.
    """
    rows, columns = entries["row"], entries["column"]
    bounds = np.zeros(buckets + 1, np.int64)
    for i in range(rows.size):
        if DROPPED not in (rows[i], columns[i]):
            bounds[document_bucket(rows[i], seed, buckets) + 1] += 1
    bounds = np.cumsum(bounds)
    following = bounds[:-1].copy()
    sorted_ = np.empty(bounds[buckets], entries.dtype)
    for i in range(rows.size):
        if DROPPED not in (rows[i], columns[i]):
            bucket = document_bucket(rows[i], seed, buckets)
            sorted_[following[bucket]] = entries[i]
            following[bucket] += 1
    return sorted_, bounds


@kernel
def reorder(ranks, offsets, order):
    """Reorder documents.

    ranks: uint32 (N,), word rank of each token.
    offsets: int64 (D+1,).
    order: int64 (D,), the document to put at each position.
    Returns ranks uint32 (N,) and offsets int64 (D+1,) of the reordered documents.
    """
    moved = np.empty_like(ranks)
    moved_offsets = np.zeros_like(offsets)
    for place in range(order.size):
        begin, end = offsets[order[place]], offsets[order[place] + 1]
        target = moved_offsets[place]
        moved_offsets[place + 1] = target + end - begin
        for token in range(begin, end):
            moved[target + token - begin] = ranks[token]
    return moved, moved_offsets


def shuffle_documents(
    documents: np.ndarray, lengths: np.ndarray, ranks: np.ndarray, seed: int, block: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Permute the documents of a block; the order depends only on the seed and the index of the block.

    documents: uint64 (D,).
    lengths: uint32 (D,).
    ranks: uint32 (N,).
    Returns documents, offsets int64 (D+1,), ranks.
    """
    order = np.random.default_rng([seed, block]).permutation(documents.size)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    moved, moved_offsets = reorder(ranks, offsets, order)
    return documents[order], moved_offsets, moved
