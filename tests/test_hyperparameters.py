"""Alpha and beta by maximum likelihood: against SciPy, against known priors, and in runs that are killed."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from corpora import InProcessProgram, leftovers, model_bytes, new_run, open_engine, plan, program_spec, small_dataset
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import gammaln, psi
from training_process import kill_at_random_points

from blocks import Dataset
from ooc.training import train
from samplers.lda.hyperparameters import (
    DirichletMultinomialCounts,
    PriorWeightBounds,
    ValueHistogram,
    digamma,
    fit_prior,
    histogram,
    improve_prior,
    merge_histograms,
    observed_documents,
    observed_words,
)
from samplers.topics.model import SavedTopicModel

ITERATIONS = 9
BOUNDS = PriorWeightBounds(1e-6, 1e6)
OPTIMISED = {"optimize_every": 2, "burn_in": 3}


def observed(counts: np.ndarray) -> DirichletMultinomialCounts:
    """The histograms of dense counts, int64 (draws, outcomes)."""
    draws, outcomes = np.nonzero(counts)
    rows = outcomes.astype(np.uint64) << np.uint64(32) | counts[draws, outcomes].astype(np.uint64)
    return observed_documents(histogram(rows), histogram(counts.sum(axis=1).astype(np.uint64)), counts.shape[1])


def log_likelihood(counts: np.ndarray, alpha: np.ndarray) -> float:
    """Of Dirichlet-multinomial draws, but for the multinomial coefficients."""
    total = gammaln(alpha.sum()) - gammaln(alpha.sum() + counts.sum(axis=1))
    return float(total.sum() + (gammaln(counts + alpha) - gammaln(alpha)).sum())


def best_prior(counts: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The maximum of `log_likelihood` by SciPy, over log(alpha)."""

    def loss(logs: np.ndarray) -> float:
        return -log_likelihood(counts, np.broadcast_to(np.exp(logs), counts.shape[1]))

    found = minimize(loss, np.log(start), method="Nelder-Mead" if start.size == 1 else "BFGS", tol=1e-9)
    return np.exp(found.x)


def draw(rng: np.random.Generator, alpha: np.ndarray, draws: int, longest: int) -> np.ndarray:
    """Counts from a Dirichlet-multinomial distribution, int64 (draws, outcomes), some draws empty."""
    lengths = rng.integers(0, longest + 1, draws)
    return np.array([rng.multinomial(length, rng.dirichlet(alpha)) for length in lengths])


@given(st.floats(1e-6, 1e9))
def test_digamma_is_scipys(x):
    assert digamma(x) == pytest.approx(psi(x), rel=1e-13, abs=1e-13)


def test_a_known_asymmetric_prior_is_found_again():
    alpha = np.array([0.05, 0.2, 1.0, 2.5])
    counts = draw(np.random.default_rng(1), alpha, 20_000, 200)
    np.testing.assert_allclose(fit_prior(np.full(4, 0.5), 4, observed(counts), BOUNDS), alpha, rtol=0.04)


@pytest.mark.parametrize("alpha", [[0.3, 0.7, 1.5], [0.02, 0.02, 0.5, 0.1, 0.9]], ids=str)
def test_the_fixed_point_is_the_maximum_that_scipy_finds(alpha):
    counts = draw(np.random.default_rng(2), np.array(alpha), 400, 60)
    fitted = fit_prior(np.full(len(alpha), 0.4), len(alpha), observed(counts), BOUNDS)
    np.testing.assert_allclose(fitted, best_prior(counts, np.full(len(alpha), 0.4)), rtol=1e-4)


def test_the_fixed_point_of_a_symmetric_prior_is_the_maximum_that_scipy_finds():
    """Beta: the draws are the topics, the outcomes the words."""
    counts = draw(np.random.default_rng(3), np.full(80, 0.07), 12, 2000)
    words = observed_words(histogram(counts[counts > 0].astype(np.uint64)), counts.sum(axis=1))
    fitted = fit_prior(np.array([0.5]), 80, words, BOUNDS)
    np.testing.assert_allclose(fitted, best_prior(counts, np.array([0.5])), rtol=1e-4)
    assert fitted[0] == pytest.approx(0.07, rel=0.1)


@given(st.integers(0, 1 << 32), st.floats(1e-3, 50))
def test_no_round_lowers_the_likelihood(seed, start):
    rng = np.random.default_rng(seed)
    counts = draw(rng, rng.uniform(0.02, 3, 5), 30, 20)
    counts[0, :] += 1  # every topic has a token
    prior, parts = np.full(5, start), observed(counts)
    before = log_likelihood(counts, prior)
    for _ in range(20):
        improve_prior(prior, 5, parts, BOUNDS)
        after = log_likelihood(counts, prior)
        assert after >= before - 1e-9 * abs(before)
        before = after


def test_priors_stay_finite_and_above_zero():
    """A topic without tokens; and counts without any spread, whose likelihood has no maximum."""
    without = fit_prior(np.ones(2), 2, observed(np.array([[3, 0], [5, 0]])), BOUNDS)
    assert without[1] == BOUNDS.least
    alike = fit_prior(np.ones(2), 2, observed(np.full((50, 2), 30)), BOUNDS)
    assert np.isfinite(alike).all()
    assert (alike > 10).all()


def test_estimates_stay_within_bounds_and_the_log_says_so(tmp_path, ooc):
    """Documents of one word that occurs once say nothing of beta, and soon all but one topic have no tokens."""
    (tmp_path / "ones.txt").write_text("".join(f"word{number}\n" for number in range(20)))
    assert ooc("ingest", "text", "ones.txt", "ones", "--lines", "--stop-words", "none").returncode == 0
    size = ["--topics", 4, "--iterations", 100, "--evaluate-every", 1, "--workers", 1, "--sampler", "two-phase"]
    done = ooc("train", "lda", "ones", "run", *size, "--optimize-every", 1, "--burn-in", 1)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["beta"] for line in lines) == 1.0
    assert SavedTopicModel(tmp_path / "run" / "model").alpha.min() >= 0.01 / 4
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("beta is at its largest allowed value, 1\n") == 1
    assert log.count("topics is at its smallest allowed value, 0.0025\n") == 1


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=6), st.randoms())
def test_merging_histograms_counts_everything_in_any_order(parts, chance):
    merged = merge_histograms([histogram(np.array(part, np.uint64)) for part in parts])
    chance.shuffle(parts)
    again = merge_histograms([histogram(np.array(part, np.uint64)) for part in parts])
    expected = np.unique(np.array([value for part in parts for value in part], np.uint64), return_counts=True)
    for found in (merged, again):
        np.testing.assert_array_equal(found.values, expected[0])
        np.testing.assert_array_equal(found.times, expected[1])
        assert isinstance(found, ValueHistogram)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("data") / "dataset", documents=150)


def test_a_chain_takes_the_priors_of_its_counts(dataset):
    """After the burn-in and then every second iteration, what dense counts of all tokens give; not in between."""
    with InProcessProgram(dataset, program_spec(**OPTIMISED)) as chain:
        chain.iterate(3)
        assert set(chain.shared["alpha"]) == {0.3}
        documents, words = chain.counts()
        chain.adapt(3)
        alpha, beta = chain.shared["alpha"].copy(), chain.shared["beta"].copy()
        np.testing.assert_array_equal(alpha, fit_prior(np.full(5, 0.3), 5, observed(documents), BOUNDS))
        np.testing.assert_allclose(beta, fit_prior(np.array([0.05]), 200, observed_symmetric(words), BOUNDS))
        assert chain.program.document_prior(chain.shared).total == pytest.approx(alpha.sum())
        chain.adapt(4)
        assert np.array_equal(alpha, chain.shared["alpha"])
        told = chain.objective()
    assert (told["alpha_sum"], told["beta"]) == (pytest.approx(alpha.sum()), beta[0])


def observed_symmetric(words: np.ndarray) -> DirichletMultinomialCounts:
    """The histograms of dense counts of words, int64 (V, K)."""
    return observed_words(histogram(words[words > 0].astype(np.uint64)), words.sum(axis=0))


@pytest.fixture(scope="module")
def expected(dataset, tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """The models of runs that nobody disturbs, by sampler, made without an engine."""
    directory = tmp_path_factory.mktemp("undisturbed")
    for sampler in ("TwoPhase", "LightLda", "SparseLda"):
        with InProcessProgram(dataset, program_spec(sampler, **OPTIMISED)) as chain:
            chain.iterate(ITERATIONS)
            (directory / sampler).mkdir()
            chain.export(directory / sampler / "model")
    return {path.name: model_bytes(path) for path in directory.iterdir()}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sampler", "workers", "buffers"),
    [("TwoPhase", 2, 0), ("TwoPhase", 2, 2), ("LightLda", 2, 0), ("LightLda", 1, 2), ("SparseLda", 2, 2)],
)
def test_the_model_does_not_depend_on_workers_or_memory(dataset, expected, tmp_path, sampler, workers, buffers):
    run = new_run(tmp_path / "run", dataset, program_spec(sampler, **OPTIMISED), ITERATIONS)
    train(run, plan(workers, buffers), quiet=True)
    assert model_bytes(run.path) == expected[sampler]
    alpha = SavedTopicModel(run.path / "model").alpha
    assert alpha.size == np.unique(alpha).size


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("buffers", [0, 2], ids=["resident", "streamed"])
def test_an_estimation_is_neither_lost_nor_done_twice(dataset, expected, tmp_path, buffers):
    """Three times: the priors are changed, nothing is committed, and another engine goes on from the generation."""
    run = new_run(tmp_path / "run", dataset, program_spec(**OPTIMISED), 3)
    train(run, plan(2), quiet=True)
    for _ in range(3):
        with open_engine(run, plan(1, 2 - buffers)) as engine:
            engine.start()
            if found := engine.program.census(engine.cursor.iteration, engine.sweep, engine.arrays):
                engine.program.adapt([found], engine.arrays)
        with open_engine(run, plan(1, buffers)) as engine:
            engine.start()
            engine.step()
            if not buffers:  # in memory only whole iterations are committed
                engine.step()
                engine.commit()
    run.set_iterations(ITERATIONS)
    train(run, plan(2), quiet=True)
    assert model_bytes(run.path) == expected["TwoPhase"]
    assert leftovers(run.path) == []


@pytest.mark.long
def test_killed_at_any_point_a_run_ends_with_the_same_bytes(dataset, tmp_path):
    spec = program_spec(topics=50, optimize_every=1, burn_in=1)
    undisturbed, run = (new_run(tmp_path / name, dataset, spec, 40) for name in ("undisturbed", "run"))
    train(undisturbed, plan(), quiet=True)
    kill_at_random_points(run.path, random.Random(), kills=3)
    train(run, plan(), quiet=True)
    assert model_bytes(run.path) == model_bytes(undisturbed.path)
    assert leftovers(run.path) == []
