"""Topics that grow by splitting, against float64 twins with dense tables of all words and topics."""

from __future__ import annotations

import numpy as np
import pytest
from corpora import small_dataset
from minibatches import ALARM, BETA, SCALE, Minibatch
from scipy import stats

from blocks import Dataset
from ooc.rng import stream_key
from samplers.lda import document_fold_in, scvb0, topic_tree

FANOUT, SIZES = 3, [7, 21, 62]  # the last topic of the second depth has two children


class SplitMinibatch(Minibatch):
    """A minibatch folded in under topics split twice. tables: the counts at each depth, NaN where there is none."""

    def make_estimate(self, dataset: Dataset) -> document_fold_in.ExpectedTopicCounts:
        words, rng = dataset.vocabulary_size, np.random.default_rng(6)
        dense = rng.gamma(0.3, 9.0, (words, SIZES[0])).astype(np.float32)
        arena = np.zeros(60 * dense.size, np.float32)
        arena[: dense.size] = dense.reshape(-1)
        tree = topic_tree.TopicTree(
            arena.view(np.uint32),
            np.zeros(words + 1, np.int64),
            *np.zeros((3, 3), np.int64),
            np.cumsum([0, *SIZES]),
            FANOUT,
            0,
            1,
        )
        totals = [SCALE * dense.sum(axis=0, dtype=np.float64)]
        for depth, size in enumerate(SIZES[1:]):
            totals.append(np.zeros(size))
            split = tree._replace(depth=depth)
            topic_tree.split_topics(arena, split, SCALE, SIZES[0], totals[-1], stream_key(8, depth))
        self.dense, self.totals = SCALE * dense.astype(np.float64), totals
        self.tree = tree._replace(depth=2, descendants=FANOUT**2)
        arena[tree.rows[2] : topic_tree.filled(self.tree, 2)] /= SCALE
        self.alphas = [0.1 * np.arange(1, size + 1) / size for size in SIZES]
        self.alpha = self.alphas[-1]
        self.all_shares = [1.0 / (total + words * BETA) for total in totals]
        kinds = (np.concatenate(each).astype(np.float32) for each in (self.all_shares, self.alphas))
        self.tables = self.read_tables(arena)
        self.phi = (np.nan_to_num(self.tables[2]) + BETA) * self.all_shares[2]
        return document_fold_in.ExpectedTopicCounts(arena, SCALE, *kinds, BETA, SIZES[0], self.tree)

    def read_tables(self, arena: np.ndarray) -> list[np.ndarray]:
        """Read the arena as its description says."""
        tree, bits = self.tree, arena.view(np.uint32)
        tables = [np.full((tree.entries.size - 1, size), np.nan) for size in SIZES]
        for word, (first, last) in enumerate(zip(tree.entries[:-1], tree.entries[1:], strict=True)):
            for entry in range(first, last):
                topic = int(bits[entry]) % 2**16
                tables[0][word, topic] = arena[entry]
                for i in range(FANOUT):
                    child = topic * FANOUT + i
                    tables[1][word, child] = arena[tree.rows[1] + entry * FANOUT + i]
                    known, begin, mask = bits[tree.links[1] + 3 * entry : tree.links[1] + 3 * entry + 3].tolist()
                    assert known == topic
                    if mask & 1 << i:
                        row = begin + (mask & ((1 << i) - 1)).bit_count()
                        of_row = arena[tree.rows[2] + row * FANOUT : tree.rows[2] + (row + 1) * FANOUT]
                        grandchildren = slice(child * FANOUT, min((child + 1) * FANOUT, SIZES[2]))
                        tables[2][word, grandchildren] = SCALE * of_row[: grandchildren.stop - grandchildren.start]
        return tables

    def mixture_expected(self, document: int) -> np.ndarray:
        words, times = np.unique(self.words_of(document), return_counts=True)
        tokens = times.sum()
        if not tokens:
            return np.zeros(SIZES[-1])
        evidence, some = np.zeros(SIZES[0]), min(words.size, 16)
        for j in np.arange(some) * words.size // some:
            gammas = (evidence + self.alphas[0]) * self.all_shares[0] * (self.tables[0][words[j]] + BETA)
            evidence += times[j] * np.nan_to_num(gammas / max(np.nansum(gammas), 1e-30))
        likely = (evidence >= 0.01 * evidence.max()) & (evidence > 0)
        counts = np.where(likely, evidence * tokens / evidence[likely].sum(), 0)
        for depth, (table, shares, alpha) in enumerate(zip(self.tables, self.all_shares, self.alphas, strict=True)):
            if depth:
                of_parents = np.arange(SIZES[depth]) // FANOUT
                counts = (counts / np.bincount(of_parents))[of_parents]
                likely = counts > 0
            phi = (np.nan_to_num(table) + BETA) * shares
            for _ in range(5 if depth else 2):
                for word, c in zip(words, times, strict=True):
                    gammas = likely * (counts + alpha) * phi[word]
                    counts = (1 - c / tokens) * counts + c * gammas / gammas.sum()
            share = 0.1
            while share < 1 and (counts >= share * counts.max()).sum() > (12 if depth < 2 else tokens):
                share = min(1.25 * share, 1.0)
            counts = np.where(counts >= share * counts.max(), counts, 0)
        return counts


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> SplitMinibatch:
    return SplitMinibatch(small_dataset(tmp_path_factory.mktemp("tree") / "dataset"), SIZES[-1])


def test_counts_are_divided_among_children(batch):
    """Pairs with half a token or more are divided, to within 1 of 128 at depth 0, and others have no children."""
    first, second, third = batch.tables
    for table, before in ((first, batch.dense), (second, np.repeat(first, FANOUT, axis=1))):
        assert np.array_equal(np.isnan(table), np.isnan(before) | (before < 0.5))
    assert np.allclose(first[~np.isnan(first)], batch.dense[~np.isnan(first)], rtol=1 / 128)
    pairs = np.repeat(second, FANOUT, axis=1)[:, : SIZES[2]]
    assert np.array_equal(np.isnan(third), np.isnan(pairs) | (pairs < 0.5))
    for table, parents, totals in ((second, first, batch.totals[1]), (third, second, batch.totals[2])):
        of_parents = np.arange(table.shape[1]) // FANOUT
        for parent in range(parents.shape[1]):
            mine = table[:, of_parents == parent]
            known = ~np.isnan(mine[:, 0])
            assert np.allclose(mine[known].sum(axis=1), parents[known, parent], rtol=1e-5)
            assert (mine[known].max(axis=1) <= 3.01 * mine[known].min(axis=1)).all()
        assert np.allclose(np.nansum(table, axis=0), totals, rtol=1e-5)


def test_the_arena_is_never_too_small():
    """Rows of a table that fills the arena: few pairs fit, and these are the largest."""
    dense = np.random.default_rng(1).gamma(0.5, 20.0, (50, SIZES[0])).astype(np.float32)
    arena = dense.reshape(-1).copy()
    tree = topic_tree.TopicTree(
        arena.view(np.uint32), np.zeros(51, np.int64), *np.zeros((3, 3), np.int64), np.cumsum([0, *SIZES]), FANOUT, 0, 1
    )
    for depth, size in enumerate(SIZES[1:]):
        topic_tree.split_topics(arena, tree._replace(depth=depth), 1.0, SIZES[0], np.zeros(size), stream_key(8))
    pairs = tree.sizes[1]
    assert 5 < pairs <= arena.size // (2 * topic_tree.numbers_of_pair(FANOUT))
    assert topic_tree.filled(tree, 2) <= arena.size
    assert arena[:pairs].min() >= np.sort(dense.reshape(-1))[-pairs] * (1 - 1 / 128)


def test_mixtures_are_those_of_children_of_a_documents_topics(batch):
    for document in range(batch.first, batch.last):
        assert np.allclose(batch.mixture(document), batch.mixture_expected(document), rtol=1e-3, atol=1e-4)


def test_rows_of_children_take_in_expected_counts(batch):
    """Tokens count in topics of which their word has counts, and nowhere if it has none."""
    gammas = np.zeros((batch.words_at.size, SIZES[-1]))
    known = ~np.isnan(batch.tables[2])
    for position, document in enumerate(batch.mixtures.documents):
        if batch.first <= document < batch.last:
            counts, word = batch.mixture(document), batch.words_at[position]
            own = known[word] * (counts > 0) * (counts + batch.alpha) * batch.phi[word]
            own /= max(own.sum(), 1e-30)
            without = own * (np.maximum(counts - own, 0) + batch.alpha) / (counts + batch.alpha)
            gammas[position] = without / max(without.sum(), 1e-30)
    expected, totals = np.nan_to_num(batch.tables[2]), np.zeros(SIZES[-1])
    starts, ends = batch.block.word_offsets[:-1], batch.block.word_offsets[1:]
    documents = [batch.mixtures.documents[start:end] for start, end in zip(starts, ends, strict=True)]
    nexts = (starts + [np.searchsorted(mine, batch.first) for mine in documents]).astype(np.uint32)
    words = batch.block.words, ends, nexts, batch.last
    estimate = batch.estimate._replace(rows=batch.estimate.rows.copy())
    scratch = scvb0.new_scratch(SIZES[-1], SIZES[0])
    changed = scvb0.count_words(*words, batch.block.offsets, estimate, batch.mixtures, 2.0, scratch, totals)
    np.add.at(expected, batch.words_at, 2.0 * SCALE * gammas)
    assert np.allclose(np.nan_to_num(batch.read_tables(estimate.rows)[2]), expected, rtol=1e-4, atol=1e-5)
    assert np.allclose(totals, gammas.sum(axis=0), rtol=1e-4, atol=1e-5)
    assert 0 < gammas.sum() < batch.tokens
    differ = np.flatnonzero(estimate.rows != batch.estimate.rows)
    assert (differ[0], differ[-1]) == changed
    assert not scratch.expected.any()
    assert not scratch.ancestors.any()


def test_children_are_drawn_by_gamma(batch):
    """2,000 draws of each token of one document: a chi-square test, false alarm below 1e-6 a token, 5e-5 in all."""
    batch.documents = (*batch.documents[:3], batch.first, batch.first + 1)
    mine = batch.block.positions[batch.block.offsets[batch.first] : batch.block.offsets[batch.first + 1]]
    gammas, counts = batch.gammas()[mine], np.zeros((mine.size, SIZES[-1]))
    for n in range(2000):
        state = np.zeros((batch.words_at.size, 1), np.uint8)
        batch.draw(state, stream_key(4, n))
        counts[np.arange(mine.size), state[mine, 0]] += 1
    for found, gamma in zip(counts, gammas, strict=True):
        likely = gamma > 0.005
        seen, expected = (np.append(each[likely], each[~likely].sum()) for each in (found, gamma))
        assert stats.chisquare(seen[expected > 0], 2000 * expected[expected > 0]).pvalue > ALARM
