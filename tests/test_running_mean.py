"""The running mean over the states of a chain: against dense means of the states, and what it is used for."""

from __future__ import annotations

import numpy as np
import pytest
from corpora import InProcessProgram, leftovers, model_bytes, program_spec, small_dataset
from topic_models import dense, weighted

from blocks import Dataset
from samplers.lda import training
from samplers.lda.running_mean import LEAST_COUNT
from samplers.resume import resume
from samplers.topics.inference import evaluate, infer
from samplers.topics.model import SavedTopicModel
from samplers.topics.results import describe_topics, export_npz

OPTIONS = {"topics": 6, "evaluate_every": 2, "workers": 1, "quiet": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("data") / "dataset", documents=120)


def test_the_model_is_the_weighted_mean_of_the_states(data, tmp_path):
    """Words float32, without what is below LEAST_COUNT; documents as in the last state."""
    with InProcessProgram(data, program_spec("SparseGibbs")) as chain:
        states = []
        for iteration in range(1, 10):
            chain.iterate()
            documents, words = chain.counts()
            states.append(words)
            chain.export(tmp_path / str(iteration))
            model, mean = SavedTopicModel(tmp_path / str(iteration)), weighted(states)
            found = dense(model.words, 5)
            assert model.words.counts.dtype == np.float32
            assert (model.words.counts >= np.float32(LEAST_COUNT)).all()
            assert np.allclose(found, np.where(mean >= LEAST_COUNT, mean, 0), rtol=1e-4, atol=1.1e-6)
            assert np.allclose(model.topic_counts, found.sum(axis=0), rtol=1e-6)
            assert np.array_equal(dense(model.documents, 5), documents)
        assert ((mean > 0) & (mean < LEAST_COUNT)).any()
        assert (np.abs(mean - words) > 0.1).any()


def test_without_it_the_model_is_the_last_state(data, tmp_path):
    for name, options in (("off", {"running_mean": False}), ("in place", {"update": "immediate"})):
        with InProcessProgram(data, program_spec("SparseGibbs", **options)) as chain:
            chain.iterate(3)
            chain.export(tmp_path / name)
            model = SavedTopicModel(tmp_path / name)
            assert model.words.counts.dtype == np.uint32
            assert np.array_equal(dense(model.words, 5), chain.counts()[1])


@pytest.mark.long
def test_it_does_not_depend_on_being_resumed(data, tmp_path):
    """In one go, and in three, the second of them with two workers."""
    training.train_lda(data.path, tmp_path / "whole", iterations=9, **OPTIONS)
    training.train_lda(data.path, tmp_path / "again", iterations=2, **OPTIONS)
    resume(tmp_path / "again", iterations=5, workers=2, quiet=True)
    resume(tmp_path / "again", iterations=9, workers=1, quiet=True)
    assert model_bytes(tmp_path / "whole") == model_bytes(tmp_path / "again")
    assert leftovers(tmp_path / "again") == []


def test_what_is_asked_for_by_number_is_an_average_of_states(data, tmp_path):
    """`average` says how many; a sampler that has no running mean gives its last state."""
    kinds = {}
    for name, options in (
        ("mean", {}),
        ("one", {"average": 1}),
        ("two", {"average": 2}),
        ("gibbs", {"sampler": "gibbs"}),
    ):
        training.train_lda(data.path, tmp_path / name, iterations=4, **OPTIONS, **options)
        model = SavedTopicModel(tmp_path / name / "model")
        kinds[name] = (str(model.words.counts.dtype), model.averaged)
    assert kinds == {
        "mean": ("float32", []),
        "one": ("uint32", []),
        "two": ("uint32", [2, 4]),
        "gibbs": ("uint32", []),
    }


@pytest.mark.long
def test_what_a_mean_is_used_for(data, tmp_path):
    """Held-out likelihood, inference, topics and export take it as any model; it predicts better than a state."""
    held_out = {}
    for name, average in (("mean", None), ("state", 1)):
        training.train_lda(data.path, tmp_path / name, iterations=20, average=average, **OPTIONS)
        model = SavedTopicModel(tmp_path / name / "model")
        held_out[name] = evaluate(model, data, workers=1, quiet=True)["predictive_log_likelihood_per_token"]
    assert held_out["mean"] > held_out["state"]
    model = SavedTopicModel(tmp_path / "mean" / "model")
    mixtures = infer(model, data, tmp_path, workers=1)["mixtures"]
    assert np.allclose(mixtures.sum(axis=1), 1, atol=1e-5)
    shares = [topic["share"] for topic in describe_topics(model, top=3, documents=0)]
    assert sum(shares) == pytest.approx(1, abs=1e-9)
    export_npz(model, tmp_path / "model.npz")
    exported = np.load(tmp_path / "model.npz")
    assert np.array_equal(exported["word_counts"], model.words.counts)
    assert np.array_equal(exported["topic_tokens"], model.topic_counts)
