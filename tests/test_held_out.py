"""Held-out documents while a model is trained: evaluated when they should be, before and after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from corpora import (
    kill_while_resuming,
    leftovers,
    model_bytes,
    names_of_words,
    random_documents,
    small_dataset,
    tiny_dataset,
)

from blocks import Dataset, Interrupted, RequestError, write_corpus
from ooc.runs.run import Run
from samplers.lda import training
from samplers.resume import resume
from samplers.topics.inference import evaluate
from samplers.topics.model import SavedTopicModel

FIELD = "held_out_log_likelihood_per_token"
OPTIONS = {"topics": 5, "evaluate_every": 3, "workers": 1, "quiet": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("data") / "dataset", documents=150)


@pytest.fixture(scope="module")
def held_out(data, tmp_path_factory) -> Dataset:
    offsets, words = random_documents(np.random.default_rng(5), 60, 200, 30)
    path = tmp_path_factory.mktemp("held-out") / "dataset"
    return write_corpus(path, offsets, words, names_of_words(200), block_tokens=500, vocab_from=data.path)


def values(run: Path) -> dict[int, float]:
    """The held-out likelihood by iteration."""
    return {line["iteration"]: line[FIELD] for line in Run(run).metrics() if FIELD in line}


@pytest.fixture(scope="module")
def trained(data, held_out, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    training.train_lda(data.path, run, iterations=7, held_out=held_out.path, **OPTIONS)
    return run


def test_the_model_is_evaluated_now_and_then_and_at_the_end(trained, held_out):
    """As `ooc evaluate` does; nothing else in the run differs from one without held-out documents."""
    assert list(values(trained)) == [3, 6, 7]
    expected = evaluate(SavedTopicModel(trained / "model"), held_out, workers=2)
    assert values(trained)[7] == expected["predictive_log_likelihood_per_token"]
    assert leftovers(trained) == []


def test_it_changes_nothing_in_the_model(trained, data, tmp_path):
    training.train_lda(data.path, tmp_path / "run", iterations=7, **OPTIONS)
    assert model_bytes(tmp_path / "run") == model_bytes(trained)
    assert values(tmp_path / "run") == {}


def test_a_resumed_run_goes_on_evaluating(trained, data, held_out, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        training.train_lda(data.path, run, iterations=7, held_out=held_out.path, max_time=1e-6, **OPTIONS)
    resume(run, workers=2, quiet=True)
    assert values(run) == values(trained)
    assert model_bytes(run) == model_bytes(trained)


@pytest.mark.long
def test_what_a_kill_leaves_behind_is_removed(trained, tmp_path, data, held_out):
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        training.train_lda(data.path, run, iterations=7, held_out=held_out.path, max_time=1e-6, **OPTIONS)
    kill_while_resuming(run, ".present.partial-*")
    assert leftovers(run)
    resume(run, quiet=True)
    assert values(run) == values(trained)
    assert model_bytes(run) == model_bytes(trained)
    assert leftovers(run) == []


def test_held_out_documents_that_do_not_fit_are_refused(data, tmp_path):
    """Of another vocabulary, without anything to predict, no dataset at all: nothing is written."""
    small_dataset(tmp_path / "other", vocabulary=150, documents=5)
    tiny_dataset(tmp_path / "alike", [[1, 1], [2], []], 200, vocab_from=data.path)
    for name, said in (
        ("other", "different vocabularies"),
        ("alike", "nothing to predict"),
        ("none", "there is no such file or directory"),
    ):
        with pytest.raises(RequestError, match=said):
            training.train_lda(data.path, tmp_path / "run", iterations=2, held_out=tmp_path / name, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_resume_refuses_other_held_out_documents(trained, tmp_path):
    config = json.loads((trained / "config.json").read_text())
    other = tiny_dataset(tmp_path / "other", [[1, 2]], 200)
    config["settings"]["held_out"] = {**config["settings"]["held_out"], "path": str(other.path), "relative": "../other"}
    del config["checksum"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(RequestError, match="is no longer the held-out dataset"):
        resume(tmp_path / "run", quiet=True)


def test_the_plan_keeps_room_for_the_evaluation(data, held_out, tmp_path):
    for more, memory in (({}, 240_000_000), ({"held_out": held_out.path}, 240_000_000)):
        arguments = {**OPTIONS, "workers": 2, "memory_bytes": memory, **more}
        if more:
            with pytest.raises(RequestError, match="at least"):
                training.train_lda(data.path, tmp_path / "other", iterations=1, **arguments)
        else:
            training.train_lda(data.path, tmp_path / "run", iterations=1, **arguments)
