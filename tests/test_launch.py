"""Launching over ssh: what is asked for, who fits together, how processes end; and on this machine, by a real sshd."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from corpora import model_bytes, names_of_words, random_documents
from launches import ITERATIONS, OPTIONS, WORDS, Launch, expected, interrupt, nobody_left, rank_in, serving, shards_of
from rings import mpiexec, until
from test_factorization import planted, written
from test_ring_factorization import new_runs, train_all

from blocks import RequestError, WorkFailed, write_corpus
from blocks.corpus.dataset import Dataset
from blocks.ratings.matrix import Matrix
from blocks.shards.splitting import make_shards
from ooc.launch.hosts import Host, read_hosts
from ooc.launch.launcher import Report, cause
from ooc.launch.roll_call import Hello, check, own_version
from ooc.run import Run
from samplers.lda.held_out import FIELD

# Files of hosts


def hosts_of(path: Path, text: str) -> list[Host]:
    (path / "hosts.txt").write_text(text)
    return read_hosts(path / "hosts.txt")


def test_a_file_of_hosts(tmp_path):
    text = """
    # the first rank writes the model
    big.example:2222 dir='/data/my run' cores=16 memory=64GB
    me@10.0.0.7 address=192.168.1.7 python=.venv/bin/python  # behind a router
    [fe80::1]:22
    big.example
    """
    assert hosts_of(tmp_path, text) == [
        Host("big.example", port=2222, directory="/data/my run", cores=16, memory=64 * 10**9),
        Host("10.0.0.7", "me", address="192.168.1.7", python=".venv/bin/python"),
        Host("fe80::1", port=22),
        Host("big.example"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "names no host"),
        ("-oProxyCommand=x", "no host"),
        ("a@-x", "no host"),
        ("host:0", "no host"),
        ("host:99999", "no host"),
        ("host dir", "'dir' is no field"),
        ("host disk=3", "'disk=3' is no field"),
        ("host cores=0", "cores=0"),
        ("host cores=x", "cores=x"),
        ("host cores=1 cores=2", "stands twice"),
        ("host memory=much", "memory="),
        ("host address=nowhere", "address=nowhere"),
        ("host dir='", "closing quotation"),
    ],
)
def test_what_is_no_file_of_hosts(tmp_path, line, said):
    with pytest.raises(RequestError) as refused:
        hosts_of(tmp_path, f"good\n{line}" if line else "# nothing\n")
    assert said.lower() in refused.value.what.lower()
    assert "hosts.txt" in refused.value.what
    assert not line or "line 2" in refused.value.what


# What is refused before anything is started


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "synthetic", "b"], "cannot run on several machines"),
        (["ingest", "jsonl", "a"], "Missing argument"),
        (["topics", "run"], "cannot run on several machines"),
        (["train", "softmax", "data", "run"], "cannot run on several machines"),
        (["train", "mf", "data", "run", "--rank", "3", "--schedule", "bsp"], "--schedule bsp"),
        (["train", "mf", "data", "run", "--rank", "3", "--transport", "mpi"], "--transport"),
        (["train", "lda", "data", "run", "--topics", "3", "--update", "rotation"], "--update rotation"),
        (["train", "lda", "data", "run", "--topics", "3", "--chains", "2"], "--chains"),
        (["train", "lda", "data", "run", "--topics", "3", "--start", "scvb0"], "--start"),
        (["train", "lda", "data", "run", "--topics", "3", "--transport", "mpi"], "--transport"),
        (["train", "lasso", "data", "run", "--transport", "mpi"], "--transport"),
        (["train", "lda", "data", "run"], "--topics"),
        (["train", "lda", "data", "run", "--topics", "3", "--watch"], "--watch is for one machine"),
        (["train", "lda", "data", "run", "--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["resume", "run", "--nonsense"], "--nonsense"),
    ],
)
def test_what_cannot_be_launched(ooc, tmp_path, arguments, said):
    (tmp_path / "hosts.txt").write_text("nowhere.invalid\n")
    done = ooc("launch", "--hosts", "hosts.txt", "--", *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_staleness_is_for_rings(ooc):
    done = ooc("train", "lda", "data", "run", "--topics", 3, "--staleness", 0)
    assert done.returncode == 2
    assert "--staleness" in done.stderr


# Who fits together


def hello(**told: Any) -> Hello:
    usual = {"version": own_version(), "python": "3", "hostname": "h", "group": 1, "guard": 2, "address": "10.0.0.1"}
    usual |= {"port": 5, "free": 10, "needed": 5, "clock": 0.0, "data": "data", "shard": None}
    return Hello(**(usual | told))


def shard(number: int, whole: str = "a") -> dict[str, Any]:
    return {"number": number, "shards": 2, "whole": {"identity": whole}}


def refusal(*hellos: Hello, clocks: tuple[float, ...] = (0.0, 0.0)) -> str:
    with pytest.raises((RequestError, WorkFailed)) as refused:
        check(hellos, [f"rank {rank} (host{rank})" for rank in range(len(hellos))], clocks[: len(hellos)])
    return refused.value.what


def test_who_fits_together():
    good = [hello(shard=shard(0)), hello(shard=shard(1))]
    assert check(good, ["rank 0", "rank 1"], [0.0, 1.0]) == []
    assert "rank 1 is 60 s behind" in check(good, ["rank 0", "rank 1"], [0.0, -60.0])[0]
    assert check([hello()], ["rank 0"], [0.0]) == []


def test_who_does_not():
    first, second = hello(shard=shard(0)), hello(shard=shard(1))
    assert "rank 1 (host1) has ooc 0.0.1" in refusal(first, second._replace(version="0.0.1"))
    assert "rank 1 (host1): the run needs" in refusal(first, second._replace(needed=11))
    assert "host1): data and" in refusal(first, hello(shard=shard(1, "b")))
    assert "are both shard 0" in refusal(first, hello(shard=shard(0)))
    assert "rank 0 (host0): data is shard 1" in refusal(second, first)
    assert "of 2 shards there is no 1" in refusal(first)
    assert "no shard" in refusal(first, hello())
    assert "rank 0 (host0) is at 127.0.0.1" in refusal(first._replace(address="127.0.0.1"), second)
    assert "the clock of rank 0 (host0) is 7200 s ahead" in refusal(first, second, clocks=(7200.0, 0.0))


# What the others failed by


def test_the_cause():
    """What a rank says of itself, or that it ended without a word; or whom most blame; or that all were asked to."""
    full = Report(1, "the disk is full")
    blamed, other = Report(1, "rank 1 is silent", ring=True), Report(1, "rank 0 is silent", ring=True)
    stopped, bare = Report(130, "stopped", "go on"), Report(130, "interrupted")

    def found(*reports: Report | None, signalled: bool = False) -> Report | None:
        chosen = cause([(None, report) for report in reports], signalled=signalled)  # type: ignore[misc]
        return chosen[1] if chosen else Report(0)

    assert found() == Report(0)
    assert found(blamed, full) == full
    assert found(blamed, None) is None
    assert found(other, blamed, blamed) == blamed
    assert found(blamed, stopped) == blamed
    assert found(stopped, blamed) == stopped
    assert found(blamed, bare, stopped, signalled=True) == stopped
    assert found(stopped, full, signalled=True) == full


# Guards

WARD = """
import sys, time, subprocess, os, signal
from ooc.launch.guard import become_ward
become_ward()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), flush=True)
print(sys.stdin.readline(), end="", flush=True)
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def guarded(tmp_path):
    """A ward with a child of its own, and what it may be told."""
    with nobody_left(tmp_path):
        started = []

        def start(kind: str = "") -> tuple[subprocess.Popen[str], int]:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": tmp_path, "text": True}
            process = subprocess.Popen([sys.executable, "-c", WARD, kind], **pipes)  # type: ignore[call-overload]
            started.append(process)
            ward = int(process.stdout.readline())
            tell(process, '\n"hello"\n')
            assert process.stdout.readline() == '"hello"\n'
            return process, ward

        yield start
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def tell(process: subprocess.Popen[str], text: str) -> None:
    process.stdin.write(text)
    process.stdin.flush()


def test_a_ward_is_stopped_and_ended(guarded):
    process, _ = guarded()
    tell(process, '"stop"\n')
    assert process.wait(30) == 130
    process, _ = guarded("deaf")
    tell(process, '"stop"\n')
    tell(process, '"end"\n')
    assert process.wait(30) == 128 + signal.SIGKILL


@pytest.mark.parametrize("how", ["", "deaf", "stopped"])
def test_a_ward_does_not_outlive_who_started_it(guarded, how):
    process, ward = guarded(how)
    if how == "stopped":
        os.kill(ward, signal.SIGSTOP)
    process.stdin.close()
    assert process.wait(30) in (130, 128 + signal.SIGKILL)


def test_a_ward_does_not_outlive_its_guard(guarded):
    process, ward = guarded()
    child = psutil.Process(ward).children()[0]
    process.kill()
    process.wait()
    until(lambda: not psutil.pid_exists(ward))
    child.kill()  # real workers see that their caller has gone


# Ranks on this machine


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


def train(place: Path, run: str, *options: object) -> Launch:
    return Launch(place, "--", "train", "lda", "shard-{rank}", run, *OPTIONS, *options)


def test_a_launch_trains_the_model_that_one_process_does(place, model):
    done = train(place, "run-{rank}").done()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{ITERATIONS} iterations") == 1
    assert "[0] plan: 1 workers" in done.stderr
    assert "[1] plan: 1 workers" in done.stderr
    assert model_bytes(place / "run-0") == model
    assert not (place / "run-1" / "model").exists()
    again = train(place, "run-{rank}").done()
    assert again.returncode == 2
    assert "run-0 is a run already" in again.stderr or "run-1 is a run already" in again.stderr
    assert "-- resume run-{rank}" in again.stderr
    assert "ranks 0 and 1 would be in the same directory" in train(place, "run").done().stderr


def test_ctrl_c_stops_all_and_resume_goes_on(place, model):
    with nobody_left(place):
        launch = train(place, "stopped-{rank}")
        launch.until_trained(place / "stopped-1")
        interrupt(launch)
        done = launch.done()
    assert done.returncode == 130, done.stderr
    assert "everything is saved" in done.stderr
    assert "-- resume stopped-{rank}" in done.stderr
    assert Launch(place, "--", "resume", "stopped-{rank}", "--workers", 2).done().returncode == 0
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
    assert Launch(place, "--", "resume", "killed-{rank}").done().returncode == 0
    assert model_bytes(place / "killed-0") == model


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
    assert Launch(place, "--", "resume", "cut-{rank}").done().returncode == 0
    assert model_bytes(place / "cut-0") == model_bytes(place / "average-0")
    names = "iteration", FIELD, "alpha_sum", "beta", "log_likelihood_per_token", "s_error"
    told = [
        [[line.get(name) for name in names] for line in Run(place / run).metrics()]
        for run in ("average-0", "average-1", "cut-0", "cut-1")
    ]
    assert told[0] == told[1] == told[2] == told[3]
    assert [line[0] for line in told[0] if line[1]] == [*range(10, ITERATIONS + 1, 10)]


def test_the_ranks_of_a_run_go_on_together(place, model):
    """Runs of other trainings are refused; with more iterations all have more."""
    short = train(place, "short-{rank}", "--iterations", 2)
    other = train(place, "other-{rank}", "--iterations", 2, "--seed", 4)
    assert [short.done().returncode, other.done().returncode] == [0, 0]
    (place / "other-0").rename(place / "mixed-0")
    (place / "short-1").rename(place / "mixed-1")
    mixed = Launch(place, "--", "resume", "mixed-{rank}").done()
    assert mixed.returncode == 2
    assert "differ in options" in mixed.stderr
    (place / "mixed-1").rename(place / "short-1")
    done = Launch(place, "--", "resume", "short-{rank}", "--iterations", ITERATIONS).done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(place / "short-0") == model


@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_that_mpi_starts(place, model):
    """The same command at all ranks trains the same model; only the first tells it."""
    pytest.importorskip("mpi4py")
    command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "cli", "train", "lda", "shard-{rank}", "mpi-{rank}"]
    options = [*map(str, OPTIONS), "--transport", "mpi"]
    common: dict[str, Any] = {"cwd": place, "capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run([*command, *options], check=False, **common)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{ITERATIONS} iterations") == 1
    assert model_bytes(place / "mpi-0") == model
    refused = subprocess.run([*command, *options, "--chains", "2"], check=False, **common)
    assert refused.returncode != 0
    assert "--chains 2 cannot be used on several machines" in refused.stderr


@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
@pytest.mark.long
def test_a_job_that_runs_out_of_time_commits_and_goes_on(place, monkeypatch):
    """Its slices are on the disk of the node, which the next job has elsewhere."""
    pytest.importorskip("mpi4py")

    def job(disk: str, *words: object) -> subprocess.CompletedProcess[str]:
        (place / disk).mkdir()
        monkeypatch.setenv("TMPDIR", str(place / disk))
        command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "cli", *map(str, words), "--transport", "mpi"]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=240, check=False)

    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 90)))  # saving is given 60 s of them
    long = ("train", "lda", "shard-{rank}", "job-{rank}", *OPTIONS, "--iterations", 9**6)
    stopped = job("disk-0", *long, "--scratch", "node")
    assert stopped.returncode == 130, stopped.stderr
    assert "training stops after" in stopped.stderr
    assert "everything is saved" in stopped.stderr
    assert not (place / "job-0" / "slices").exists()
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    more = len(Run(place / "job-0").metrics()) + 5
    went_on = job("disk-1", "resume", "job-{rank}", "--iterations", more)
    assert went_on.returncode == 0, went_on.stderr
    assert len(Run(place / "job-1").metrics()) == more


def test_each_rank_ingests_files_of_its_own(place):
    for rank, lines in enumerate(["blue red\nred sea\n" * 20, "red green\nblue tree\n" * 30]):
        (place / f"in-{rank}.txt").write_text(lines)
    ingest = ("--", "ingest", "text", "--lines", "in-{rank}.txt")
    done = Launch(place, *ingest, "mine-{rank}").done()
    assert done.returncode == 0, done.stderr
    assert "mine-0: 40 documents (0 empty), 80 tokens, vocabulary 5" in done.stdout
    assert "[1] mine-1: 60 documents (0 empty), 120 tokens, vocabulary 5" in done.stderr
    assert [Dataset(place / f"mine-{rank}").whole[:2] for rank in range(2)] == [(100, 200)] * 2
    options = ("--topics", 2, "--iterations", 2, "--workers", 1)
    trained = Launch(place, "--", "train", "lda", "mine-{rank}", "run-of-mine-{rank}", *options).done()
    assert trained.returncode == 0, trained.stderr
    refused = Launch(place, *ingest, "together").done()
    assert refused.returncode == 2
    assert "ranks 0 and 1 would be in the same directory" in refused.stderr
    (place / "in-1.txt").unlink()
    failed = Launch(place, *ingest, "lost-{rank}").done()
    assert failed.returncode == 2
    assert "rank 1 (one): in-1.txt" in failed.stderr
    assert not list(place.glob("*lost-*"))


@pytest.fixture(scope="module")
def ratings(place) -> list[Matrix]:
    """Shards of ratings in ratings-0 and ratings-1; others by the same users in others-0, others-1, and others."""
    dense, known = planted(60, 30, 2, 0.5)
    dense -= dense.min() - 0.1
    whole = written(place, dense, known, grid=3)
    shards = make_shards(whole.path, str(place / "ratings-{rank}"), 2, workers=1)
    for base, name in zip([whole, *shards], ["others", "others-0", "others-1"], strict=True):
        (place / "new").mkdir()
        written(place / "new", dense, ~known, names_from=str(base.path)).path.rename(place / name)
        shutil.rmtree(place / "new")
    return shards  # type: ignore[return-value]


def factors(place: Path, shards: list[Matrix], method: str, iterations: int = 4) -> dict[str, bytes]:
    """The factorization that engines in one process come to."""
    runs = new_runs(place / f"expected-{method}", shards, method, iterations=iterations)
    train_all(runs)
    return model_bytes(runs[0].path)


_RATINGS = ("train", "mf", "ratings-{rank}")
FACTORIZE = (*_RATINGS, "--rank", "6", "--regularization", "0.02", "--seed", "7", "--workers", "1")


def test_a_launch_factorizes_as_one_process_does(place, ratings, ooc_in):
    """The model is of all users, and is used as any; what is told of held-out ratings is told of it afterwards, too."""
    held_out = ["--held-out", "others-{rank}", "--iterations", 4]
    done = Launch(place, "--", *FACTORIZE, "rated-{rank}", "--method", "ccd", *held_out).done()
    assert done.returncode == 0, done.stderr
    assert "RMSE" in done.stdout
    assert model_bytes(place / "rated-0") == factors(place, ratings, "ccd")
    told = Run(place / "rated-0").metrics()[-1]["held_out_rmse"]
    ooc = ooc_in(place)
    evaluated = json.loads(ooc("evaluate", "rated-0", "others", "--json").stdout)
    assert evaluated["rmse"] == pytest.approx(told, rel=1e-4)
    assert len(ooc("recommend", "rated-0", "--top", 3).stdout.splitlines()) == 3 * 60
    assert len(ooc("similar-items", "rated-0", "--item", 7, "--top", 3).stdout.splitlines()) == 3
    (place / "pairs").write_text("3,4\n59,29\n")
    for command in ("predict rated-0 pairs predicted", "export rated-0 out.npz", "verify rated-0"):
        assert ooc(*command.split()).returncode == 0
    refused = ooc("recommend", "rated-0", "--exclude-seen")
    assert refused.returncode == 2
    assert "one of the shards" in refused.stderr


def test_a_factorization_goes_on_after_a_kill(place, ratings):
    """To fewer iterations than were planned."""
    with nobody_left(place):
        launch = Launch(place, "--", *FACTORIZE, "rating-{rank}", "--method", "als", "--iterations", 9**6)
        launch.until_trained(place / "rating-0")
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "(one) was killed by SIGKILL" in done.stderr
    iterations = max(len(Run(place / f"rating-{rank}").metrics()) for rank in range(2)) + 2
    done = Launch(place, "--", "resume", "rating-{rank}", "--iterations", iterations).done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(place / "rating-0") == factors(place, ratings, "als", iterations)


@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_that_mpi_starts_factorize(place, ratings, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("TMPDIR", str(place))
    command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "cli", *FACTORIZE]
    options = ["--iterations", "4", "--transport", "mpi", "--scratch", "node"]
    common: dict[str, Any] = {"cwd": place, "capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run([*command, "mpi-rated-{rank}", *options], check=False, **common)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("4 iterations") == 1
    assert model_bytes(place / "mpi-rated-0") == factors(place, ratings, "sgd")
    assert not (place / "mpi-rated-0" / "slices").exists()
    refused = subprocess.run([*command, "refused-{rank}", *options, "--held-out", "others"], check=False, **common)
    assert refused.returncode != 0
    assert "--names-from" in refused.stderr
    assert not list(place.glob("refused-*"))


def test_who_cannot_be_reached_is_named(place):
    (place / "bad.txt").write_text("one\none dir=/nowhere\n")
    command = [sys.executable, "-m", "cli", "launch", "--ssh-config", "config", "--hosts", "bad.txt"]
    refused = subprocess.run(
        [*command, "--", "resume", "run-{rank}"], cwd=place, capture_output=True, text=True, check=False, timeout=120
    )
    assert refused.returncode == 1
    assert "rank 1 (one) ended with exit code" in refused.stderr
    assert "/nowhere" in refused.stderr
