"""A command ends by SIGINT, SIGTERM or SIGHUP while its worker processes are stopped (SIGSTOP), too."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from long_mark import long_but
from processes import until

PATIENCE = 120.0  # seconds until a command is taken to hang: less than a worker may take to answer
MANY = ["--iterations", "100000", "--workers", "2"]
TRAININGS = {
    "lda": ["train", "lda", "corpus", "new", "--topics", "5", *MANY],
    "als": ["train", "mf", "ratings", "new", "--rank", "4", "--method", "als", *MANY],
    "ccd": ["train", "mf", "ratings", "new", "--rank", "4", "--method", "ccd", *MANY],
    "sgd": ["train", "mf", "ratings", "new", "--rank", "4", "--method", "sgd", *MANY],
}
ONCE = {
    "ingest": ["ingest", "text", "--lines", "long_mark.txt", "new", "--workers", "2"],
    "infer": ["infer", "run", "corpus", "new.npz", "--workers", "1"],
}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, ooc_in) -> Path:
    """A directory with a corpus, ratings, a run, and a text that takes long to ingest."""
    path = tmp_path_factory.mktemp("stopped")
    (path / "texts.txt").write_text("apple pear plum apple fig\nball goal team ball match\n" * 50_000)
    (path / "long_mark.txt").write_text("apple pear plum apple fig\nball goal team ball match\n" * 800_000)
    lines = (f"u{number % 50},i{number * 7 % 40},{number % 5 + 1}\n" for number in range(1000))
    (path / "ratings.csv").write_text("".join(["userId,movieId,rating\n", *lines]))
    for command in (
        "ingest text texts.txt corpus --lines",
        "ingest ratings ratings.csv ratings",
        "train lda corpus run --topics 5 --iterations 2 --workers 1",
        "infer run corpus known.npz --workers 1",  # compiles its kernels
    ):
        done = ooc_in(path)(*command.split())
        assert done.returncode == 0, done.stderr
    return path


def stopped_workers(process: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    """All processes that a command has started, once there are as many as workers and what they are forked from."""
    found: list[psutil.Process] = []

    def are_there() -> bool:
        assert process.poll() is None, process.communicate()
        found[:] = psutil.Process(process.pid).children(recursive=True)
        return len(found) == count + 1

    until(are_there)
    for each in found:
        each.suspend()
    return found


def ended(process: subprocess.Popen[str], workers: list[psutil.Process], number: int) -> str:
    """Ask a command to end, which it must; returns standard error."""
    process.send_signal(number)
    try:
        _, said = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it has not ended after {signal.Signals(number).name}")
    finally:
        process.kill()
        for each in workers:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    return said


EVERY = list(zip(TRAININGS, [*SIGNALS, signal.SIGINT], strict=True))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "number"), long_but(EVERY[::2], EVERY))
def test_a_training_commits_and_goes_on_later(prepared: Path, tmp_path: Path, name: str, number: int) -> None:
    run = tmp_path / "new"
    command = [sys.executable, "-m", "ooc", *(str(run) if word == "new" else word for word in TRAININGS[name])]
    with subprocess.Popen(command, cwd=prepared, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0)
        said = ended(process, stopped_workers(process, 2), number)
    assert f"stopped by {signal.Signals(number).name} at iteration" in said
    assert "everything is saved" in said
    resumed = [sys.executable, "-m", "ooc", "resume", str(run), "--iterations", "1"]
    assert subprocess.run(resumed, cwd=prepared, capture_output=True, check=False).returncode in (0, 2)


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "number"), [("ingest", signal.SIGTERM), ("infer", signal.SIGHUP)])
def test_a_command_says_that_it_was_interrupted_and_leaves_nothing(prepared: Path, name: str, number: int) -> None:
    before = sorted(prepared.iterdir())
    command = [sys.executable, "-m", "ooc", *ONCE[name]]
    with subprocess.Popen(command, cwd=prepared, stderr=subprocess.PIPE, text=True) as process:
        said = ended(process, stopped_workers(process, int(command[-1])), number)
    assert said.splitlines()[-1] == "ooc: interrupted"
    assert sorted(prepared.iterdir()) == before
