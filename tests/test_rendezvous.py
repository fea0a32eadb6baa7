"""Ranks that meet by a key, without ssh: what schedulers start, who does not fit, and who is not let in."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import model_bytes
from launches import LONG, OPTIONS, expected, nobody_left, shards_of
from rings import HOST, in_all, nothing_left, until

import ooc.ring
from benchmarks.sshd import free_port
from blocks import RequestError, WorkFailed
from blocks.corpus.dataset import Dataset
from blocks.corpus.ingestion import ingest
from blocks.corpus.request import CorpusRequest
from ooc.launch import rank_number as places
from ooc.launch.key_file import read_key
from ooc.launch.rank_number import place
from ooc.launch.rendezvous import rendezvous
from ooc.runs.run import Run

VARIABLES = [name for pair in places._VARIABLES for name in pair if name]
SLURM = {"SLURM_PROCID": "{}", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "{}", "OOC_RING_SIZE": "2"}


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch) -> None:
    for name in (*VARIABLES, "SLURM_JOB_END_TIME", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A directory with two shards and a key."""
    made = tmp_path_factory.mktemp("rendezvous")
    shards_of(made, 2)
    return made


@pytest.fixture(scope="module")
def model(folder) -> dict[str, bytes]:
    return expected(folder / "expected", [Dataset(folder / f"shard-{rank}") for rank in range(2)])


def write_key(path: Path, text: str | None = None, mode: int = 0o600) -> Path:
    path.write_text(secrets.token_hex(32) + "\n" if text is None else text)
    path.chmod(mode)
    return path


class SchedulerJob:
    """Processes of one command, as a scheduler starts them: each is told its number by variables."""

    def __init__(self, folder: Path, variables: dict[str, str], *command: object, ranks: int = 2) -> None:
        write_key(folder / "ring.key")
        meet = ("--rendezvous", f"{HOST}:{free_port()}", "--key-file", "ring.key", "--join-timeout", 60)
        words = [sys.executable, "-m", "ooc", *map(str, (*command, *meet))]
        self.processes = [
            subprocess.Popen(
                words,
                cwd=folder,
                env=os.environ | {name: value.format(rank) for name, value in variables.items()},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]

    def done(self) -> list[subprocess.CompletedProcess[str]]:
        found = []
        for process in self.processes:
            out, err = process.communicate(timeout=LONG)
            assert "Traceback" not in err, err
            found.append(subprocess.CompletedProcess([], process.returncode, out, err))
        return found


def train(run: str, *options: object) -> Sequence[object]:
    return ("train", "lda", "shard-{rank}", run, *OPTIONS, *options)


def codes(done: Sequence[subprocess.CompletedProcess[str]]) -> list[int]:
    return [each.returncode for each in done]


@pytest.mark.long
def test_a_job_whose_time_is_over_goes_on_in_the_next_one(folder, model, monkeypatch, tmp_path):
    """A minute is kept for the end."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 68)))
    with nobody_left(folder):
        first = SchedulerJob(folder, SLURM, *train("slurm-{rank}", "--iterations", 100_000, "--resume")).done()
    assert codes(first) == [75, 75], first
    for each in first:
        assert "Continue with: srun -n 2 ooc resume slurm-{rank} --rendezvous 127.0.0.1:" in each.stderr
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    iterations = len(Run(folder / "slurm-0").metrics()) + 2
    again = SchedulerJob(folder, SLURM, "resume", "slurm-{rank}", "--iterations", iterations).done()
    assert codes(again) == [0, 0], again
    shards = [Dataset(folder / f"shard-{rank}") for rank in range(2)]
    assert model_bytes(folder / "slurm-0") == expected(tmp_path / "expected", shards, iterations)


@pytest.mark.ring
def test_a_pod_that_is_killed_ends_all_and_the_job_goes_on(folder, model):
    """Kubernetes starts the containers of all pods again, with the same command."""
    command = train("pod-{rank}", "--resume")
    with nobody_left(folder):
        job = SchedulerJob(folder, {"OOC_RING_RANK": "{}", "OOC_RING_SIZE": "2"}, *command)
        until(lambda: (folder / "pod-1/config.json").exists() and len(Run(folder / "pod-1").metrics()) >= 3)
        job.processes[1].kill()
        killed = job.done()
    assert codes(killed) == [1, -signal.SIGKILL]
    assert f"rank 1 ({socket.gethostname()}) closed the connection" in killed[0].stderr, killed[0].stderr
    assert "continue with: ooc resume pod-{rank} --rendezvous 127.0.0.1:" in killed[0].stderr
    assert "--key-file ring.key --ring-rank 0 --ring-size 2" in killed[0].stderr
    again = SchedulerJob(folder, KUBERNETES, *command).done()
    assert codes(again) == [0, 0], again
    assert again[0].stdout.count("60 iterations") == 1
    assert again[1].stdout == ""
    assert model_bytes(folder / "pod-0") == model
    assert not (folder / "pod-1/model").exists()
    assert (folder / "ring.key").read_text().strip() not in "".join(
        path.read_text(errors="replace") for path in folder.rglob("pod-*/*.t*")
    )


def test_ranks_ingest_files_of_their_own_with_one_vocabulary(folder, tmp_path):
    for rank, lines in enumerate(["blue red\nred sea\n" * 20, "red green\nblue tree\n" * 30]):
        (folder / f"in-{rank}.txt").write_text(lines)
    together = ("ingest", "text", "--lines", "in-{rank}.txt")
    done = SchedulerJob(folder, KUBERNETES, *together, "mine-{rank}").done()
    assert codes(done) == [0, 0], done
    assert [each.stdout.splitlines()[0] for each in done] == [
        "mine-0: 40 documents, 80 tokens, vocabulary of 5 words",
        "mine-1: 60 documents, 120 tokens, vocabulary of 5 words",
    ]
    files = [str(folder / f"in-{rank}.txt") for rank in range(2)]
    whole = ingest(CorpusRequest(kind="text", inputs=files, out=str(tmp_path / "whole"), lines=True), workers=1)
    shards = [Dataset(folder / f"mine-{rank}") for rank in range(2)]
    assert [list(shard.vocabulary()) for shard in shards] == [list(whole.vocabulary())] * 2
    assert [shard.whole[:2] for shard in shards] == [(100, 200)] * 2


@pytest.mark.long
def test_ranks_that_ingest_otherwise_are_named(folder):
    for rank in range(2):
        (folder / f"in-{rank}.txt").write_text("blue red\n")
    variables = {"RANK": "{}", "WORLD_SIZE": "2", "OOC_SEED": "{}"}
    done = SchedulerJob(folder, variables, "ingest", "text", "--lines", "in-{rank}.txt", "seeds-{rank}").done()
    assert codes(done) == [2, 2]
    assert all("OOC_SEED is 0 on rank 0 (" in each.stderr for each in done), done
    variables.pop("OOC_SEED")
    done = SchedulerJob(folder, variables, "ingest", "text", "--lines", "in-{rank}.txt", "same").done()
    assert 0 not in codes(done)
    assert all("ranks 0 and 1 would write to the same directory" in each.stderr for each in done), done


def test_different_commands_are_named_on_all_ranks(folder):
    variables = {"RANK": "{}", "WORLD_SIZE": "2", "OOC_TOPICS": "{}5"}
    words = [word for word in train("unlike-{rank}") if word not in ("--topics", 6)]
    done = SchedulerJob(folder, variables, *words).done()
    assert codes(done) == [2, 2]
    assert {each.stderr.splitlines()[0] for each in done} == {
        f"ooc: OOC_TOPICS is 5 on rank 0 ({socket.gethostname()}), but 15 on rank 1 ({socket.gethostname()})"
    }
    assert not list(folder.glob("unlike-*"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--rendezvous", "here", "--key-file", "ring.key"], "--rendezvous here: expected HOST:PORT"),
        (["--rendezvous", "2001:db8::1", "--key-file", "ring.key"], "--rendezvous 2001:db8::1: expected HOST:PORT"),
        (["--rendezvous", "here:1"], "--rendezvous needs the key that all ranks share"),
        (
            [
                "--rendezvous",
                "here:1",
                "--key-file",
                "ring.key",
                "--ring-rank",
                "0",
                "--ring-size",
                "2",
                "--ports",
                "5-4",
            ],
            "--ports 5-4: expected a port or two ports, from 1 to 65535",
        ),
        (["--ring-size", "2"], "--ring-size can only be used with --rendezvous"),
        (["--rendezvous", "here:1", "--transport", "mpi"], "--rendezvous and --transport are mutually exclusive"),
        (["--rendezvous", "here:1", "--watch"], "--watch can only be used on one machine"),
    ],
    ids=["address", "brackets", "key", "ports", "alone", "transport", "watch"],
)
def test_requests_that_cannot_be_are_refused(folder, ooc_in, options, what):
    write_key(folder / "ring.key")
    done = ooc_in(folder)(*train("refused", *options))
    assert done.returncode == 2
    assert what in done.stderr, done.stderr
    assert not (folder / "refused").exists()


def test_the_variables_for_launch_are_no_request_to_meet(folder, ooc_in, monkeypatch):
    monkeypatch.setenv("OOC_PATIENCE", "30")
    monkeypatch.setenv("OOC_PORTS", "40000-40010")
    monkeypatch.setenv("RANK", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "--topics must be from 1" in ooc_in(folder)("train", "lda", "shard-0", "alone", "--topics", 0).stderr


# The number of a rank


@pytest.mark.parametrize(
    ("variables", "given", "found"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "9"}, {}, (1, 3)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4"}, {}, (2, 4)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8"}, {}, (2, 8)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6", "SLURM_PROCID": "0"}, {}, (5, 6)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, {}, (1, 2)),
        ({"JOB_COMPLETION_INDEX": "3"}, {"ranks": 4}, (3, 4)),
        ({"RANK": "7", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, {"ranks": 4}, (2, 4)),
        ({"RANK": "1", "WORLD_SIZE": "3"}, {"rank": 2}, (2, 3)),
        ({}, {"rank": 0, "ranks": 1}, (0, 1)),
    ],
)  # fmt: skip
def test_schedulers_tell_the_number_of_a_rank(monkeypatch, variables, given, found):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert place(**given) == found


@pytest.mark.parametrize(
    ("variables", "given", "what"),
    [
        ({}, {}, "cannot tell which rank it is"),
        ({"JOB_COMPLETION_INDEX": "1"}, {}, "cannot tell which rank it is"),
        ({}, {"rank": 1}, "cannot tell how many ranks there are"),
        ({"RANK": "x", "WORLD_SIZE": "3"}, {}, "RANK must be an integer, got 'x'"),
        ({"RANK": "3", "WORLD_SIZE": "3"}, {}, "this process is rank 3 of 3"),
        ({}, {"rank": -1, "ranks": 2}, "this process is rank -1 of 2"),
    ],
)
def test_a_rank_without_a_number_is_refused(monkeypatch, variables, given, what):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RequestError, match=what):
        place(**given)


# The key


def test_a_key_is_read_as_ssh_reads_it(tmp_path):
    text = secrets.token_hex(32)
    assert read_key(write_key(tmp_path / "key", text)) == bytes.fromhex(text)
    assert read_key(write_key(tmp_path / "upper", text.upper() + "\n", 0o400)) == bytes.fromhex(text)
    other = write_key(tmp_path / "other", text, 0o644)
    with pytest.raises(RequestError, match="0644 are too open"):
        read_key(other)
    if os.getuid() == 0:  # as a secret of Kubernetes, which belongs to root and is mounted for a group
        os.chown(other, 12345, 12345)
        assert read_key(other) == bytes.fromhex(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("correct horse battery staple", "64 hexadecimal digits"),
        ("ab" * 31, "64 hexadecimal digits"),
        ("ab" * 33, "64 hexadecimal digits"),
        ("ab" * 32, "the key is not random"),
        ("", "64 hexadecimal digits"),
    ],
)
def test_a_key_that_could_be_guessed_is_refused(tmp_path, text, what):
    with pytest.raises(RequestError, match=what):
        read_key(write_key(tmp_path / "key", text))


@pytest.mark.parametrize("address", ["a..b:1", "[a]:1", "[::1:1", ":1", "here:0", "here:65536", "here:1:1", "here:²"])
def test_an_address_that_cannot_be_is_refused(tmp_path, address):
    with pytest.raises(RequestError, match="expected HOST:PORT"):
        rendezvous(address, write_key(tmp_path / "key"), 0, 2)


def test_a_key_is_not_in_what_is_printed(tmp_path):
    meeting = rendezvous("[::1]:29400", write_key(tmp_path / "key"), 0, 2)
    assert repr(meeting) == "Rendezvous([::1]:29400, rank 0 of 2)"


def test_a_key_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RequestError, match="key cannot be read: No such file or directory"):
        rendezvous("here:1", tmp_path / "key", 0, 2)


# Who meets


@pytest.fixture
def threads() -> Iterator[None]:
    with nothing_left():
        yield


# Holders of the key that are another version of ooc, or anything else


# From Python


def test_a_function_gets_the_ring(threads, tmp_path):
    where: dict[str, Any] = {"rendezvous": f"{HOST}:{free_port()}", "key_file": write_key(tmp_path / "ring.key")}

    def add_up(ring: ooc.ring.Ring) -> list[int]:
        array = np.array([ring.rank, 1])
        ring.all_reduce(array)
        return array.tolist()

    calls = [lambda rank=rank: ooc.ring.run(add_up, rank=rank, ranks=3, **where) for rank in range(3)]
    assert in_all(calls) == [[3, 3]] * 3


def test_a_function_that_fails_ends_all_ranks(threads, tmp_path):
    where: dict[str, Any] = {"rendezvous": f"{HOST}:{free_port()}", "key_file": write_key(tmp_path / "ring.key")}

    def fail(ring: ooc.ring.Ring) -> None:
        if ring.rank == 1:
            raise WorkFailed("the reason")
        ring.barrier()

    def call(rank: int) -> str:
        with pytest.raises(WorkFailed) as failed:
            ooc.ring.run(fail, rank=rank, ranks=2, **where)
        return failed.value.what

    assert in_all([lambda rank=rank: call(rank) for rank in range(2)]) == [
        f"rank 1 ({socket.gethostname()}) stopped: the reason",
        "the reason",
    ]


@pytest.mark.long
def test_a_command_runs_from_python(folder, model, monkeypatch):
    monkeypatch.chdir(folder)
    where: dict[str, Any] = {"rendezvous": f"{HOST}:{free_port()}", "key_file": write_key(folder / "python.key")}
    words = [str(word) for word in train("python-{rank}")]

    def call(rank: int) -> None:
        ooc.ring.run(words, rank=rank, ranks=2, **where)

    assert in_all([lambda rank=rank: call(rank) for rank in range(2)]) == [None, None]
    assert model_bytes(folder / "python-0") == model
    with pytest.raises(RequestError, match="`ooc train lda` on rank 0 ended with exit code 2"):
        ooc.ring.run(words, rank=0, ranks=1, **where)
