"""Training as a process that is killed, told to stop, or whose workers die: it always ends with the same bytes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from corpora import (
    leftovers,
    model_bytes,
    names_of_words,
    new_run,
    open_engine,
    plan,
    program_spec,
    random_documents,
    small_dataset,
)
from long_mark import long_but
from training_process import ITERATIONS, PATIENCE, RESIDENT, STREAMED, TrainingProcess, kill_at_random_points, until

from blocks import Dataset, Interrupted, RequestError, write_corpus
from ooc.program import LocalState
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.state.cell_layout import CellLayout
from ooc.training import PURPOSES, train
from ooc.training_loop import StopRequest
from ooc.workers.worker import ProgramSpec


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Dataset:
    """About 75,000 tokens in 10 blocks and 4 slices: an iteration takes some tens of milliseconds."""
    offsets, words = random_documents(np.random.default_rng(2), 1500, 900, 100)
    path = tmp_path_factory.mktemp("corpus") / "dataset"
    return write_corpus(path, offsets, words, names_of_words(900), block_tokens=8000, part_tokens=2000, slices=4)


SPEC = program_spec(topics=50, mh_steps=2)


@pytest.fixture(scope="module")
def expected(corpus, tmp_path_factory) -> dict[str, bytes]:
    """The model of the run that nobody disturbs."""
    run = new_run(tmp_path_factory.mktemp("undisturbed") / "run", corpus, SPEC, ITERATIONS)
    train(run, plan(), quiet=True)
    return model_bytes(run.path)


def check_finished(path: Path, expected: dict[str, bytes], iterations: int = ITERATIONS) -> None:
    """The run ended with the model of the undisturbed one, each iteration told once, nothing left over."""
    assert model_bytes(path) == expected
    assert [line["iteration"] for line in Run(path).metrics()] == list(range(1, iterations + 1))
    assert leftovers(path) == []


def test_killed_at_any_point_a_run_ends_with_the_same_bytes(corpus, expected, tmp_path):
    """Three kills of one run, at points that differ each time the test runs, then to the end in this process."""
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    kill_at_random_points(run.path, random.Random(), 3)
    train(run, plan(2, STREAMED), quiet=True)
    check_finished(run.path, expected)


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["LightLda", pytest.param("Gibbs", marks=pytest.mark.long)])
def test_slices_in_a_file_are_made_anew_after_a_kill(corpus, tmp_path, sampler):
    """Killed twice while its rows lay in a file: the next to hold the run removes or replaces what the killed left, and
    the model is that of a run that had them in memory and was left alone."""
    spec = program_spec(sampler, topics=200)
    undisturbed = new_run(tmp_path / "undisturbed", corpus, spec, 6)
    train(undisturbed, plan(), quiet=True)
    run = new_run(tmp_path / "run", corpus, spec, 6)
    for workers, told in ((1, 2), (2, 4)):
        killed = TrainingProcess(run.path, workers, RESIDENT, mapped=True)
        killed.wait_for(told)
        killed.end(signal.SIGKILL)
        assert (run.path / "slices" / "arrays").stat().st_size > 0
    with run.locked():
        assert not (run.path / "slices").exists()
    train(run, plan(2, STREAMED, mapped=True), quiet=True)
    check_finished(run.path, model_bytes(undisturbed.path), 6)


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
def test_two_hundred_kills_change_nothing(corpus, expected, tmp_path, number):
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    kill_at_random_points(run.path, random.Random(), 10)
    train(run, plan(1 + number % 3, number % 2 * STREAMED), quiet=True)
    check_finished(run.path, expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("buffers", [RESIDENT, STREAMED], ids=["resident", "streamed"])
def test_a_worker_that_is_killed_is_named_and_the_run_can_be_resumed(corpus, expected, tmp_path, buffers):
    """One is, at a slice of the fourth iteration."""
    stalled = tmp_path / "stalled"
    stalling = "worker_targets:StallingLda"
    run = new_run(tmp_path / "run", corpus, ProgramSpec(stalling, SPEC.options), ITERATIONS)
    killed = TrainingProcess(run.path, 2, buffers, environment={"STALLED": str(stalled)}, program=(stalling,))
    until(lambda: stalled.exists() and stalled.read_text(), "a worker stalls")
    killed.note_tree()
    victim = int(stalled.read_text())
    number = [worker.pid for worker in killed.workers()].index(victim)
    os.kill(victim, signal.SIGKILL)
    status, told = killed.end()
    assert status == 1
    assert f"WorkerDied: worker {number} of 2" in told
    assert f"process {victim}" in told
    assert "killed by SIGKILL" in told
    assert "its task was unit 2, " in told
    assert leftovers(run.path) == []
    train(run, plan(1, STREAMED - buffers), quiet=True)
    check_finished(run.path, expected)


@pytest.mark.long
def test_no_process_outlives_a_killed_template(corpus, expected, tmp_path):
    """The process that the workers were forked from dies: the run goes on or stops, and can be resumed either way."""
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    killed = TrainingProcess(run.path, 2, RESIDENT)
    killed.wait_for(3)
    psutil.Process(killed.process.pid).children()[0].kill()
    killed.end()
    train(run, plan(), quiet=True)
    check_finished(run.path, expected)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("number", "buffers", "whole_group"),
    [
        (signal.SIGINT, RESIDENT, True),
        pytest.param(signal.SIGTERM, STREAMED, False, marks=pytest.mark.long),
        (signal.SIGHUP, STREAMED, True),
        pytest.param(signal.SIGTERM, STREAMED, True, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, RESIDENT, False, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_signal_stops_the_run_with_everything_committed(corpus, expected, tmp_path, number, buffers, whole_group):
    """Commits are an hour apart, so what is there afterwards was committed because of the signal.

    whole_group: the signal goes to the workers too, as a terminal sends Ctrl-C and batch systems send SIGTERM.
    """
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    stopped = TrainingProcess(run.path, 2, buffers, checkpoint_s=3600)
    stopped.wait_for(4)
    if whole_group:
        os.killpg(stopped.process.pid, number)
    else:
        stopped.process.send_signal(number)
    status, told = stopped.end()
    assert status == 130
    assert f"Interrupted: stopped by {number.name} at iteration" in told
    assert f"ooc resume {run.path}" in told
    done = stopped.iterations()
    assert 4 <= done < ITERATIONS
    with open_engine(run, plan()) as engine:
        engine.start()
        assert engine.cursor.iteration == done
    train(run, plan(1, STREAMED), quiet=True)
    check_finished(run.path, expected)


@pytest.mark.long
@pytest.mark.parametrize("buffers", long_but([STREAMED], [RESIDENT, STREAMED]), ids=["resident", "streamed"])
def test_a_run_goes_on_after_it_was_stopped_for_a_while(corpus, expected, tmp_path, buffers):
    """A worker, the coordinator, or, as by Ctrl-Z, all of them."""
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    stopped = TrainingProcess(run.path, 2, buffers)
    stopped.wait_for(2)
    everybody = [stopped.process.pid, *(process.pid for process in stopped.tree)]
    for pids in ([stopped.workers()[0].pid], [stopped.process.pid], everybody):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # it may be done already
                    os.kill(pid, number)
            time.sleep(0.3 if number == signal.SIGSTOP else 0.01)
    assert stopped.end() == (0, "")
    check_finished(run.path, expected)


@pytest.mark.long
def test_nothing_depends_on_the_time_of_day(corpus, expected, tmp_path, preloaded):
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    clock = {"LD_PRELOAD": str(preloaded("jumping_clock"))}
    killed = TrainingProcess(run.path, 2, RESIDENT, environment=clock)
    killed.wait_for(5)
    killed.end(signal.SIGKILL)
    assert TrainingProcess(run.path, 2, STREAMED, environment=clock).end() == (0, "")
    check_finished(run.path, expected)
    elapsed = [line["elapsed_s"] for line in run.metrics()]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] < PATIENCE
    days = {line[:10] for line in (run.path / "log.txt").read_text().splitlines()}
    assert len(days) > 1  # the clock did jump


def test_a_time_limit_stops_the_run_as_a_signal_does(corpus, expected, tmp_path):
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    with pytest.raises(Interrupted, match="--max-time"):
        train(run, plan(2), max_time=1e-6, quiet=True)
    train(run, plan(), quiet=True)
    check_finished(run.path, expected)


def test_a_start_asks_as_often_as_it_says(corpus, tmp_path):
    """So its progress ends where it should; a run that is resumed has no start."""
    run = new_run(tmp_path / "run", corpus, program_spec("SparseGibbs"), 1)
    asked: list[int] = []
    with open_engine(run, plan()) as engine:
        said = engine.start_stages()
        engine.start(lambda: asked.append(1))
        assert len(asked) == said > 5
        assert engine.start_stages() == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("buffers", [RESIDENT, STREAMED])
def test_a_signal_during_the_start_ends_it_at_once(corpus, tmp_path, monkeypatch, buffers):
    """Nothing is committed, so the run begins again; a time limit lets the start be."""
    spec = program_spec("SparseGibbs")
    whole, stopped, timed = (new_run(tmp_path / name, corpus, spec, 2) for name in ("whole", "stopped", "timed"))
    train(whole, plan(), quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr("ooc.training.StopRequest", lambda max_time: StopRequest(max_time, [signal.SIGINT]))
        with pytest.raises(Interrupted, match="stopped by SIGINT before the first iteration"):
            train(stopped, plan(2, buffers), quiet=True)
    assert not list((stopped.path / "state").iterdir())
    train(stopped, plan(2, buffers), quiet=True)
    with pytest.raises(Interrupted, match="--max-time at iteration 0; everything is saved"):
        train(timed, plan(2, buffers), max_time=1e-6, quiet=True)
    train(timed, plan(), quiet=True)
    assert model_bytes(whole.path) == model_bytes(stopped.path) == model_bytes(timed.path)


@pytest.mark.long
def test_a_run_may_go_on_longer_than_planned(corpus, expected, tmp_path):
    run = new_run(tmp_path / "run", corpus, SPEC, 5)
    train(run, plan(2), quiet=True)
    assert model_bytes(run.path) != expected
    run.set_iterations(ITERATIONS)
    last = train(Run(run.path), plan(1, 2), quiet=True)
    assert last["iteration"] == ITERATIONS
    check_finished(run.path, expected)


def test_a_callback_hears_of_each_iteration_and_may_end_the_training(corpus, expected, tmp_path):
    heard: list[dict[str, Any]] = []

    def callback(line: dict[str, Any]) -> bool:
        heard.append(line)
        return line["iteration"] == 4

    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    last = train(run, plan(), quiet=True, callback=callback)
    assert heard == run.metrics()
    assert [line["iteration"] for line in heard] == [1, 2, 3, 4]
    assert last == heard[-1]
    assert (run.path / "model").exists()
    train(run, plan(), quiet=True)
    check_finished(run.path, expected)


def test_a_run_that_is_done_is_exported_again_and_no_more(corpus, expected, tmp_path):
    """Killed after the last iteration, before the model was written."""
    run = new_run(tmp_path / "run", corpus, SPEC, 3)
    train(run, plan(), quiet=True)
    before = model_bytes(run.path), run.metrics()
    for file in (run.path / "model").iterdir():
        file.unlink()
    (run.path / "model").rmdir()
    train(run, plan(2, STREAMED), quiet=True)
    assert (model_bytes(run.path), run.metrics()) == before


def test_a_torn_line_of_metrics_is_told_again(corpus, expected, tmp_path):
    run = new_run(tmp_path / "run", corpus, SPEC, 3)
    train(run, plan(), quiet=True)
    metrics = run.path / "metrics.jsonl"
    whole = run.metrics()
    metrics.write_bytes(metrics.read_bytes()[:-30])
    assert len(run.metrics()) == 2
    run.set_iterations(ITERATIONS)
    train(run, plan(), quiet=True)
    check_finished(run.path, expected)
    assert [line["samples_processed"] for line in run.metrics()[:3]] == [line["samples_processed"] for line in whole]


def test_a_second_process_on_the_same_run_is_refused(corpus, expected, tmp_path):
    """It names the process that has it, changes nothing, and gets the run once that one is killed."""
    run = new_run(tmp_path / "run", corpus, SPEC, ITERATIONS)
    first = TrainingProcess(run.path, 1, RESIDENT)
    first.wait_for(2)
    with pytest.raises(RequestError, match=f"in use by process {first.process.pid}"):
        train(run, plan(), quiet=True)
    with pytest.raises(RequestError, match="in use"):
        create_run(run.path, corpus, SPEC, iterations=1, evaluate_every=1, overwrite=True)
    first.end(signal.SIGKILL)
    train(run, plan(), quiet=True)
    check_finished(run.path, expected)


def test_a_run_on_another_dataset_is_refused(tmp_path):
    dataset = small_dataset(tmp_path / "dataset", documents=30)
    run = new_run(tmp_path / "run", dataset, SPEC, 2)
    dataset.path.rename(tmp_path / "elsewhere")
    small_dataset(tmp_path / "dataset", documents=31)
    with pytest.raises(RequestError, match="is no longer the dataset"):
        train(run, plan(), quiet=True)


def test_metrics_tell_what_happened(tmp_path):
    """Counters that follow from the corpus, and the objective every third iteration and at the last."""
    dataset = small_dataset(tmp_path / "dataset")
    run = new_run(tmp_path / "run", dataset, program_spec(), 5, evaluate_every=3)
    last = train(run, plan(2, 2), quiet=True)
    lines = run.metrics()
    assert lines[-1] == last
    assert [line["samples_processed"] for line in lines] == [dataset.tokens * n for n in range(1, 6)]
    assert ["log_likelihood_per_token" in line for line in lines] == [False, False, True, False, True]
    for line in lines:
        assert 0 < line["changed_fraction"] <= 2  # of two phases
        assert line["memory_bytes"] > 0
        assert line["tokens_per_s"] > 0
    state = CellLayout(
        dataset.index.cells, LocalState("uint8", 3)
    ).file_bytes  # two phases write topic and two proposals
    written = [line["bytes_written"] for line in lines]
    assert np.diff(written).tolist() == [2 * state] * 4
    assert [line["elapsed_s"] for line in lines] == sorted(line["elapsed_s"] for line in lines)
    assert np.isclose(
        last["log_likelihood_per_token"], last["doc_log_likelihood_per_token"] + last["word_log_likelihood_per_token"]
    )


@pytest.mark.long
@pytest.mark.parametrize("buffers", [RESIDENT, STREAMED])
def test_the_seconds_of_an_iteration_add_up(tmp_path, buffers):
    """What an iteration spent, by purpose, is what `elapsed_s` grew by, and what its speed is reckoned from;
    likelihoods are not in it. State on disk is waited for and committed in every iteration."""
    dataset = small_dataset(tmp_path / "dataset")
    run = new_run(tmp_path / "run", dataset, program_spec(), 6, evaluate_every=1)
    train(run, plan(2, buffers), quiet=True)
    lines = run.metrics()
    spent = [sum(line[f"{purpose}_s"] for purpose in PURPOSES) for line in lines]
    assert np.allclose(np.diff([line["elapsed_s"] for line in lines]), spent[1:], atol=1e-5)
    assert np.allclose([line["tokens_per_s"] for line in lines], dataset.tokens / np.array(spent), rtol=1e-3)
    for line in lines:
        assert line["sampling_s"] > 0
        assert line["aggregation_s"] > 0
        assert 0 <= line["page_cache_s"] < line["sampling_s"]
        if buffers == STREAMED:
            assert line["commit_s"] > 0
            assert line["disk_s"] > 0
