"""Rows of counts n_kw: dense for frequent words, small hash tables for the others (LightLDA, section 5.3).

A row is dense (K counts of 4 bytes) unless a hash table is smaller. A table holds 8-byte entries `topic << 32 | count`,
0 if empty, and has at least twice as many slots as the word can have topics. Tables use linear probing and are ordered
(Amble and Knuth, "Ordered hash tables", 1974): between a topic's home slot and its own slot there are only larger
topics. So the layout depends only on the counts, not on their history, and a walk over the slots gives the same
sequence after a resume.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from ooc.workers.intrinsics import prefetch

DENSE = -1
_COUNT = (1 << 32) - 1


class WordTopicRows(NamedTuple):
    """The rows of all words.

    topics: K.
    masks: int32 (V,), number of slots of a word's table minus 1, or DENSE.
    starts: int64 (V,), start of the row in `tables`, int64 (E,), or in `dense`, int32 (H,).
    """

    topics: int
    masks: np.ndarray
    starts: np.ndarray
    dense: np.ndarray
    tables: np.ndarray


class WordRowLayout(NamedTuple):
    """Layout of the rows of words with given frequencies; see WordTopicRows.

    dense, tables: number of elements of each.
    """

    masks: np.ndarray
    starts: np.ndarray
    dense: int
    tables: int


def row_layout(frequencies: np.ndarray, topics: int, *, all_dense: bool = False) -> WordRowLayout:
    """Return the layout for words with given frequencies, int64 (V,)."""
    most = np.minimum(frequencies, topics)
    slots = 2 ** np.ceil(np.log2(2 * np.maximum(most, 1))).astype(np.int64)  # max(., 1): for words that do not occur
    dense = (8 * slots >= 4 * topics) | all_dense
    masks = np.where(dense, DENSE, slots - 1).astype(np.int32)
    sizes = np.where(dense, topics, slots)
    starts = np.where(dense, _before(np.where(dense, sizes, 0)), _before(np.where(dense, 0, sizes)))
    return WordRowLayout(masks, starts, int(sizes[dense].sum()), int(sizes[~dense].sum()))


def row_sizes(layout: WordRowLayout, topics: int, slice_bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of elements of `dense` and of `tables` in each slice, both int64 (S,)."""
    dense = layout.masks == DENSE
    slots = layout.masks.astype(np.int64) + 1  # 0 if the row is dense
    return per_slice(topics * dense, slice_bounds), per_slice(slots, slice_bounds)


def per_slice(sizes: np.ndarray, slice_bounds: np.ndarray) -> np.ndarray:
    """Return the sum of `sizes`, (V,), over the words of each slice, int64 (S,).

    slice_bounds: int64 (S+1,).
    """
    return np.diff(np.concatenate(([0], np.cumsum(sizes)))[slice_bounds])


def _before(sizes: np.ndarray) -> np.ndarray:
    return np.cumsum(sizes) - sizes


@inlined
def _home(topic, mask):
    return ((topic * 0x9E3779B1) >> 15) & mask


@inlined
def row_count(rows, word, topic):
    """Return n_kw."""
    mask, start = rows.masks[word], rows.starts[word]
    if mask == DENSE:
        return np.int64(rows.dense[start + topic])
    slot = _home(topic, mask)
    entry = rows.tables[start + slot]
    while entry >> 32 > topic:
        slot = (slot + 1) & mask
        entry = rows.tables[start + slot]
    return entry & _COUNT if entry >> 32 == topic else 0


@inlined
def prefetch_row(rows, word, topic):
    """Prefetch the memory that `row_count` will read."""
    mask, start = rows.masks[word], rows.starts[word]
    if mask == DENSE:
        prefetch(rows.dense, start + topic)
    else:
        prefetch(rows.tables, start + _home(topic, mask))


@inlined
def increase(rows, word, topic):
    """Add 1 to n_kw."""
    add_tokens(rows, word, topic, 1)


@inlined
def add_tokens(rows, word, topic, tokens):
    """Add `tokens` to n_kw."""
    mask, start = rows.masks[word], rows.starts[word]
    if mask == DENSE:
        rows.dense[start + topic] += tokens
    else:
        entry = np.int64(topic) << 32 | tokens
        slot = _home(np.int64(topic), mask)
        there = rows.tables[start + slot]
        while there and there >> 32 != entry >> 32:
            if there >> 32 < entry >> 32:  # take the slot and move its entry on to the next one
                rows.tables[start + slot], entry = entry, there
            slot = (slot + 1) & mask
            there = rows.tables[start + slot]
        rows.tables[start + slot] = there + tokens if there else entry


@inlined
def decrease(rows, word, topic):
    """Subtract 1 from n_kw, which must be above 0."""
    mask, start = rows.masks[word], rows.starts[word]
    if mask == DENSE:
        rows.dense[start + topic] -= 1
    else:
        slot = _home(np.int64(topic), mask)
        while rows.tables[start + slot] >> 32 != topic:
            slot = (slot + 1) & mask
        rows.tables[start + slot] -= 1
        if rows.tables[start + slot] & _COUNT == 0:
            close_gap(rows.tables, start, slot, mask)


@unmanaged_kernel
def close_gap(tables, start, hole, mask):
    """Remove an entry from a table; the first entry behind it that may move fills the gap, as it is the largest."""
    slot = hole
    while True:
        slot = (slot + 1) & mask
        entry = tables[start + slot]
        if entry == 0:
            break
        if (slot - _home(entry >> 32, mask)) & mask >= (slot - hole) & mask:
            tables[start + hole] = entry
            hole = slot
    tables[start + hole] = 0


@inlined
def clear_row(rows, word):
    """Set all counts of a word to 0."""
    mask, start = rows.masks[word], rows.starts[word]
    if mask == DENSE:
        for k in range(start, start + rows.topics):
            rows.dense[k] = 0
    else:
        for slot in range(start, start + mask + 1):
            rows.tables[slot] = 0


@inlined
def nonzeros(rows, word, row_topics, row_counts):
    """Copy a word's topics and their nonzero counts to int32 (K+1,) arrays; returns the number of topics."""
    mask, start, size = rows.masks[word], rows.starts[word], np.uint64(0)
    if mask == DENSE:
        row = rows.dense[start : start + rows.topics]
        for k in range(row.size):
            row_topics[size] = k
            size += np.uint64(row[k] > 0)  # branch-free: a branch would be mispredicted
        for i in range(size):
            row_counts[i] = row[row_topics[i]]
    else:
        for slot in range(start, start + mask + 1):
            entry = rows.tables[slot]
            row_topics[size] = entry >> 32
            row_counts[size] = entry & _COUNT
            size += np.uint64(entry != 0)
    return np.int64(size)
