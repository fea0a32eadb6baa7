"""Topic models trained, and documents ingested, by ranks on this machine behind a real sshd."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from corpora import model_bytes, names_of_words, random_documents
from launches import (
    ITERATIONS,
    OPTIONS,
    WORDS,
    LaunchProcess,
    expected,
    interrupt,
    nobody_left,
    rank_in,
    serving,
    shards_of,
)

from benchmarks.sshd import free_port
from blocks import write_corpus
from blocks.corpus.dataset import Dataset
from ooc.runs.run import Run
from samplers.lda.held_out import FIELD

pytestmark = pytest.mark.ring


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with two shards, and hosts.txt for two ranks behind a real sshd."""
    folder = tmp_path_factory.mktemp("launch")
    shards_of(folder, 2)
    with serving(folder, 2):
        yield folder


@pytest.fixture(scope="module")
def model(place) -> dict[str, bytes]:
    return expected(place / "expected", [Dataset(place / f"shard-{rank}") for rank in range(2)])


def train(place: Path, run: str, *options: object) -> LaunchProcess:
    return LaunchProcess(place, "--", "train", "lda", "shard-{rank}", run, *OPTIONS, *options)


def test_a_launch_trains_the_model_that_one_process_does(place, model):
    done = train(place, "run-{rank}").done()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{ITERATIONS} iterations") == 1
    assert "[0] training on " in done.stderr
    assert "[1] training on " in done.stderr
    assert model_bytes(place / "run-0") == model
    assert not (place / "run-1" / "model").exists()
    again = train(place, "run-{rank}").done()
    assert again.returncode == 2
    assert "the run run-0 already exists" in again.stderr or "the run run-1 already exists" in again.stderr
    assert "-- resume run-{rank}" in again.stderr
    assert "ranks 0 and 1 would write to the same directory" in train(place, "run").done().stderr


def test_ports_may_be_given(place):
    """As many as there are ranks on a host."""
    ports = free_port()
    train_on = ("--", "train", "lda", "shard-{rank}", "ports-{rank}", *OPTIONS, "--iterations", 2)
    done = LaunchProcess(place, "--ports", f"{ports}-{ports + 2}", *train_on).done()
    assert done.returncode == 0, done.stderr
    refused = LaunchProcess(place, "--ports", ports, *train_on, "--overwrite").done()
    assert refused.returncode == 2
    assert f"(one): port {ports} is not free at 127.0.0.1\nChoose at least as many free ports" in refused.stderr


def test_ranks_speak_json_and_only_the_first_tells_of_its_progress(place, tmp_path):
    """Into a file for Prometheus, too. Lines come more often, so that a short training has some."""
    (tmp_path / "sitecustomize.py").write_text("import blocks.progress_bar\nblocks.progress_bar.INTERVAL = 0.001\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "hosts.txt").write_text(f"one python={python} dir={tmp_path}\n" * 2)
    (tmp_path / "config").symlink_to(place / "config")
    for rank in range(2):
        (tmp_path / f"shard-{rank}").symlink_to(place / f"shard-{rank}")
    words = ["train", "lda", "shard-{rank}", "run-{rank}", *OPTIONS, "--metrics-file", "ooc.prom"]
    done = LaunchProcess(tmp_path, "--log-format", "json", "--", *words).done()
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert {each["rank"] for each in said if each["message"].startswith("training on ")} == {0, 1}
    assert {each["rank"] for each in said if "step" in each} == {0}
    assert all("so far" in (tmp_path / f"run-{rank}" / "log.txt").read_text() for rank in range(2))
    assert f'ooc_iteration{{run="{tmp_path / "run-0"}",model="lda-sparse-gibbs"}} {ITERATIONS}' in (
        (tmp_path / "ooc.prom").read_text()
    )
    again = LaunchProcess(tmp_path, "--log-format", "json", "--", *words).done()
    assert json.loads(again.stderr.splitlines()[-1])["exit_code"] == again.returncode == 2


def test_ctrl_c_stops_all_and_resume_goes_on(place, model):
    with nobody_left(place):
        launch = train(place, "stopped-{rank}")
        launch.until_trained(place / "stopped-1")
        interrupt(launch)
        done = launch.done()
    assert done.returncode == 130, done.stderr
    assert "everything is saved" in done.stderr
    assert "-- resume stopped-{rank}" in done.stderr
    assert LaunchProcess(place, "--", "resume", "stopped-{rank}", "--workers", 2).done().returncode == 0
    assert model_bytes(place / "stopped-0") == model


def test_nobody_outlives_the_launcher(place):
    with nobody_left(place):
        launch = train(place, "left-{rank}")
        launch.until_trained(place / "left-1")
        launch.process.kill()
        launch.process.communicate()


def test_a_killed_rank_is_named(place, model):
    with nobody_left(place):
        launch = train(place, "killed-{rank}")
        launch.until_trained(place / "killed-0")
        began = time.monotonic()
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "(one) was killed by SIGKILL" in done.stderr
    assert "-- resume killed-{rank}" in done.stderr
    assert time.monotonic() - began < 30
    assert LaunchProcess(place, "--", "resume", "killed-{rank}").done().returncode == 0
    assert model_bytes(place / "killed-0") == model


def test_workers_that_somebody_has_stopped_are_named(place):
    with nobody_left(place):
        words = ("train", "lda", "shard-{rank}", "still-{rank}", *OPTIONS, "--workers", 2, "--iterations", 100_000)
        launch = LaunchProcess(place, "--patience", 2, "--", *words)
        launch.until_trained(place / "still-0")
        for process in rank_in(place).children(recursive=True):
            process.suspend()
        done = launch.done()
    assert done.returncode == 1
    assert "(one) failed: its worker process " in done.stderr, done.stderr
    assert "has been stopped (SIGSTOP) for 2 s" in done.stderr
    assert "-- resume still-{rank}" in done.stderr


def test_a_launch_restarts_after_a_rank_was_lost(place, model):
    with nobody_left(place):
        launch = LaunchProcess(place, "--restarts", 1, "--", "train", "lda", "shard-{rank}", "again-{rank}", *OPTIONS)
        launch.until_trained(place / "again-0")
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 0, done.stderr
    assert "(one) was killed by SIGKILL; restart 1 of 1 in 2 s" in done.stderr
    assert done.stdout.count(f"{ITERATIONS} iterations") == 1
    assert model_bytes(place / "again-0") == model


def test_chains_restart_in_the_one_in_which_a_rank_was_lost(place, model):
    """The first of two chains is the model of a launch with its seed."""
    words = ("train", "lda", "shard-{rank}", "chains-{rank}", *OPTIONS, "--chains", 2, "--evaluate-every", 5)
    with nobody_left(place):
        launch = LaunchProcess(place, "--restarts", 1, "--", *words)
        launch.until_trained(place / "chains-0" / "chain-2")
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 0, done.stderr
    assert "(one) was killed by SIGKILL; restart 1 of 1 in 2 s" in done.stderr
    assert "R-hat of the log-likelihood of 2 chains: " in done.stdout
    assert model_bytes(place / "chains-0" / "chain-1") == model
    assert not (place / "chains-1" / "chain-2" / "model").exists()


@pytest.mark.long
def test_a_killed_rank_goes_on_to_the_same_average(place):
    """Evaluated on held-out documents and with priors that are estimated; the metrics are the same, too."""
    offsets, words = random_documents(np.random.default_rng(3), 40, WORDS, 60)
    write_corpus(place / "held-out", offsets, words, names_of_words(WORDS))
    more = ("--held-out", "held-out", "--average", 3, "--optimize-every", 7, "--burn-in", 5)
    assert train(place, "average-{rank}", *more).done().returncode == 0
    with nobody_left(place):
        launch = train(place, "cut-{rank}", *more)
        launch.until_trained(place / "cut-0", 25)
        rank_in(place).kill()
        assert launch.done().returncode == 1
    assert LaunchProcess(place, "--", "resume", "cut-{rank}").done().returncode == 0
    assert model_bytes(place / "cut-0") == model_bytes(place / "average-0")
    names = "iteration", FIELD, "alpha_sum", "beta", "log_likelihood_per_token", "s_error"
    told = [
        [[line.get(name) for name in names] for line in Run(place / run).metrics()]
        for run in ("average-0", "average-1", "cut-0", "cut-1")
    ]
    assert told[0] == told[1] == told[2] == told[3]
    assert [line[0] for line in told[0] if line[1]] == [*range(10, ITERATIONS + 1, 10)]


@pytest.mark.long
def test_the_ranks_of_a_run_go_on_together(place, model):
    """Runs of other trainings are refused; with more iterations all have more."""
    short = train(place, "short-{rank}", "--iterations", 2)
    other = train(place, "other-{rank}", "--iterations", 2, "--seed", 4)
    assert [short.done().returncode, other.done().returncode] == [0, 0]
    (place / "other-0").rename(place / "mixed-0")
    (place / "short-1").rename(place / "mixed-1")
    mixed = LaunchProcess(place, "--", "resume", "mixed-{rank}").done()
    assert mixed.returncode == 2
    assert "differ in options" in mixed.stderr
    (place / "mixed-1").rename(place / "short-1")
    done = LaunchProcess(place, "--", "resume", "short-{rank}", "--iterations", ITERATIONS).done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(place / "short-0") == model


@pytest.mark.long
def test_each_rank_ingests_files_of_its_own(place):
    for rank, lines in enumerate(["blue red\nred sea\n" * 20, "red green\nblue tree\n" * 30]):
        (place / f"in-{rank}.txt").write_text(lines)
    ingest = ("--", "ingest", "text", "--lines", "in-{rank}.txt")
    done = LaunchProcess(place, *ingest, "mine-{rank}").done()
    assert done.returncode == 0, done.stderr
    assert "mine-0: 40 documents, 80 tokens, vocabulary of 5 words" in done.stdout
    assert "[1] mine-1: 60 documents, 120 tokens, vocabulary of 5 words" in done.stderr
    assert [Dataset(place / f"mine-{rank}").whole[:2] for rank in range(2)] == [(100, 200)] * 2
    options = ("--topics", 2, "--iterations", 2, "--workers", 1)
    trained = LaunchProcess(place, "--", "train", "lda", "mine-{rank}", "run-of-mine-{rank}", *options).done()
    assert trained.returncode == 0, trained.stderr
    refused = LaunchProcess(place, *ingest, "together").done()
    assert refused.returncode == 2
    assert "ranks 0 and 1 would write to the same directory" in refused.stderr
    (place / "in-1.txt").unlink()
    failed = LaunchProcess(place, *ingest, "lost-{rank}").done()
    assert failed.returncode == 2
    assert "rank 1 (one): in-1.txt" in failed.stderr
    assert not list(place.glob("*lost-*"))


def launch(place: Path, hosts: str, *words: object) -> subprocess.CompletedProcess[str]:
    """What becomes of a launch on other hosts than those of the module."""
    (place / "other.txt").write_text(hosts)
    command = [sys.executable, "-m", "ooc", "launch", "--ssh-config", "config", "--hosts", "other.txt", "--"]
    return subprocess.run(
        [*command, *map(str, words)], cwd=place, capture_output=True, text=True, check=False, timeout=120
    )


def test_who_cannot_be_reached_is_named(place):
    refused = launch(place, "one\none dir=/nowhere\n", "resume", "run-{rank}")
    assert refused.returncode == 1
    assert "rank 1 (one) cannot change to the directory /nowhere" in refused.stderr


def test_a_run_that_was_to_be_replaced_is_not_offered_to_go_on_with(place):
    train(place, "old-{rank}", "--iterations", 2).done()
    words = ("train", "lda", "shard-{rank}", "old-{rank}", *OPTIONS, "--overwrite")
    failed = launch(place, f"one\none dir={place}/shard-1\n", *words)
    assert failed.returncode != 0
    assert "resume" not in failed.stderr


@pytest.mark.long
def test_a_rank_that_may_round_otherwise_is_named(place, tmp_path):
    """It has another version of a package, or of the processor, where ranks fit priors alike."""
    words = ("train", "lda", "shard-{rank}", "unlike-{rank}", *OPTIONS)
    (tmp_path / "numba-0.1.dist-info").mkdir()
    (tmp_path / "numba-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numba\nVersion: 0.1\n")
    for name, variable in {"package": f"PYTHONPATH={tmp_path}", "processor": "NUMBA_CPU_NAME=generic"}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{variable} exec {sys.executable} "$@"\n')
        (tmp_path / name).chmod(0o755)
    refused = launch(place, f"one\none python={tmp_path}/package\n", *words)
    assert refused.returncode == 2, refused.stderr
    assert f"rank 1 (one) has numba 0.1, rank 0 (one) has {version('numba')}" in refused.stderr
    refused = launch(place, f"one\none python={tmp_path}/processor\n", *words, "--optimize-every", 5, "--burn-in", 5)
    assert refused.returncode == 2, refused.stderr
    assert f"the processor of rank 1 ({socket.gethostname()}) is a " in refused.stderr
    assert " generic, but that of rank 0 (" in refused.stderr
    assert not (place / "unlike-0").exists()
