"""The kernels of rows that travel against plain numpy and the equations of the two-phase sampler."""

from __future__ import annotations

import numpy as np
import pytest
from chi_square import alarmed
from corpora import make_prior, make_totals
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc.ring.packet_slots import PartInTransit
from ooc.rng import stream_key
from samplers.lda import packed_counts, two_phase
from samplers.lda import rotating_rows as rows

TOPICS = 6


def make_work(topics: int = TOPICS) -> rows.RotatingRowScratch:
    sizes = topics, -(-topics // 64), -(-topics // 4096), *[topics] * 5, rows.MOST_SPREAD
    dtypes = two_phase.COUNT, np.uint64, np.uint64, np.int32, np.int32, np.float64, np.int32, np.uint64, np.uint32
    return rows.RotatingRowScratch(*(np.zeros(size, dtype) for size, dtype in zip(sizes, dtypes, strict=True)))


def packed(table: np.ndarray) -> np.ndarray:
    """The rows of a table of counts, (W, K), by plain Python."""
    data = bytearray()

    def number(value: int, into: bytearray) -> None:
        while value > 127:
            into.append(value & 127 | 128)
            value >>= 7
        into.append(value)

    for counts in table:
        row, before = bytearray(), -1
        for topic in np.flatnonzero(counts).tolist():
            step, count = topic - before - 1, int(counts[topic]) - 1
            row.append(16 * min(step, 15) + min(count, 15))
            for large in (step, count):
                if large >= 15:
                    number(large - 15, row)
            before = topic
        data += len(row).to_bytes(4, "little") + row
    return np.frombuffer(data, np.uint8)


def unpacked(data: np.ndarray, words: int, topics: int = TOPICS) -> np.ndarray:
    """int64 (W, K), by the kernel that the export uses."""
    sizes, found = np.zeros(words, np.uint32), np.zeros(max(data.size, 1), np.uint64)
    filled = rows.unpack_rows(data, words, sizes, found)
    table = np.zeros((words, topics), np.int64)
    places = np.repeat(np.arange(words), sizes), (found[:filled] >> np.uint64(32)).astype(int)
    table[places] = found[:filled] & np.uint64(0xFFFFFFFF)
    return table


class RotatingPart:
    """Some words, of whose tokens a few are here, in up to two blocks, and others elsewhere."""

    def __init__(self, rng: np.random.Generator, words: int, topics: int = TOPICS, proposals: int = 2) -> None:
        self.topics, self.words, self.proposals = topics, words, proposals
        lengths = rng.integers(0, 9, (words, 2)) * (rng.random((words, 2)) < 0.7)
        present = lengths > 0
        self.run_offsets = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
        self.blocks, self.lengths = np.nonzero(present)[1].astype(np.uint32), lengths[present].astype(np.uint32)
        starts = np.concatenate((np.zeros((1, 2), int), np.cumsum(lengths, axis=0)[:-1]))
        self.starts = starts[present].astype(np.uint32)
        self.bases = np.array([1, 1 + lengths[:, 0].sum()])
        self.word_of = np.full(lengths.sum() + 2, -1)
        for word, block in np.argwhere(present):
            first = self.bases[block] + starts[word, block]
            self.word_of[first : first + lengths[word, block]] = word
        self.state = rng.integers(0, topics, (self.word_of.size, 2 + proposals)).astype(np.uint8)
        self.state[:, -1] = np.where(rng.random(self.word_of.size) < 0.5, self.state[:, 0], self.state[:, -1])
        self.elsewhere = rng.integers(0, 4, (words, topics))
        for array in (self.run_offsets, self.blocks, self.starts, self.lengths):
            array.setflags(write=False)  # as mapped files are: what the cache of compiled kernels holds fits

    @property
    def where(self) -> tuple[np.ndarray, ...]:
        return self.state, self.bases, self.run_offsets, self.blocks, self.starts, self.lengths

    def counts(self, column: int) -> np.ndarray:
        """int64 (W, K), of the tokens here under the topics of a column, and those elsewhere."""
        table, here = self.elsewhere.copy(), self.word_of >= 0
        np.add.at(table, (self.word_of[here], self.state[here, column]), 1)
        return table

    def sample(
        self, prior: object, summary: np.ndarray, key: np.uint64
    ) -> tuple[np.ndarray, int, two_phase.TopicTotals]:
        """Do the word phase; returns the rows that leave, how many tokens changed, and the totals."""
        arrived, totals = packed(self.counts(-1)), make_totals(summary)
        frequencies = self.counts(-1).sum(axis=1)
        leaving, work = (
            np.zeros(packed_counts.max_packed_bytes(frequencies, self.topics), np.uint8),
            make_work(self.topics),
        )
        passage = PartInTransit(arrived, leaving, np.zeros(1, np.int64))
        changed = rows.word_phase(*self.where, passage, work, prior, totals, key)
        assert not (work.counted["count"].any() or work.marks.any() or work.groups.any())
        return leaving[: passage.left[0]], changed, totals


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(1, 5), st.sampled_from([3, 300, 5000]))
def test_rows_come_out_as_they_went_in(seed, words, topics):
    """Any counts up to 2^34, read and written again by both kernels that pass rows on; never more than their room."""
    rng = np.random.default_rng(seed)
    table = np.zeros((words, topics), np.int64)
    for word in range(words):
        some = rng.choice(topics, min(topics, int(rng.integers(0, 40))), replace=False)
        table[word, some] = rng.integers(1, 1 << int(rng.integers(1, 31)), some.size)
    data = packed(table)
    assert data.size <= packed_counts.max_packed_bytes(table.sum(axis=1), topics)
    none, runs = np.zeros(0, np.uint32), np.zeros(words + 1, np.int64)
    for array in (none, runs):
        array.setflags(write=False)
    nobody = np.zeros((1, 4), np.uint8), np.zeros(1, np.int64), runs, none, none, none
    again = np.zeros(data.size, np.uint8)
    assert rows.count_phase(*nobody, data, again, make_work(topics)) == data.size
    assert np.array_equal(again, data)
    assert np.array_equal(unpacked(again, words, topics), table)
    again[:] = 0
    prior, totals = make_prior(topics, np.array([0.1])), make_totals(np.ones(topics))
    left = np.zeros(1, np.int64)
    passage = PartInTransit(data, again, left)
    assert rows.word_phase(*nobody, passage, make_work(topics), prior, totals, np.uint64(1)) == 0
    assert left[0] == data.size
    assert np.array_equal(again, data)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(1, 6), st.integers(1, 3))
def test_a_row_counts_every_token_where_it_is(seed, words, proposals):
    """After the phase a row is what was elsewhere and where the tokens here are; tokens have that as what is counted;
    the totals changed as the tokens did; rows of no word here are untouched."""
    part = RotatingPart(np.random.default_rng(seed), words, proposals=proposals)
    before, summary = part.state.copy(), part.counts(0).sum(axis=0) + 2.5
    leaving, changed, totals = part.sample(make_prior(TOPICS, np.array([0.1])), summary, stream_key(seed))
    here = part.word_of >= 0
    assert np.array_equal(unpacked(leaving, words), part.counts(0))
    assert np.array_equal(part.state[here, 0], part.state[here, -1])
    assert np.array_equal(part.state[~here], before[~here])
    assert changed == np.sum(part.state[here, 0] != before[here, 0])
    moved = np.bincount(part.state[here, 0], minlength=TOPICS) - np.bincount(before[here, 0], minlength=TOPICS)
    assert np.array_equal(totals.topics["change"] + totals.changes, moved)
    assert part.state.max() < TOPICS


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(1, 3))
def test_tokens_walk_as_those_of_one_machine_do(seed, proposals):
    """By `accept_token`, whose rule is proven, from the counts of the row, with what changed here since put right."""
    part = RotatingPart(np.random.default_rng(seed), 1, proposals=proposals)
    counts, summary = part.counts(0)[0], part.counts(0).sum(axis=0) + 2.5
    totals, prior = make_totals(summary), make_prior(TOPICS, np.array([0.1]))
    counted = np.zeros(TOPICS, two_phase.COUNT)
    counted["count"] = counts
    draw, expected = 0, {}
    for row in np.flatnonzero(part.word_of == 0).tolist():
        walk = part.state, row, prior, totals.topics, counted, stream_key(seed), np.uint64(draw), rows.SPARE
        expected[row] = two_phase.accept_token(*walk)
        draw += proposals
    part.sample(prior, summary, stream_key(seed))
    assert {row: int(part.state[row, 0]) for row in expected} == expected


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("own", range(3))
def test_proposals_are_drawn_from_the_other_tokens_and_the_prior(own, spread):
    """n_kw^- + beta, tokens elsewhere among them: chi-square of 20,000 draws, false alarm 1e-6 each; without the token
    taken out, it would be another distribution."""
    counts, prior = np.array([3, 1, 2, 0]), make_prior(4, np.array([0.4]))
    work = make_work(4)
    work.topics[:3], work.counts[:3], work.shares[:3] = range(3), counts[:3], counts[:3]
    work.counted["count"] = counts
    if spread:
        rows.spread_tokens(3, work)
    else:
        rows.fill_table(work.topics, work.shares, work.order, 3, work.entries)
    state = np.full((10_000, 4), own, np.uint16)
    rows.draw_run(state, 3, work, 6, spread, prior, stream_key(3, own), np.uint64(0))
    assert (state[:, [0, 3]] == own).all()
    observed, weights = np.bincount(state[:, 1:3].ravel(), minlength=4), counts + 0.4
    assert not alarmed(observed, weights - np.eye(4)[own])
    assert alarmed(observed, weights)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(1, 6))
def test_rows_are_counted_machine_by_machine(seed, words):
    """What nobody has counted before, then what comes from elsewhere: numpy's counts."""
    rng = np.random.default_rng(seed)
    part, data = RotatingPart(rng, words), np.zeros(0, np.uint8)
    table = part.counts(-1) - part.elsewhere
    leaving = np.zeros(packed_counts.max_packed_bytes(table.sum(axis=1), TOPICS), np.uint8)
    first = leaving[: rows.count_phase(*part.where, data, leaving, make_work())]
    assert np.array_equal(unpacked(first, words), table)
    arrived = packed(part.elsewhere)
    leaving = np.zeros(packed_counts.max_packed_bytes(part.counts(-1).sum(axis=1), TOPICS), np.uint8)
    second = leaving[: rows.count_phase(*part.where, arrived, leaving, make_work())]
    assert np.array_equal(unpacked(second, words), part.counts(-1))


def test_the_likelihood_of_rows_is_that_of_their_counts():
    from math import lgamma

    table = np.random.default_rng(0).integers(0, 4, (7, TOPICS))
    likelihood, nonzeros = rows.rows_likelihood(packed(table), 7, make_prior(TOPICS, np.array([0.3])))
    assert likelihood == pytest.approx(sum(lgamma(n + 0.3) - lgamma(0.3) for n in table.ravel().tolist()))
    assert nonzeros == np.count_nonzero(table)
