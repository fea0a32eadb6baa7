"""The start by stochastic collapsed variational inference, against plain float64 twins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpora import InProcess, names_of_words, planted_documents, program_spec, small_dataset
from scipy import stats
from scipy.optimize import linear_sum_assignment

from blocks import Dataset, RequestError, write_corpus
from ooc.program import Phase
from ooc.worker import kernels_of
from samplers import scvb0, warm_start
from samplers.streams import stream_key

TOPICS, BETA, SCALE = 7, 0.05, 0.25
ALPHA = 0.1 * np.arange(1, TOPICS + 1)
ALARM = 1e-6  # chance that one chi-square test fails though the draws are right


class Minibatch:
    """The documents from `first` to `last` of a block, folded in."""

    def __init__(self, dataset: Dataset) -> None:
        self.block, self.first, self.last = dataset.block(0), 3, 20
        tokens, documents = self.block.positions.size, self.block.offsets.size - 1
        self.words_at = np.repeat(self.block.words, np.diff(self.block.word_offsets))
        self.rows = np.random.default_rng(5).gamma(0.3, 9.0, (dataset.vocabulary_size, TOPICS)).astype(np.float32)
        totals = SCALE * self.rows.sum(axis=0, dtype=np.float64)
        self.shares = 1.0 / (totals + dataset.vocabulary_size * BETA)
        kinds = self.shares.astype(np.float32), ALPHA.astype(np.float32)
        self.estimate = scvb0.Estimate(self.rows.reshape(-1), SCALE, *kinds, BETA)
        self.mixtures = scvb0.Mixtures(
            np.zeros(documents, np.uint32),
            np.zeros(tokens, np.uint16),
            np.zeros(tokens, np.float32),
            np.full(tokens, 99_999, np.uint32),
        )
        scvb0.find_documents(self.block.offsets, self.block.positions, 0, documents, self.mixtures.documents)
        fold = (self.block.offsets, self.block.positions, self.words_at, self.first, self.last)
        scvb0.fold_documents(*fold, self.estimate, self.mixtures)
        self.phi = (self.rows.astype(np.float64) * SCALE + BETA) * self.shares

    def mixture(self, document: int) -> np.ndarray:
        """n_kd of a document as it is stored, float64 (K,)."""
        found = np.zeros(TOPICS)
        start, size = self.block.offsets[document], self.mixtures.sizes[document]
        found[self.mixtures.topics[start : start + size]] = self.mixtures.counts[start : start + size]
        return found

    def gammas(self) -> np.ndarray:
        """float64 (N, K): of the token at each position; 0 if its document is not in the minibatch."""
        found = np.zeros((self.words_at.size, TOPICS))
        for position, document in enumerate(self.mixtures.documents):
            if self.first <= document < self.last:
                counts, phi = self.mixture(document), self.phi[self.words_at[position]]
                own = (counts > 0) * (counts + ALPHA) * phi
                without = (counts > 0) * (np.maximum(counts - own / own.sum(), 0) + ALPHA) * phi
                found[position] = without / without.sum()
        return found

    def count_words(self, state: np.ndarray, key: np.uint64, added: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
        """Take the minibatch into the rows; returns `totals` and `drawn`."""
        totals, drawn = np.zeros(TOPICS), np.zeros(TOPICS, np.int64)
        words, batch = (self.block.words, self.block.word_offsets), (self.block.offsets, self.first, self.last)
        scratch = scvb0.new_scratch(TOPICS)
        scvb0.count_words(state, 0, *words, *batch, self.estimate, self.mixtures, added, scratch, totals, drawn, key)
        return totals, drawn


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("scvb0") / "dataset")


def test_mixtures_are_three_sweeps_of_cvb0_without_their_small_shares(dataset):
    batch = Minibatch(dataset)
    for document in range(batch.first, batch.last):
        mine = batch.block.positions[batch.block.offsets[document] : batch.block.offsets[document + 1]]
        words, times = np.unique(batch.words_at[mine], return_counts=True)
        gammas, counts = np.zeros((words.size, TOPICS)), np.zeros(TOPICS)
        for _ in range(3):
            for j, word in enumerate(words):
                fresh = batch.phi[word] * (np.maximum(counts - gammas[j], 0) + ALPHA)
                counts += times[j] * (fresh / fresh.sum() - gammas[j])
                gammas[j] = fresh / fresh.sum()
        share = 0.1
        while mine.size and (counts >= share * counts.max()).sum() > mine.size:
            share *= 1.25
        expected = np.where(counts >= share * counts.max(initial=0), counts, 0) if mine.size else np.zeros(TOPICS)
        assert np.allclose(batch.mixture(document), expected, rtol=1e-4, atol=1e-5)


def test_a_document_between_equal_topics_keeps_as_many_as_it_has_tokens(dataset):
    """All topics alike: no share is too small, and there is room for a few only, but for one at least."""
    batch = Minibatch(dataset)
    batch.rows[:] = 1.0
    estimate = batch.estimate._replace(shares=np.full(TOPICS, 0.01, np.float32), alpha=np.full(TOPICS, 0.1, np.float32))
    documents = batch.block.offsets.size - 1
    scvb0.fold_documents(
        batch.block.offsets, batch.block.positions, batch.words_at, 0, documents, estimate, batch.mixtures
    )
    lengths = np.diff(batch.block.offsets)
    assert (lengths < TOPICS).any()
    assert np.array_equal(batch.mixtures.sizes, np.minimum(lengths, TOPICS))


def test_rows_take_in_expected_counts_and_every_token_is_drawn(dataset):
    """Rows and totals against a float64 twin; tokens of other documents keep their topics."""
    batch = Minibatch(dataset)
    gammas, before = batch.gammas(), batch.rows.astype(np.float64)
    state = np.full((batch.words_at.size, 2), TOPICS, np.uint16)
    totals, drawn = batch.count_words(state, stream_key(3))
    inside = gammas.any(axis=1)
    assert 0 < inside.sum() < inside.size
    np.add.at(before, batch.words_at, 2.0 * gammas)
    assert np.allclose(batch.rows, before, rtol=1e-5)
    assert np.allclose(totals, gammas.sum(axis=0), rtol=1e-5)
    assert np.array_equal(state[:, 0] < TOPICS, inside)
    assert np.array_equal(state[:, 0], state[:, 1])
    assert np.array_equal(drawn, np.bincount(state[inside, 0], minlength=TOPICS))
    assert (gammas[inside, state[inside, 0]] > 0).all()


def test_topics_are_drawn_by_gamma(dataset):
    """2,000 draws of each token of one document: a chi-square test, false alarm below 1e-6 a token, 5e-5 in all."""
    batch = Minibatch(dataset)
    batch.last = batch.first + 1
    gammas = batch.gammas()
    mine = np.flatnonzero(gammas.any(axis=1))
    counts = np.zeros((mine.size, TOPICS))
    state = np.zeros((batch.words_at.size, 1), np.uint16)
    for n in range(2000):
        batch.count_words(state, stream_key(4, n), added=0.0)
        counts[np.arange(mine.size), state[mine, 0]] += 1
    for found, gamma in zip(counts, gammas[mine], strict=True):
        likely = gamma > 0.005
        seen, expected = (np.append(each[likely], each[~likely].sum()) for each in (found, gamma))
        assert stats.chisquare(seen[expected > 0], 2000 * expected[expected > 0]).pvalue > ALARM


def planted(path: Path) -> Dataset:
    documents = planted_documents(np.random.default_rng(4), topics=5, words_each=12, documents=2000, length=40)
    offsets = np.arange(0, documents.size + 1, documents.shape[1])
    layout = {"block_tokens": 20_000, "part_tokens": 4000, "slices": 3}
    return write_corpus(path, offsets, documents.reshape(-1), names_of_words(60), **layout)


def share_found(chain: InProcess) -> float:
    """The share of tokens whose topic is the one, matched one to one, that planted them."""
    found = chain.counts()[1].reshape(5, 12, 5).sum(axis=1)
    return found[linear_sum_assignment(-found)].sum() / chain.dataset.tokens


def test_planted_topics_are_found_before_the_first_iteration(tmp_path):
    """By the best of three starts, for more than 95% of the tokens; topics drawn at random match a quarter."""
    dataset = planted(tmp_path / "dataset")
    shares = {}
    for start in ("scvb0", "random"):
        shares[start] = []
        for seed in range(3):
            spec = program_spec("SparseGibbs", topics=5, alpha=0.1, seed=seed, start=start)
            with InProcess(dataset, spec) as chain:
                shares[start].append(share_found(chain))
    assert max(shares["scvb0"]) > 0.95
    assert max(shares["random"]) < 0.3


def test_rows_are_scaled_anew_before_they_overflow(tmp_path, monkeypatch):
    """However many minibatches there are; the topics found are as good."""
    monkeypatch.setattr(warm_start, "LEAST_SCALE", 0.5)
    shares = []
    for seed in range(3):
        spec = program_spec("SparseGibbs", topics=5, alpha=0.1, seed=seed)
        with InProcess(planted(tmp_path / str(seed)), spec) as chain:
            assert chain.shared["estimate"][1] >= 0.5
            shares.append(share_found(chain))
    assert max(shares) > 0.95


def test_a_model_too_large_to_start_so_is_prepared_by_itself(dataset):
    """The kernels that it calls are not all that a smaller one calls: one being compiled says nothing of the other."""
    specs = [program_spec("SparseGibbs", topics=topics) for topics in (300_000, 400_000)]
    small, large = (spec.build(dataset) for spec in specs)
    assert small.local_state() == large.local_state()
    assert small.starts_warm
    assert not large.starts_warm
    assert kernels_of(small, specs[0]) != kernels_of(large, specs[1])


def test_a_start_that_cannot_be_is_refused(dataset):
    for options in ({"update": "rotation"}, {"topics": 1_000_000}):
        assert isinstance(program_spec("SparseGibbs", **options).build(dataset).initial, Phase)
        with pytest.raises(RequestError, match="--start scvb0 is for --update delayed and models of up to 256 MiB"):
            program_spec("SparseGibbs", start="scvb0", **options).build(dataset)
    with pytest.raises(RequestError, match="--start 'warm' is not known"):
        program_spec("SparseGibbs", start="warm").build(dataset)
