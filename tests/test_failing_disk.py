"""A disk that is full or fails at any call that writes: it is told in a line, nothing committed is lost, and the same
command, or `ooc resume`, then ends with the bytes of one that nobody disturbed.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from corpora import new_run, program_spec, small_dataset, tree
from fork_server import ForkServer, begin
from long_mark import long_but

from ooc.runs.run import Run

HERE = Path(__file__).parent
CLI = ["-m", "ooc"]  # forked from an interpreter that has imported it, and the library that has calls fail
TRAIN = [str(HERE / "engine_script.py"), "run"]  # workers, buffers, mapped, seconds between commits
ERRORS = {"full": (errno.ENOSPC, 1 << 40), "failing once": (errno.EIO, 1), "failing": (errno.EIO, 1 << 40)}
TOLD = ("the disk is full", "Input/output error", "may be lost in a power cut")
ITERATIONS = 2


class WritingJob(NamedTuple):
    """Something that writes: the command, the one that goes on after it failed, and what is there in the end."""

    command: list[str]
    again: list[str]
    result: str


LDA = ["train", "lda", "dataset", "new", "--topics", "8", "--iterations", "2", "--workers", "1", "--sampler", "gibbs"]
JOBS = {
    "ingest": WritingJob([*CLI, "ingest", "text", "--lines", "in.txt", "new", "--workers", "2"], [], "new"),
    "design": WritingJob(
        [*CLI, "ingest", "svmlight", "in.svm", "new", "--block-size", "200B", "--workers", "2"], [], "new"
    ),
    "append": WritingJob(
        [*CLI, "ingest", "text", "--lines", "more.txt", "base", "--append", "--skip-known", "--workers", "1"],
        [],
        "base",
    ),
    "synthetic": WritingJob(
        [
            *CLI,
            "ingest",
            "synthetic",
            "new",
            "--documents",
            "99",
            "--vocabulary",
            "50",
            "--topics",
            "3",
            "--workers",
            "1",
        ],
        [],
        "new",
    ),
    "train": WritingJob([*CLI, *LDA], [*CLI, "resume", "new"], "new/model"),
    "resident": WritingJob([*TRAIN, "2", "0", "0", "0"], [], "run/model"),
    "streamed": WritingJob([*TRAIN, "2", "2", "1", "0"], [], "run/model"),
    "infer": WritingJob([*CLI, "infer", "done", "dataset", "new.npz", "--workers", "1"], [], "new.npz"),
    "export": WritingJob([*CLI, "export", "done", "new.npz"], [], "new.npz"),
    "shard": WritingJob([*CLI, "shard", "dataset", "new", "--shards", "2", "--workers", "1"], [], "new"),
    "repair": WritingJob([*CLI, "verify", "--repair", "damaged"], [], "damaged"),
}


class FailingLibrary(NamedTuple):
    """What has calls fail. nursery: that of interpreters in which it is loaded."""

    path: Path
    nursery: ForkServer


@pytest.fixture(scope="module")
def library(preloaded) -> Iterator[FailingLibrary]:
    path = preloaded("failing_disk")
    nursery = begin(LD_PRELOAD=str(path))
    yield FailingLibrary(path, nursery)
    nursery.close()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A directory with all that the jobs begin from."""
    path = tmp_path_factory.mktemp("prepared")
    dataset = small_dataset(path / "dataset", documents=60)
    (path / "in.txt").write_text("".join(f"word{i % 7} word{i % 11} word{i % 13}\n" for i in range(50)))
    (path / "more.txt").write_text("".join(f"word{i % 5} word{i % 3}\n" for i in range(40)))
    (path / "in.svm").write_text("".join(f"{i} {i % 7 + 1}:{i / 3:.3f} {i % 5 + 9}:1\n" for i in range(50)))
    for command in (
        ["ingest", "text", "--lines", "in.txt", "base", "--workers", "1"],
        [*LDA[:3], "done", *LDA[4:]],
    ):
        subprocess.run([sys.executable, *CLI, *command], cwd=path, check=True, capture_output=True)
    new_run(path / "run", dataset, program_spec("LightLda", topics=8), ITERATIONS)
    shutil.copytree(dataset.path, path / "damaged")
    for slice_ in (path / "damaged" / "slices").iterdir():
        slice_.unlink()
    return path


class FailingDisk:
    """A directory of its own for a job, and the calls that it makes there."""

    def __init__(self, library: FailingLibrary, prepared: Path, path: Path) -> None:
        self.library, self.path, self.counter = library, path / "work", path / "counter"
        shutil.copytree(prepared, self.path, copy_function=os.link)

    def run(self, command: list[str], first: int = 0, error: str = "full") -> subprocess.CompletedProcess[str]:
        """Run a command; from the `first` call on writing fails, unless that is 0."""
        self.counter.write_bytes(b"")
        code, calls = ERRORS[error]
        failing = {"BELOW": self.path, "COUNTER": self.counter, "FROM": first, "CALLS": calls, "ERROR": code}
        environment = {f"FAILING_{name}": str(value) for name, value in failing.items()}
        environment |= {"LD_PRELOAD": str(self.library.path), "PYTHONPATH": f"{HERE.parent}:{HERE}"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            if command[: len(CLI)] == CLI:
                return self.library.nursery.run(command[len(CLI) :], self.path, timeout=300)
            return subprocess.run(
                [sys.executable, *command], cwd=self.path, capture_output=True, text=True, check=False, timeout=300
            )

    def calls(self) -> int:
        return self.counter.stat().st_size

    def result(self, job: WritingJob) -> object:
        path = self.path / job.result
        if not path.exists():
            return None
        return tree(path) if path.is_dir() else path.read_bytes()


@contextmanager
def new_disk(library: FailingLibrary, prepared: Path, root: Path) -> Iterator[FailingDisk]:
    root.mkdir()
    yield FailingDisk(library, prepared, root)
    shutil.rmtree(root)


def check_failure(disk: FailingDisk, job: WritingJob, first: int, error: str, expected: object) -> None:
    """The job fails at a call, and says so; then it is done again."""
    where = f"call {first}, {error}"
    failed = disk.run(job.command, first, error)
    assert disk.calls() >= first, where
    told = failed.stderr.splitlines()
    if failed.returncode:
        assert failed.returncode == 1, (where, told)
        assert "Traceback" not in failed.stderr, (where, told)
        assert any(line in failed.stderr for line in TOLD), (where, told)
        if disk.result(job) != expected:  # else only the last name may not be durable
            started = job.again and (disk.path / job.again[-1]).exists()
            again = disk.run(job.again if started else job.command)
            assert again.returncode == 0, (where, told, again.stderr)
    assert disk.result(job) == expected, (where, told)
    assert [path for path in disk.path.rglob("*") if ".partial-" in path.name] == [], (where, told)
    for run in ("run", "new"):
        if (disk.path / run / "metrics.jsonl").exists():
            iterations = [line["iteration"] for line in Run(disk.path / run).metrics()]
            assert iterations == list(range(1, len(iterations) + 1)), where


@pytest.fixture
def disturb(library, prepared, tmp_path) -> Callable[..., None]:
    """Run a job once as it is, then with a failure, in another way each time, at calls that `choose` takes from all."""

    def disturb(name: str, choose: Callable[[range], Iterable[int]], chance: random.Random) -> None:
        job, turn = JOBS[name], chance.randrange(len(ERRORS))
        with new_disk(library, prepared, tmp_path / "undisturbed") as disk:
            assert disk.run(job.command).returncode == 0
            calls, expected = disk.calls(), disk.result(job)
        for first in choose(range(1, calls + 1)):
            with new_disk(library, prepared, tmp_path / "disturbed") as disk:
                check_failure(disk, job, first, list(ERRORS)[(turn + first) % len(ERRORS)], expected)

    return disturb


SOME = ["ingest", "design", "train", "streamed", "shard", "repair"]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", long_but([name for name in SOME if name != "streamed"], SOME))
def test_a_disk_that_fails_at_some_call(disturb, name):
    """At a point, and in a way, that differ each time the test runs."""
    chance = random.Random()
    disturb(name, lambda calls: chance.sample(calls, 1), chance)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", list(JOBS))
def test_a_disk_that_fails_at_any_call(disturb, name, part):
    """The way, of three, in which it fails at a call differs from one time that the test runs to another."""
    disturb(name, lambda calls: calls[part::4], random.Random())


SMALL = """
mount -t tmpfs -o size=$SIZE none disk || exit 99
$OOC $TRAIN > told 2>&1; echo $? > code
find disk -name '*.partial-*' > leftovers
mount -o remount,size=1g,ro disk
$OOC $TRAIN --overwrite > told-read-only 2>&1; echo $? > code-read-only
mount -o remount,rw disk
if [ -e disk/new/config.json ]; then $OOC resume disk/new; else $OOC $TRAIN; fi || exit 98
cp -r disk/new/model .
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "size", ["16k", *(pytest.param(size, marks=pytest.mark.long) for size in ("4k", "32k", "44k", "56k"))]
)
def test_a_disk_that_is_too_small_for_a_run_or_read_only(prepared, tmp_path, size):
    """A real one, of the kernel, in a mount namespace of its own."""
    train = " ".join(LDA).replace(" new ", " disk/new ")
    (tmp_path / "disk").mkdir()
    (tmp_path / "dataset").symlink_to(prepared / "dataset")
    env = {
        **os.environ,
        "OOC": f"{sys.executable} -m ooc",
        "TRAIN": train,
        "SIZE": size,
        "PYTHONPATH": str(HERE.parent),
    }
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", SMALL]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode not in (0, 98):
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    told, read_only = ((tmp_path / name).read_text() for name in ("told", "told-read-only"))
    assert int((tmp_path / "code").read_text()) == 1
    assert "the disk is full" in told
    assert "Traceback" not in told
    assert (tmp_path / "leftovers").read_text() == ""
    assert int((tmp_path / "code-read-only").read_text()) == 2
    assert "the file system is read-only" in read_only
    assert tree(tmp_path / "model") == tree(prepared / "done" / "model")
