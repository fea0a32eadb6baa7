"""Alias tables of the rows of words: the probabilities in the entries, and what is drawn from them."""

from __future__ import annotations

from collections import Counter

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from token_chains import empty_tables, mixed_rows

from ooc.rng import random_bits, stream_key
from samplers.lda.word_tables import (
    choose_entry,
    choose_word_entry,
    fill_table,
    make_table,
    make_tables,
    settle_word,
    topic_of,
)
from samplers.lda.word_topic_rows import WordTopicRows, increase, row_count

ALARM = 1e-6  # chance that one chi-square test fails though the draws are right


def probabilities(entries: np.ndarray) -> Counter[int]:
    """What a draw gives each topic: an entry keeps cut / 2^24 of its share, and all of it where it turns to itself."""
    given = Counter[int]()
    for entry in entries.tolist():
        topic, other, cut = entry & 0xFFFFF, entry >> 20 & 0xFFFFF, entry >> 40
        given[topic] += cut / 2**24 / entries.size
        given[other] += (1 - cut / 2**24) / entries.size
    return given


@given(
    st.dictionaries(
        st.integers(0, 50) | st.integers((1 << 20) - 50, (1 << 20) - 1),
        st.floats(1e-6, 1e6) | st.sampled_from([1.0, 3.0, 1e-300]),
        min_size=1,
        max_size=60,
    )
)
def test_a_table_has_the_mass_of_its_shares(shares):
    """To 2^-24 for each entry, for topics up to the largest that 20 bits hold; the entries behind are not touched."""
    topics, size = np.array(list(shares), np.int32), len(shares)
    weights, order, entries = np.array(list(shares.values())), np.zeros(size, np.int32), np.full(size + 1, 7, np.uint64)
    fill_table(topics, weights, order, size, entries)
    assert entries[size] == 7
    drawn, total = probabilities(entries[:size]), sum(shares.values())
    assert set(drawn) <= set(shares)
    for topic, share in shares.items():
        assert abs(drawn[topic] - share / total) < 2**-23


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("low", [0, 1 << 22, (1 << 24) - 1], ids=["least", "middle", "most"])
def test_an_entry_is_drawn_by_the_high_bits_and_kept_by_the_low(place, low):
    """Both ends of every entry's share of the 40 high bits; low bits below its cut keep the topic. Topics near 2^20."""
    topics = [(1 << 20) - 1, 3, (1 << 20) - 2]
    cuts = [1, 1 << 23, (1 << 24) - 1]
    entries = np.array([t | (t ^ 5) << 20 | cut << 40 for t, cut in zip(topics, cuts, strict=True)], np.uint64)
    table = np.concatenate((np.zeros(4, np.uint64), entries))
    expected = topics[place] if low < cuts[place] else topics[place] ^ 5
    first, last = -(-(place << 40) // 3), -(-((place + 1) << 40) // 3) - 1
    for high in (first, last):
        random = np.uint64(high << 24 | low)
        assert choose_entry(4, 3, random) == 4 + place
        assert topic_of(table[4 + place], random) == expected


@numba.njit
def drawn(tables, place, rows, word, beta, own, draws, key):
    """How often `settle_word` gives each topic."""
    found = np.zeros(rows.topics, np.int64)
    mass, own_count = tables.masses[place], 0
    if own >= 0:
        mass, own_count = mass - tables.weights[own], row_count(rows, word, own)
    smoothing_mass = beta * tables.masses[-1]
    for n in range(draws):
        stream = random_bits(key, np.uint64(n))
        chosen = choose_word_entry(tables, place, mass, smoothing_mass, stream)
        found[settle_word(tables, place, chosen, own, own_count, stream)] += 1
    return found


COUNTS = np.array([[5, 0, 1, 2, 0, 9], [0, 3, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0], [0, 0, 2, 0, 0, 0]])


def counted_rows() -> WordTopicRows:
    """The rows of COUNTS, of both kinds."""
    rows = mixed_rows(*COUNTS.shape)
    for word, topic in np.argwhere(COUNTS):
        for _ in range(COUNTS[word, topic]):
            increase(rows, word, topic)
    return rows


@pytest.mark.parametrize("word", range(4))
@pytest.mark.parametrize("own", [-1, 2], ids=["nothing-own", "own"])
def test_a_word_proposal_is_drawn_from_its_row_without_the_token(word, own):
    """Chi-square of 400,000 draws against (n_kw^- + beta) * weights_k, where the token is one of many, of two, or the
    word's only one. 8 tests, false alarm of any below 1e-5."""
    rows, beta = counted_rows(), 0.4
    tables, scratch = empty_tables(4, 6, np.array([0.5, 0.1, 0.9, 0.3, 1.4, 0.2]))
    make_tables(tables, rows, np.arange(4, dtype=np.uint32), scratch)
    weights = (COUNTS[word] - (np.arange(6) == own) + beta) * tables.weights
    found = drawn(tables, word, rows, word, beta, own, 400_000, stream_key(5, word))
    assert stats.chisquare(found, weights / weights.sum() * found.sum()).pvalue > ALARM
    with_own = (COUNTS[word] + beta) * tables.weights
    if own >= 0:  # the test would see the token's own count left in
        assert stats.chisquare(found, with_own / with_own.sum() * found.sum()).pvalue < ALARM


def test_a_table_in_another_place_is_the_same(tmp_path):
    """In place, the one table there is room for is that of whatever word."""
    rows = counted_rows()
    tables, scratch = empty_tables(4, 6, np.array([0.5, 0.1, 0.9, 0.3, 1.4, 0.2]))
    one, _ = empty_tables(1, 6, tables.weights)
    for word in range(4):
        make_table(tables, word, rows, word, scratch)
        make_table(one, 0, rows, word, scratch)
        size, start = tables.sizes[word], tables.starts[word]
        assert one.sizes[0] == size == np.count_nonzero(COUNTS[word])
        assert np.array_equal(tables.entries[start : start + size], one.entries[one.starts[0] :][:size])
        assert one.masses[0] == tables.masses[word] == pytest.approx((COUNTS[word] * tables.weights).sum())


def test_the_smoothing_table_has_the_weights():
    weights = np.random.default_rng(2).uniform(0.1, 3, 1000)
    tables, _ = empty_tables(1, 1000, weights)
    given = probabilities(tables.entries[:1000])
    assert tables.masses[-1] == pytest.approx(weights.sum(), rel=1e-12)
    assert max(abs(given[k] - weights[k] / weights.sum()) for k in range(1000)) < 2**-23
