"""The average over states of a chain: against dense averages of the states, after kills, and what it is used for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpora import kill_while_resuming, leftovers, model_bytes, names_of_words, random_documents, small_dataset
from folded_documents import bag, documents_of, expected_counts
from hypothesis import given
from hypothesis import strategies as st

from blocks import Dataset, Interrupted, RequestError, WorkFailed, write_corpus
from samplers.lda import training
from samplers.lda.averaging import pool_rows
from samplers.resume import resume
from samplers.topics.inference import evaluate, infer
from samplers.topics.model import SavedTopicModel, TopicCountRows
from samplers.topics.results import describe_topics, export_npz

TOPICS = 6
OPTIONS = {"topics": TOPICS, "evaluate_every": 2, "workers": 1, "quiet": True, "optimize_every": 2, "burn_in": 1}
ITERATIONS, STATES = 8, 3


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("data") / "dataset", documents=120)


@pytest.fixture(scope="module")
def averaged(data, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("averaged") / "run"
    training.train_lda(data.path, run, iterations=ITERATIONS, average=STATES, **OPTIONS)
    return run


@pytest.fixture(scope="module")
def states(data, tmp_path_factory) -> list[SavedTopicModel]:
    """The models of the same chain after 4, 6 and 8 iterations."""
    run = tmp_path_factory.mktemp("states") / "run"
    models = []
    training.train_lda(data.path, run, iterations=4, average=1, **OPTIONS)
    for iterations in (4, 6, 8):
        resume(run, iterations=iterations, quiet=True)
        (run / "model").rename(run.parent / str(iterations))
        models.append(SavedTopicModel(run.parent / str(iterations)))
    return models


def dense(rows: TopicCountRows, topics: int = TOPICS) -> np.ndarray:
    """Sparse rows as int64 (n, K), their topics ascending."""
    matrix = np.zeros((rows.offsets.size - 1, topics), np.int64)
    places = np.repeat(np.arange(matrix.shape[0]), np.diff(rows.offsets))
    assert (np.diff(places * topics + rows.topics) > 0).all()
    matrix[places, rows.topics] = rows.counts
    return matrix


def theta_and_phi(model: SavedTopicModel) -> tuple[np.ndarray, np.ndarray]:
    """float64 (D, K) and (V, K), by the formulas for a model of one state."""
    theta, phi = dense(model.documents) + model.alpha, dense(model.words) + model.beta
    return theta / theta.sum(axis=1, keepdims=True), phi / phi.sum(axis=0)


def test_phi_and_theta_are_the_averages_of_the_states(averaged, states):
    """Weighted by a topic's mass and a document's mass in each state, as the definition says."""
    model = SavedTopicModel(averaged / "model")
    theta, phi = theta_and_phi(model)
    masses = np.array([dense(state.documents).sum(axis=1) + state.alpha.sum() for state in states])
    np.testing.assert_allclose(
        theta,
        sum(theta_and_phi(state)[0] * mass[:, None] for state, mass in zip(states, masses, strict=True))
        / masses.sum(axis=0)[:, None],
    )
    sizes = np.array([state.topic_counts + state.vocabulary_size * state.beta for state in states])
    np.testing.assert_allclose(
        phi, sum(theta_and_phi(state)[1] * size for state, size in zip(states, sizes, strict=True)) / sizes.sum(axis=0)
    )
    assert model.averaged == [4, 6, 8]
    assert model.states == STATES
    assert states[0].alpha.std() > 0  # the priors are not the same in all states
    assert not np.array_equal(states[0].alpha, states[2].alpha)
    assert not list(model.problems())
    assert leftovers(averaged) == []


def test_what_an_average_is_used_for(averaged, states, data, tmp_path):
    """Topics, export, mixtures of new documents (against a dense twin) and the held-out likelihood."""
    model = SavedTopicModel(averaged / "model")
    phi = theta_and_phi(model)[1]
    described = describe_topics(model, top=3, documents=2)
    assert sum(topic["tokens"] for topic in described) == pytest.approx(data.tokens, abs=TOPICS)
    assert sum(topic["share"] for topic in described) == pytest.approx(1)
    assert all(0 < entry["weight"] <= 1 for topic in described for entry in topic["documents"])
    export_npz(model, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as arrays:
        assert arrays["states"] == STATES
        assert arrays["topic_tokens"].sum() == STATES * data.tokens

    offsets, words = random_documents(np.random.default_rng(5), 40, 200, 30)
    new = write_corpus(tmp_path / "new", offsets, words, names_of_words(200), vocab_from=data.path)
    mixtures = infer(model, new, tmp_path, workers=1)["mixtures"]
    alpha = np.mean([state.alpha for state in states], axis=0)
    unseen = model.beta / (model.topic_counts + 200 * model.beta)
    for document, tokens in enumerate(documents_of(new)):
        if tokens.size:
            theta = expected_counts(phi.T, unseen, alpha, *bag(new, tokens)) + alpha
            np.testing.assert_allclose(mixtures[document], theta / theta.sum(), atol=1e-5)
    likelihoods = [evaluate(each, new, workers=1)["predictive_log_likelihood_per_token"] for each in (model, *states)]
    assert likelihoods[0] > min(likelihoods[1:])


@pytest.mark.long
def test_the_average_does_not_depend_on_kills_or_workers(averaged, data, tmp_path):
    """Killed once the first state was kept, and while the average was written; then finished with two workers."""
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        training.train_lda(data.path, run, iterations=ITERATIONS, average=STATES, max_time=1e-6, **OPTIONS)
    kill_while_resuming(run, "sample-000004")
    kill_while_resuming(run, ".model.partial-*")
    assert sorted(path.name for path in run.glob("sample-*")) == ["sample-000004", "sample-000006", "sample-000008"]
    resume(run, workers=2, quiet=True)
    assert model_bytes(run) == model_bytes(averaged)
    assert leftovers(run) == []


def test_resuming_a_run_that_is_done(averaged, data, tmp_path):
    """Its states are gone: the model stays, if it is whole; more iterations must leave room for new states."""
    run = tmp_path / "run"
    training.train_lda(data.path, run, iterations=ITERATIONS, average=STATES, **OPTIONS)
    (run / "sample-000004").mkdir()  # killed while they were removed
    resume(run, quiet=True)
    assert model_bytes(run) == model_bytes(averaged)
    assert leftovers(run) == []
    with pytest.raises(RequestError, match="--iterations 14"):
        resume(run, iterations=12, quiet=True)
    (run / "model" / "words.h5").write_bytes(b"damaged")
    with pytest.raises(WorkFailed, match="damaged"):
        resume(run, quiet=True)
    resume(run, iterations=14, quiet=True)
    assert SavedTopicModel(run / "model").averaged == [10, 12, 14]


def test_a_converged_run_averages_the_last_states(data, tmp_path):
    options = OPTIONS | {"optimize_every": 0, "burn_in": None, "topics": 2, "stop_when_converged": True}
    last = training.train_lda(data.path, tmp_path / "run", iterations=400, average=6, **options)
    assert last["converged"]
    end = last["iteration"]
    assert SavedTopicModel(tmp_path / "run" / "model").averaged == list(range(end - 10, end + 1, 2))
    assert leftovers(tmp_path / "run") == []


@given(st.integers(0, 1 << 32), st.integers(1, 4), st.integers(0, 9), st.integers(1, 30))
def test_pooled_rows_are_dense_sums_in_chunks_of_any_size(seed, models, size, chunk):
    rng = np.random.default_rng(seed)
    matrices = rng.integers(0, 4, (models, size, 7)) * rng.integers(0, 2, (models, size, 7))
    rows = []
    for matrix in matrices:
        places, topics = np.nonzero(matrix)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(places, minlength=size)))).astype(np.int64)
        rows.append(TopicCountRows(offsets, topics.astype(np.uint16), matrix[places, topics].astype(np.uint32)))
    found = list(pool_rows(rows, chunk))
    packed = np.concatenate([part[1] for part in found]) if found else np.empty(0, np.uint64)
    sizes = np.concatenate([part[0] for part in found]) if found else np.empty(0, np.uint32)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    pooled = TopicCountRows(
        offsets, (packed >> np.uint64(32)).astype(np.int64), (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    )
    np.testing.assert_array_equal(dense(pooled, 7), matrices.sum(axis=0))


@pytest.mark.parametrize(
    ("average", "iterations", "said"), [(0, 8, "at least 1"), (5, 8, "give only 4 states"), (2, 7, "multiple")]
)
def test_an_average_that_cannot_be_is_refused(data, tmp_path, average, iterations, said):
    with pytest.raises(RequestError, match=said):
        training.train_lda(data.path, tmp_path / "run", iterations=iterations, average=average, **OPTIONS)
    assert not (tmp_path / "run").exists()
