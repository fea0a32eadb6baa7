"""The start by stochastic collapsed variational inference, against plain float64 twins."""

from __future__ import annotations

import numpy as np
import pytest
from corpora import (
    InProcessProgram,
    model_bytes,
    new_run,
    plan,
    program_spec,
    small_dataset,
)
from minibatches import ALARM, BETA, SCALE, Minibatch, planted, share_found
from scipy import stats

from blocks import Dataset, RequestError
from ooc.rng import stream_key
from ooc.training import train
from samplers.lda import document_fold_in, scvb0, warm_start


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
    memory = document_fold_in.new_memory(batch.block.offsets, 0, 30, estimate)
    for document in range(batch.first, batch.last):
        words, times = np.unique(batch.words_of(document), return_counts=True)
        if not words.size:
            continue
        memory.words[: words.size], memory.times[: words.size] = words, times
        memory.words[words.size : words.size + 4], memory.times[words.size : words.size + 4] = words[-1:], 0
        found = document_fold_in.fold(words.size, estimate, memory)
        assert 32 <= found <= document_fold_in.LIKELY
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


def test_planted_topics_are_found_before_the_first_iteration(tmp_path):
    """By the best of three starts, for more than 95% of the tokens; topics drawn at random match a quarter."""
    dataset = planted(tmp_path / "dataset")
    shares = {}
    for start in ("scvb0", "random"):
        shares[start] = []
        for seed in range(3):
            spec = program_spec("SparseGibbs", topics=5, alpha=0.1, seed=seed, start=start)
            with InProcessProgram(dataset, spec) as chain:
                shares[start].append(share_found(chain))
    assert max(shares["scvb0"]) > 0.95
    assert max(shares["random"]) < 0.3


def test_rows_are_scaled_anew_before_they_overflow(tmp_path, monkeypatch):
    """However many minibatches there are; the topics found are as good."""
    monkeypatch.setattr(warm_start, "LEAST_SCALE", 0.5)
    shares = []
    for seed in range(3):
        spec = program_spec("SparseGibbs", topics=5, alpha=0.1, seed=seed)
        with InProcessProgram(planted(tmp_path / str(seed)), spec) as chain:
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
        with InProcessProgram(planted(tmp_path / str(seed)), spec) as chain:
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
