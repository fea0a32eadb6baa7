"""The small table of counts against counting in a dict."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from samplers.topic_counts import EMPTY, clear_counts, count_topics, slot_of, table_mask

MOST = 1_000_000

# Topics whose hash, (topic * 0x9E3779B1) >> 12, agrees in its low 8 bits: they all start probing at the same slot.
_COLLIDING = [topic for topic in range(60_000) if ((topic * 0x9E3779B1) >> 12) & 255 == 255][:60]

topic_lists = st.one_of(
    st.lists(st.integers(0, MOST - 1), min_size=1, max_size=100),
    st.lists(st.sampled_from(_COLLIDING), min_size=1, max_size=100),
    st.lists(st.integers(0, 3).map(lambda k: k * (1 << 14)), min_size=1, max_size=100),
)


@settings(max_examples=150, deadline=None)
@given(topic_lists, topic_lists)
def test_a_table_counts_as_a_dict_does_and_is_empty_afterwards(topics, others):
    """Hash rows of one million topics, with collisions and wrap-around: counts of every topic, present or not."""
    state = np.array(topics, np.uint32).reshape(-1, 1)
    mask = table_mask(len(topics), MOST)
    assert mask + 1 >= 4 * len(topics)
    assert (mask + 1) & mask == 0
    keys, counts = np.full(mask + 1, EMPTY, np.int32), np.zeros(mask + 1, np.int32)
    slots = np.zeros(len(topics), np.int32)
    count_topics(state, np.arange(len(topics)), slots, keys, counts, mask)
    expected = Counter(topics)
    for topic in [*topics, *others]:
        assert counts[slot_of(keys, mask, topic)] == expected[topic]
    assert [keys[slot] for slot in slots] == topics
    assert counts.sum() == len(topics)
    clear_counts(slots, keys, counts)
    assert (keys == EMPTY).all()
    assert not counts.any()


@given(st.lists(st.integers(0, 299), max_size=50))
def test_a_dense_table_has_each_topic_at_its_own_slot(topics):
    state = np.array(topics, np.uint16).reshape(-1, 1)
    mask = table_mask(len(topics), 300)
    keys, counts = np.empty(0, np.int32), np.zeros(mask + 1, np.int32)
    slots = np.zeros(len(topics), np.int32)
    count_topics(state, np.arange(len(topics)), slots, keys, counts, mask)
    assert np.array_equal(counts[:300], np.bincount(topics, minlength=300))
    clear_counts(slots, keys, counts)
    assert not counts.any()


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.integers(2, MOST))
def test_a_table_is_large_enough_and_grows_with_its_group(tokens, more, topics):
    """It is dense, or has room for four times the tokens; the scratch of the largest group serves every smaller one."""
    size = table_mask(tokens, topics) + 1
    assert size >= topics or size >= 4 * tokens
    assert size <= table_mask(tokens + more, topics) + 1
    assert size & (size - 1) == 0
    if topics <= 1 << 14:
        assert size >= topics
