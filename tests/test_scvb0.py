"""The start by stochastic collapsed variational inference, against plain float64 twins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpora import (
    InProcess,
    model_bytes,
    names_of_words,
    new_run,
    plan,
    planted_documents,
    program_spec,
    small_dataset,
)
from scipy import stats
from scipy.optimize import linear_sum_assignment

from blocks import Dataset, RequestError, write_corpus
from ooc.rng import stream_key
from ooc.training import train
from samplers.lda import folding, scvb0, topic_tree, warm_start
from samplers.lda.groups import symmetric_prior
from samplers.lda.program import topic_type

BETA, SCALE = 0.05, 0.25
NO_TREE = np.zeros((3, 1), np.int64)
ALARM = 1e-6  # chance that one chi-square test fails though the draws are right


class Minibatch:
    """The documents from `first` to `last` of a block, folded in."""

    def __init__(self, dataset: Dataset, topics: int = 7) -> None:
        self.block, self.topics, self.first, self.last = dataset.block(0), topics, 3, 20
        tokens, documents = self.block.positions.size, self.block.offsets.size - 1
        self.words_at = np.repeat(self.block.words, np.diff(self.block.word_offsets))
        self.estimate = self.make_estimate(dataset)
        self.mixtures = scvb0.Mixtures(
            np.zeros(documents, np.uint32),
            np.zeros(tokens, topic_type(topics)),
            np.zeros(tokens, np.float32),
            np.full(tokens, 99_999, np.uint32),
        )
        scvb0.find_documents(self.block.offsets, self.block.positions, 0, documents, self.mixtures.documents)
        self.documents = (self.block.offsets, self.block.positions, self.words_at, self.first, self.last)
        self.tokens = scvb0.fold_documents(*self.documents, self.estimate, self.mixtures)

    def make_estimate(self, dataset: Dataset) -> folding.Estimate:
        """Return random expected counts; sets `alpha` and `phi`, the probability of each word in each topic."""
        topics = self.topics
        self.alpha = 0.1 * np.arange(1, topics + 1)
        self.rows = np.random.default_rng(5).gamma(0.3, 9.0, (dataset.vocabulary_size, topics)).astype(np.float32)
        totals = SCALE * self.rows.sum(axis=0, dtype=np.float64)
        self.shares = 1.0 / (totals + dataset.vocabulary_size * BETA)
        self.phi = (self.rows.astype(np.float64) * SCALE + BETA) * self.shares
        kinds = self.shares.astype(np.float32), self.alpha.astype(np.float32)
        arena, entries = self.rows.reshape(-1), np.zeros(dataset.vocabulary_size + 1, np.int64)
        tree = topic_tree.Tree(arena.view(np.uint32), entries, *NO_TREE, np.array([0, topics]), 2, 0, 1)
        return folding.Estimate(arena, SCALE, *kinds, BETA, topics, tree)

    def mixture(self, document: int) -> np.ndarray:
        """n_kd of a document as it is stored, float64 (K,)."""
        found = np.zeros(self.topics)
        start, size = self.block.offsets[document], self.mixtures.sizes[document]
        found[self.mixtures.topics[start : start + size]] = self.mixtures.counts[start : start + size]
        return found

    def words_of(self, document: int) -> np.ndarray:
        """uint32 (N_d,): the words of a document's tokens, ascending."""
        return self.words_at[self.block.positions[self.block.offsets[document] : self.block.offsets[document + 1]]]

    def mixture_expected(self, document: int) -> np.ndarray:
        """The twin of `mixture`."""
        words, times = np.unique(self.words_of(document), return_counts=True)
        tokens = times.sum()
        likely = self.likely_expected(words, times)
        evidence = self.evidence(words, times)
        counts = np.where(likely, evidence * tokens / max(evidence[likely].sum(), 1e-30), 0)
        for _ in range(2):
            for word, c in zip(words, times, strict=True):
                gammas = likely * (counts + self.alpha) * self.phi[word]
                counts = (1 - c / tokens) * counts + c * gammas / gammas.sum()
        share = 0.1
        while tokens and (counts >= share * counts.max()).sum() > tokens:
            share *= 1.25
        return np.where(counts >= share * counts.max(), counts, 0)

    def evidence(self, words: np.ndarray, times: np.ndarray) -> np.ndarray:
        """float64 (K,): n_kd by up to 16 words, evenly spread, four at a time."""
        counts, some = np.zeros(self.topics), min(words.size, 16)
        chosen = np.arange(some) * words.size // max(some, 1)
        for j in range(0, some, 4):
            mine = chosen[j : j + 4]
            gammas = (counts + self.alpha) * self.phi[words[mine]]
            counts = counts + (times[mine, None] * gammas / gammas.sum(axis=1, keepdims=True)).sum(axis=0)
        return counts

    def likely_expected(self, words: np.ndarray, times: np.ndarray) -> np.ndarray:
        """bool (K,): topics with a hundredth of the largest evidence."""
        evidence = self.evidence(words, times)
        return (evidence >= 0.01 * evidence.max()) & (words.size > 0)

    def gammas(self) -> np.ndarray:
        """float64 (N, K): of the token at each position, by the stored mixtures; 0 outside the minibatch."""
        found = np.zeros((self.words_at.size, self.topics))
        for position, document in enumerate(self.mixtures.documents):
            if self.first <= document < self.last:
                counts, phi = self.mixture(document), self.phi[self.words_at[position]]
                own = (counts > 0) * (counts + self.alpha) * phi
                without = (counts > 0) * (np.maximum(counts - own / own.sum(), 0) + self.alpha) * phi
                found[position] = without / without.sum()
        return found

    def draw(self, state: np.ndarray, key: np.uint64) -> np.ndarray:
        """Draw the topics of the minibatch's tokens; returns `drawn`."""
        drawn = np.zeros(self.topics, np.int64)
        scvb0.draw_documents(state, 0, *self.documents, self.estimate, symmetric_prior(self.topics, 0.1), drawn, key)
        return drawn


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("scvb0") / "dataset")


@pytest.mark.parametrize("topics", [7, 45])
def test_mixtures_are_some_sweeps_without_their_small_shares(dataset, topics):
    """A few words find the likely topics; then each word in turn replaces as many tokens as it has."""
    batch = Minibatch(dataset, topics)
    for document in range(batch.first, batch.last):
        assert np.allclose(batch.mixture(document), batch.mixture_expected(document), rtol=1e-4, atol=1e-5)


def test_a_document_between_equal_topics_keeps_as_many_as_it_has_tokens(dataset):
    """All topics alike: no share is too small, and there is room for a few only, but for one at least."""
    batch = Minibatch(dataset)
    batch.rows[:] = 1.0
    shares, alpha = (np.full(batch.topics, value, np.float32) for value in (0.01, 0.1))
    documents = batch.block.offsets.size - 1
    scvb0.fold_documents(
        *batch.documents[:3], 0, documents, batch.estimate._replace(shares=shares, alpha=alpha), batch.mixtures
    )
    lengths = np.diff(batch.block.offsets)
    assert (lengths < batch.topics).any()
    assert np.array_equal(batch.mixtures.sizes, np.minimum(lengths, batch.topics))


def test_of_many_likely_topics_the_most_likely_are_kept(dataset):
    """300 topics that all have enough evidence: of these at most 64, none less likely than one left out."""
    batch = Minibatch(dataset, 300)
    batch.rows[:] = 1.0 + np.random.default_rng(3).random(batch.rows.shape, np.float32)
    batch.alpha[:] = 0.1
    estimate = batch.estimate._replace(alpha=batch.alpha.astype(np.float32))
    batch.phi = (batch.rows.astype(np.float64) * SCALE + BETA) * batch.shares
    memory = folding.new_memory(batch.block.offsets, 0, 30, estimate)
    for document in range(batch.first, batch.last):
        words, times = np.unique(batch.words_of(document), return_counts=True)
        if not words.size:
            continue
        memory.words[: words.size], memory.times[: words.size] = words, times
        memory.words[words.size : words.size + 4], memory.times[words.size : words.size + 4] = words[-1:], 0
        found = folding.fold(words.size, estimate, memory)
        assert 32 <= found <= folding.LIKELY
        evidence = batch.evidence(words, times)
        kept = np.zeros(300, bool)
        kept[memory.likely[:found]] = True
        assert evidence[kept].min() > evidence[~kept].max() * (1 - 1e-4)


def test_rows_take_in_expected_counts(dataset):
    """Rows and totals against a float64 twin; the documents before are counted already, those after are left."""
    batch = Minibatch(dataset)
    gammas, expected = batch.gammas(), batch.rows.astype(np.float64)
    totals = np.zeros(batch.topics)
    starts, ends = batch.block.word_offsets[:-1], batch.block.word_offsets[1:]
    documents = [batch.mixtures.documents[start:end] for start, end in zip(starts, ends, strict=True)]
    nexts, after = (
        (starts + [np.searchsorted(mine, document) for mine in documents]).astype(np.uint32)
        for document in (batch.first, batch.last)
    )
    words = batch.block.words, ends, nexts, batch.last
    given = batch.block.offsets, batch.estimate, batch.mixtures, 2.0, scvb0.new_scratch(batch.topics, batch.topics)
    scvb0.count_words(*words, *given, totals)
    np.add.at(expected, batch.words_at, 2.0 * gammas)
    assert np.allclose(batch.rows, expected, rtol=1e-5)
    assert np.allclose(totals, gammas.sum(axis=0), rtol=1e-5)
    assert np.array_equal(nexts, after)


@pytest.mark.parametrize("topics", [7, 45])
def test_topics_are_drawn_by_gamma(dataset, topics):
    """2,000 draws of each token of one document: a chi-square test, false alarm below 1e-6 a token, 5e-5 in all."""
    batch = Minibatch(dataset, topics)
    batch.documents = (*batch.documents[:3], batch.first, batch.first + 1)
    mine = batch.block.positions[batch.block.offsets[batch.first] : batch.block.offsets[batch.first + 1]]
    gammas = batch.gammas()[mine]
    counts = np.zeros((mine.size, topics))
    for n in range(2000):
        state = np.full((batch.words_at.size, 2), topics, np.uint8)
        drawn = batch.draw(state, stream_key(4, n))
        counts[np.arange(mine.size), state[mine, 0]] += 1
        assert np.array_equal(drawn, np.bincount(state[mine, 0], minlength=topics))
        assert np.array_equal(state[:, 0], state[:, 1])
        assert (state[:, 0] < topics).sum() == mine.size  # other documents keep what they have
    assert (gammas > 0.005).sum() > 2 * mine.size
    for found, gamma in zip(counts, gammas, strict=True):
        likely = gamma > 0.005
        seen, expected = (np.append(each[likely], each[~likely].sum()) for each in (found, gamma))
        assert stats.chisquare(seen[expected > 0], 2000 * expected[expected > 0]).pvalue > ALARM


def planted(path: Path, number: int = 2000) -> Dataset:
    documents = planted_documents(np.random.default_rng(4), topics=5, words_each=12, documents=number, length=40)
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


def test_passes_over_all_blocks_find_the_topics_too(tmp_path, monkeypatch):
    """With a window of many minibatches there are several passes, not turns through one block before the next."""
    monkeypatch.setattr(warm_start, "LEAST_TOKENS", 1 << 10)
    monkeypatch.setattr(warm_start, "FEW_TOKENS", 1)
    shares = []
    for seed in range(3):
        spec = program_spec("SparseGibbs", topics=5, alpha=0.1, seed=seed)
        with InProcess(planted(tmp_path / str(seed)), spec) as chain:
            *learning, _ = chain.program.initial
            assert len(learning) > 2
            units = range(chain.dataset.block_count)
            batches = sum(len(chain.program.schedule(phase, unit, 1)) // 2 for phase in learning for unit in units)
            assert chain.shared["estimate"][0] == batches  # all of them counted, none forgotten between the passes
            shares.append(share_found(chain))
    assert max(shares) > 0.95


def test_a_start_in_passes_is_the_same_with_any_workers_and_memory(tmp_path):
    """500,000 tokens, 20 topics: the window is larger than a minibatch by itself. In memory, and streamed."""
    dataset, spec = planted(tmp_path / "dataset", 12_500), program_spec("SparseGibbs", topics=20, alpha=0.1)
    assert len(spec.build(dataset).initial) > 3
    for name, chosen in (("resident", plan()), ("streamed", plan(2, 3))):
        train(new_run(tmp_path / name, dataset, spec, 1), chosen, quiet=True)
    assert model_bytes(tmp_path / "resident") == model_bytes(tmp_path / "streamed")


def test_a_start_that_is_not_known_is_refused(dataset):
    with pytest.raises(RequestError, match="--start: unknown start 'warm'"):
        program_spec("SparseGibbs", start="warm").build(dataset)
