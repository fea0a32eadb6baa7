"""Counts of topics in a group of tokens (a word's or a document's): dense, or a small hash table where K is large.

The table has C slots, C a power of two. Where C >= K the slot of topic k is k itself and `keys` is not used (size 0);
otherwise it is found by open addressing with linear probing, and C is at least four times the tokens of the group, so
that the first slot is nearly always the right one.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, kernel

EMPTY = -1
_DENSE = 1 << 14  # slots that still fit in a second-level cache: no hashing below that many topics


@inlined
def slot_of(keys, mask, topic):
    """The slot of a topic, or the empty slot where it would go (its count is 0)."""
    slot = topic
    if keys.size:
        slot = ((topic * 0x9E3779B1) >> 12) & mask
        while (keys[slot] != topic) & (keys[slot] != EMPTY):  # one branch, not two, and seldom taken
            slot = (slot + 1) & mask
    return slot


@kernel
def table_mask(tokens, topics):
    """Slots of the table for a group of `tokens` tokens, less one; dense if it has room for all topics."""
    capacity = 16
    least = topics if topics <= max(_DENSE, 16 * tokens) else 4 * tokens
    while capacity < least:
        capacity *= 2
    return capacity - 1


@kernel
def count_topics(state, where, slots, keys, counts, mask):
    """Count the topics state[where, 0] of a group.

    state: topic type (N, 1+M). where: int64 (n,). slots: int32 (n,), set to the slot of each token's topic.
    keys: int32 (C,) or (0,) for a dense table; counts: int32 (C,): changed, all empty before.
    """
    for i in range(where.size):
        topic = np.int64(state[where[i], 0])
        slot = slot_of(keys, mask, topic)
        if keys.size:
            keys[slot] = topic
        counts[slot] += 1
        slots[i] = slot


@kernel
def clear_counts(slots, keys, counts):
    """Empty the slots that `count_topics` filled."""
    for slot in slots:
        counts[slot] = 0
        if keys.size:
            keys[slot] = EMPTY
