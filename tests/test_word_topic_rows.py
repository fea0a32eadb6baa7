"""Rows of counts: whatever was added and taken away, they hold what a dict would, and lie where the counts say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samplers.lda.document_kernels import aggregate_words, count_words
from samplers.lda.word_topic_rows import (
    DENSE,
    WordTopicRows,
    clear_row,
    decrease,
    increase,
    nonzeros,
    row_count,
    row_layout,
)

TOPICS = st.sampled_from([2, 5, 40, 1000, 1_000_000])


def empty_rows(frequencies: list[int], topics: int) -> WordTopicRows:
    """Rows as the layout has them."""
    layout = row_layout(np.array(frequencies, np.int64), topics)
    return WordTopicRows(
        topics, layout.masks, layout.starts, np.zeros(layout.dense, np.int32), np.zeros(layout.tables, np.int64)
    )


def slots(rows: WordTopicRows, word: int) -> np.ndarray:
    """The entries of a row that is a table."""
    return rows.tables[rows.starts[word] : rows.starts[word] + rows.masks[word] + 1]


def found(rows: WordTopicRows, word: int) -> dict[int, int]:
    """Topics and counts by `nonzeros`, each topic once."""
    room = rows.topics if rows.masks[word] == DENSE else int(rows.masks[word]) + 1
    topics, counts = np.full(room + 1, -1, np.int32), np.full(room + 1, -1, np.int32)
    size = nonzeros(rows, word, topics, counts)
    pairs = dict(zip(topics[:size].tolist(), counts[:size].tolist(), strict=True))
    assert len(pairs) == size
    return pairs


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[int], list[tuple[bool, int, int]]]:
    """K, frequencies of 3 words, and operations (add?, word, topic) that never exceed them: few topics, so that the
    same ones come and go and slots collide."""
    topics = draw(TOPICS)
    frequencies = draw(st.lists(st.integers(0, 20), min_size=3, max_size=3))
    some = draw(st.lists(st.integers(0, topics - 1), min_size=1, max_size=25, unique=True))
    operations, held = [], [Counter(), Counter(), Counter()]
    for add, word, topic in draw(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.sampled_from(some)))):
        if add and held[word].total() < frequencies[word]:
            held[word][topic] += 1
        elif not add and held[word][topic]:
            held[word][topic] -= 1
        else:
            continue
        operations.append((add, word, topic))
    return topics, frequencies, operations


@settings(max_examples=200)
@given(histories(), st.randoms(use_true_random=False))
def test_any_history_leaves_what_a_dict_would_hold_in_the_same_place(history, random):
    """Every count, those of topics that are absent too; rows filled anew in any order have the same bytes."""
    topics, frequencies, operations = history
    rows, model = empty_rows(frequencies, topics), [Counter(), Counter(), Counter()]
    for add, word, topic in operations:
        (increase if add else decrease)(rows, word, topic)
        model[word][topic] += 1 if add else -1
    for word, held in enumerate(model):
        assert found(rows, word) == +held
        for topic in {*held, 0, topics - 1, topics // 2}:
            assert row_count(rows, word, np.int64(topic)) == held[topic]
    tokens = [(word, topic) for word, held in enumerate(model) for topic in held.elements()]
    random.shuffle(tokens)
    again = empty_rows(frequencies, topics)
    for word, topic in tokens:
        increase(again, word, topic)
    assert np.array_equal(rows.tables, again.tables)
    assert np.array_equal(rows.dense, again.dense)


def home(topic: int, mask: int) -> int:
    return ((topic * 0x9E3779B1) >> 15) & mask


@pytest.mark.parametrize("at", ["front", "end"])
def test_topics_of_one_home_are_probed_in_order_around_the_end(at):
    """All topics of a full table want the same slot, the last one of the table for "end", and wrap around: the largest
    is first; any of them is taken out and comes back."""
    rows = empty_rows([8], 100_000)
    mask = int(rows.masks[0])
    same = [topic for topic in range(100_000) if home(topic, mask) == (mask if at == "end" else 3)][:8]
    for topic in same:
        increase(rows, 0, topic)
    full = rows.tables.copy()
    begin = mask if at == "end" else 3
    in_order = [int(slots(rows, 0)[(begin + i) & mask]) >> 32 for i in range(8)]
    assert in_order == sorted(same, reverse=True)
    for topic in same:
        decrease(rows, 0, topic)
        assert row_count(rows, 0, np.int64(topic)) == 0
        assert found(rows, 0) == {other: 1 for other in same if other != topic}
        increase(rows, 0, topic)
        assert np.array_equal(rows.tables, full)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.sampled_from([2, 3, 12, 300, 1_000_000]))
def test_a_layout_has_room_and_no_row_touches_another(frequencies, topics):
    """Dense rows have K counts; a table has at least twice as many slots as its word can have topics, a word that does
    not occur has one too, and it takes less memory than a dense row; rows fill their array without gap or overlap."""
    layout = row_layout(np.array(frequencies, np.int64), topics)
    ranges: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for frequency, mask, start in zip(frequencies, layout.masks.tolist(), layout.starts.tolist(), strict=True):
        size = topics if mask == DENSE else mask + 1
        if mask != DENSE:
            assert size & mask == 0
            assert 2 * min(frequency, topics) <= size
            assert size < 4 * max(frequency, 1)
            assert 8 * size < 4 * topics
        ranges[mask == DENSE].append((start, start + size))
    for dense, end in ((True, layout.dense), (False, layout.tables)):
        bounds = ranges[dense]
        assert [first for first, _ in bounds] == [0, *(last for _, last in bounds)][: len(bounds)]
        assert end == (bounds[-1][1] if bounds else 0)


def test_clearing_a_row_leaves_its_neighbours_alone():
    rows = empty_rows([5, 5, 5, 500, 500, 500], 60)
    assert (rows.masks == DENSE).tolist() == [False] * 3 + [True] * 3
    for word in range(6):
        for topic in (0, 7, 59):
            increase(rows, word, topic)
    for word in (1, 4):
        clear_row(rows, word)
    assert [found(rows, word) for word in range(6)] == [{0: 1, 7: 1, 59: 1}, {}, {0: 1, 7: 1, 59: 1}] * 2


def test_counts_up_to_all_of_the_words_tokens_fit():
    """The count is the low half of an entry: 3 billion do not spill into the topic."""
    rows = empty_rows([4], 1_000_000)
    increase(rows, 0, 999_999)
    rows.tables[rows.tables != 0] += 3_000_000_000
    assert row_count(rows, 0, np.int64(999_999)) == 3_000_000_001
    decrease(rows, 0, 999_999)
    assert row_count(rows, 0, np.int64(999_999)) == 3_000_000_000


@given(st.integers(0, 1 << 32))
def test_rows_brought_up_to_date_equal_rows_counted_anew(seed):
    """`aggregate_words` on two shares of a block's words, and `count_words`: the same bytes."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 6)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    state = rng.integers(0, 50, (offsets[-1], 1)).astype(np.uint16)
    words, zero = np.arange(6, dtype=np.uint32), np.zeros(6, np.uint32)
    starts = offsets[:-1].astype(np.uint32)
    rows, again = empty_rows(lengths.tolist(), 50), empty_rows(lengths.tolist(), 50)
    runs = (np.zeros(1, np.int64), np.arange(7), zero, starts, lengths.astype(np.uint32))
    count_words(state, *runs, rows, 0)
    counted, moved = state[:, 0].copy(), rng.random(len(state)) < 0.7
    state[moved, 0] = rng.integers(0, 50, moved.sum())
    for share in (slice(0, 2), slice(2, 6)):
        aggregate_words(state, 0, counted, words[share], offsets[share.start : share.stop + 1], rows)
    assert np.array_equal(state[:, 0], counted)
    count_words(state, *runs, again, 0)
    assert np.array_equal(rows.tables, again.tables)
    assert np.array_equal(rows.dense, again.dense)
