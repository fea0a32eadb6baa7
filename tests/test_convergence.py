"""Stopping when the likelihood gains no more: the rule, and runs that stop by it, are resumed and go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import leftovers, model_bytes, small_dataset, tiny_dataset
from hypothesis import given
from hypothesis import strategies as st

from blocks import Dataset
from ooc.runs.run import Run
from samplers.lda import convergence, training
from samplers.lda.convergence import TOLERANCE, WINDOW, convergence_metric, evaluations, has_converged
from samplers.resume import resume

OPTIONS = {"topics": 2, "evaluate_every": 2, "workers": 1, "quiet": True, "stop_when_converged": True}


def test_the_rule():
    assert not has_converged([-8.0] * WINDOW)
    assert has_converged([-8.0] * (WINDOW + 1))
    assert not has_converged([-8.0] * (WINDOW + 1), least=6)
    assert has_converged([-9.0, -8.0, -8.0, -8.0, -7.999])
    assert not has_converged([-8.0, -8.0, -8.0, -8.0 + 1.01 * TOLERANCE])
    assert has_converged([-8.0, -7.9, -7.9, -8.1])  # a loss is no gain


@given(st.floats(-10, -5), st.floats(TOLERANCE / 2, 1), st.integers(1, 12))
def test_a_chain_that_gains_enough_at_every_evaluation_never_converges(first, gain, evaluated):
    assert not any(has_converged([first + n * gain for n in range(before)]) for before in range(evaluated))


def test_evaluations_are_of_the_best_measure_at_multiples_after_an_iteration():
    joint = [{"iteration": n, "log_likelihood_per_token": -float(n)} for n in (2, 4, 5, 6)]
    assert evaluations(joint, 2) == [-2, -4, -6]
    assert evaluations(joint, 2, after=2) == [-4, -6]
    assert evaluations([{"iteration": 1}, *joint], 2, after=6) == []
    held_out = [line | {convergence.HELD_OUT: 1.0} for line in joint]
    assert (convergence_metric(joint), convergence_metric(held_out)) == (convergence.JOINT, convergence.HELD_OUT)
    assert evaluations(held_out, 2) == [1.0] * 3


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    """So small a corpus that its likelihood soon stays about the same."""
    documents = [[0, 0, 1, 1, 0, 1] * 5, [2, 2, 3, 3, 2, 3] * 5] * 20
    return tiny_dataset(tmp_path_factory.mktemp("data") / "dataset", documents, 4)


@pytest.fixture(scope="module")
def converged(data, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("converged") / "run"
    training.train_lda(data.path, run, iterations=500, **OPTIONS)
    return run


def test_a_run_stops_where_the_rule_says(converged):
    lines = Run(converged).metrics()
    values = evaluations(lines, 2)
    assert len(lines) < 500
    assert lines[-1]["iteration"] == 2 * len(values)
    assert [has_converged(values[: n + 1]) for n in range(len(values))] == [False] * (len(values) - 1) + [True]
    assert ["converged" in line for line in lines] == [False] * (len(lines) - 1) + [True]
    assert leftovers(converged) == []


def test_a_run_in_pieces_stops_at_the_same_iteration(converged, data, tmp_path):
    """Planned shorter, with an end between two evaluations; and resumed once it has converged."""
    done = len(Run(converged).metrics())
    run = tmp_path / "run"
    training.train_lda(data.path, run, iterations=done - 3, **OPTIONS)
    assert resume(run, iterations=500, workers=2, quiet=True)["iteration"] == done
    before = model_bytes(run)
    assert before == model_bytes(converged)
    assert resume(run, quiet=True)["iteration"] == done
    assert model_bytes(run) == before


def test_a_converged_run_goes_on_if_told_to(converged, data, tmp_path):
    """To the model of a run without the rule; what had converged before does not count."""
    run, plain = tmp_path / "run", tmp_path / "plain"
    done = training.train_lda(data.path, run, iterations=500, **OPTIONS)["iteration"]
    last = resume(run, iterations=done + 7, quiet=True)
    assert last["iteration"] == done + 7
    assert "converged" not in last
    training.train_lda(data.path, plain, iterations=done + 7, **OPTIONS | {"stop_when_converged": False})
    assert model_bytes(run) == model_bytes(plain)


def test_a_chain_that_gains_is_not_stopped(tmp_path):
    data = small_dataset(tmp_path / "dataset", documents=100)
    last = training.train_lda(data.path, tmp_path / "run", iterations=8, **OPTIONS | {"topics": 20})
    assert last["iteration"] == 8
