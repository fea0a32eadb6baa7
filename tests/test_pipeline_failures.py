"""Commands one after the other, as scripts have them: whatever ends one of them, all are run again from the first, and
end in the bytes of those that nothing has disturbed.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from commands import Ooc
from corpora import tree
from long_mark import long_but
from processes import until
from sudden_ends import let_a_minute_pass
from text_files import write_day

STEPS = {
    "ingest": "ingest jsonl monday.jsonl corpus --append --skip-known --min-df 2 --workers 1",
    "append": "ingest jsonl tuesday.jsonl corpus --append --skip-known --min-df 2 --workers 1",
    "train": "train lda corpus run --topics 3 --iterations 400 --sampler two-phase --workers 1 --seed 4 --resume",
    "infer": "infer run corpus mixtures.csv --workers 1 --skip-existing",
    "export": "export run model --format mallet --skip-existing",
}


class CompletedPipeline(NamedTuple):
    """What the steps come to, and the calls of each that change files."""

    made: dict[str, bytes]
    calls: dict[str, int]


class InjectedFailure(NamedTuple):
    """The step that fails, and what makes it fail: a function of the place and the calls of the step."""

    step: str
    happen: Callable[[PipelineDirectory, int], None]


class PipelineDirectory:
    """A directory in which the steps are taken, with a library that counts calls or has them fail."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path, self._library, self._counter = path, library, path.with_name(f"{path.name}-calls")
        path.mkdir()
        write_day(path / "monday.jsonl", *(f"doc{number}" for number in range(40)))
        write_day(path / "tuesday.jsonl", *(f"doc{number}" for number in range(30, 70)))

    def start(self, command: str, **failing: object) -> subprocess.Popen[str]:
        self._counter.write_bytes(b"")
        told = {"BELOW": self.path, "COUNTER": self._counter, "FROM": 0, **failing}
        environment = {**os.environ, "LD_PRELOAD": str(self._library), "PYTHONPATH": os.pathsep.join(sys.path)}
        environment |= {f"FAILING_{name}": str(value) for name, value in told.items()}
        return subprocess.Popen(
            [sys.executable, "-m", "ooc", *command.split(), "--quiet"],
            cwd=self.path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str, **failing: object) -> tuple[int, str]:
        """The exit code, and what was said on standard error."""
        with self.start(command, **failing) as process:
            said = process.communicate()[1]
        assert "Traceback" not in said and "bug in ooc" not in said, said
        return process.returncode, said

    def calls(self) -> int:
        return self._counter.stat().st_size

    def made(self) -> dict[str, bytes]:
        """All bytes of results; locks, logs and where runs are noted are none."""
        found = {"mixtures.csv": (self.path / "mixtures.csv").read_bytes()}
        for name in ("corpus", "run/model", "model"):
            found |= {f"{name}/{file}": content for file, content in tree(self.path / name).items()}
        return {name: content for name, content in found.items() if not name.startswith("corpus/runs/")}


@pytest.fixture(scope="module")
def library(preloaded: Callable[[str], Path]) -> Path:
    return preloaded("failing_disk")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, library: Path) -> CompletedPipeline:
    place, calls = PipelineDirectory(tmp_path_factory.mktemp("undisturbed") / "place", library), {}
    for step, command in STEPS.items():
        code, said = place.run(command)
        assert (code, re.sub(r"^compiling kernels;.*\n", "", said)) == (0, "")
        calls[step] = place.calls()
    return CompletedPipeline(place.made(), calls)


def killed(step: str) -> InjectedFailure:
    """SIGKILL for the process group at some call that changes files: another one each time the test runs."""

    def fail(place: PipelineDirectory, calls: int) -> None:
        code, _ = place.run(STEPS[step], FROM=random.randint(2, calls - 1), KILL="yes")
        assert code == -signal.SIGKILL

    return InjectedFailure(step, fail)


def disk(step: str, error: int) -> InjectedFailure:
    """A disk that fails from the middle of a step on."""

    def fail(place: PipelineDirectory, calls: int) -> None:
        code, said = place.run(STEPS[step], FROM=calls // 2, CALLS=1 << 40, ERROR=error)
        assert (code, said.count("\n") >= 1) == (1, True), said

    return InjectedFailure(step, fail)


def signalled(number: int) -> InjectedFailure:
    def fail(place: PipelineDirectory, _: int) -> None:
        with place.start(STEPS["train"]) as process:
            until((place.path / "run" / "metrics.jsonl").exists)
            process.send_signal(number)
            assert process.wait() == 130
            assert process.stderr and "everything is saved" in process.stderr.read()

    return InjectedFailure("train", fail)


def without_a_worker() -> InjectedFailure:
    def fail(place: PipelineDirectory, _: int) -> None:
        with place.start(STEPS["train"]) as process:
            until((place.path / "run" / "metrics.jsonl").exists)
            for worker in psutil.Process(process.pid).children(recursive=True):
                worker.kill()
            assert process.wait() == 1
            assert process.stderr and "worker" in process.stderr.read()

    return InjectedFailure("train", fail)


def refused(step: str, more: str, code: int) -> InjectedFailure:
    """Another option, with which the step cannot be done."""

    def fail(place: PipelineDirectory, _: int) -> None:
        assert place.run(f"{STEPS[step]} {more}")[0] == code

    return InjectedFailure(step, fail)


def bad_line() -> InjectedFailure:
    def fail(place: PipelineDirectory, _: int) -> None:
        file = place.path / "tuesday.jsonl"
        good = file.read_bytes()
        file.write_bytes(good[:-9])
        code, said = place.run(STEPS["append"])
        assert (code, "tuesday.jsonl, line 40" in said) == (2, True), said
        file.write_bytes(good)

    return InjectedFailure("append", fail)


def away(name: str, step: str) -> InjectedFailure:
    """What a step needs is not there: a disk that is mounted too late."""

    def fail(place: PipelineDirectory, _: int) -> None:
        (place.path / name).rename(place.path / "away")
        code, said = place.run(STEPS[step])
        assert code == 2, said
        (place.path / "away").rename(place.path / name)

    return InjectedFailure(step, fail)


FAILURES = {
    "an ingestion is killed": killed("ingest"),
    "an append is killed": killed("append"),
    "a run is killed": killed("train"),
    "an inference is killed": killed("infer"),
    "an export is killed": killed("export"),
    "the disk is full while more is appended": disk("append", errno.ENOSPC),
    "the disk fails while a model is trained": disk("train", errno.EIO),
    "the disk is full while a model is exported": disk("export", errno.ENOSPC),
    "a run is interrupted": signalled(signal.SIGINT),
    "a run is terminated": signalled(signal.SIGTERM),
    "a worker is killed": without_a_worker(),
    "the time of a training is over": refused("train", "--max-time 0.001", 75),
    "there is too little memory": refused("append", "--memory 20MB", 2),
    "an input has a bad line": bad_line(),
    "the dataset is not there": away("corpus", "train"),
    "the run is not there": away("run", "infer"),
}


QUICK = [
    "an append is killed",
    "a run is killed",
    "the disk is full while a model is exported",
]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("failure", long_but(QUICK, FAILURES))
def test_steps_that_are_run_again_end_in_the_same_bytes(
    undisturbed: CompletedPipeline, library: Path, tmp_path: Path, ooc_in: Callable[[Path], Ooc], failure: str
) -> None:
    place, ooc = PipelineDirectory(tmp_path / "place", library), ooc_in(tmp_path / "place")
    fails_at, happen = FAILURES[failure]
    for step, command in STEPS.items():
        if step == fails_at:
            happen(place, undisturbed.calls[step])
            break
        assert ooc(*command.split()).returncode == 0
    let_a_minute_pass(place.path)
    for command in STEPS.values():
        done = ooc(*command.split(), "--quiet")
        assert done.returncode == 0, (command, done.stderr)
    assert place.made() == undisturbed.made
    shutil.rmtree(place.path)
