"""How a run is seen from outside: by its files, whoever works on it, and when nobody does any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import until

from ooc.runs.progress import (
    FINISHED,
    RUNNING,
    STOPPED,
    RunFollower,
    begun_runs,
    current_run,
    holder_started,
    training_started,
)

CONFIG = {
    "schema": 1,
    "version": "0.1.0",
    "program": "samplers.programs:lda-gibbs",
    "options": {},
    "dataset": {"path": "corpus", "identity": ""},
    "iterations": 40,
    "evaluate_every": 1,
    "extended_at": 0,
    "settings": {},
    "scratch": None,
    "finished": False,
    "state_removed": False,
}


def line(iteration: int, seconds: float = 2.0) -> str:
    return json.dumps({"iteration": iteration, "elapsed_s": seconds * iteration, "tokens_per_s": 5}) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def test_only_new_lines_are_read_and_torn_ones_wait(run: Path) -> None:
    follower = RunFollower(run)
    assert follower.look().lines == []
    with (run / "metrics.jsonl").open("w") as file:
        for text, done in ((line(1), 1), (line(2)[:9], 1), (line(2)[9:] + line(3), 3)):
            file.write(text)
            file.flush()
            seen = follower.look()
            assert seen.done == done
    assert [told["iteration"] for told in seen.lines] == [1, 2, 3]
    assert seen.planned == 40


@pytest.mark.parametrize("kept", ["", line(1), line(1) + line(2) + line(3) + line(4)])
def test_metrics_that_were_replaced_are_read_again(run: Path, kept: str) -> None:
    """As a resume does it that goes back: by another file under the name, shorter or longer."""
    metrics = run / "metrics.jsonl"
    metrics.write_text(line(1, 7.0) + line(2, 7.0) + line(3, 7.0))
    follower = RunFollower(run)
    assert follower.look().done == 3
    beside = run / "beside"
    beside.write_text(kept)
    beside.replace(metrics)
    assert [told["elapsed_s"] for told in follower.look().lines] == [2.0 * (i + 1) for i in range(kept.count("\n"))]


def test_whoever_holds_the_lock_trains(run: Path) -> None:
    """A process that lives and has it open; not one that ended, also if nobody asked how; nor another of its number."""
    follower, lock = RunFollower(run), run / "lock"
    assert follower.look().state == STOPPED
    script = f"file = open({str(lock)!r}, 'w'); file.write('now'); file.flush(); input()"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    until(lambda: lock.exists() and lock.read_text() == "now")
    assert holder_started(run) is None
    lock.write_text(str(process.pid))
    assert holder_started(run) == lock.stat().st_mtime
    assert follower.look().state == RUNNING
    lock.write_text(str(os.getpid()))
    assert holder_started(run) is None
    lock.write_text(str(process.pid))
    process.kill()
    assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder_started(run) is None
    process.communicate()
    assert follower.look().state == STOPPED
    for wrong in ("", "12 monkeys", "4194999"):
        lock.write_text(wrong)
        assert holder_started(run) is None
    (run / "config.json").write_text(json.dumps(CONFIG | {"finished": True}))
    assert follower.look().state == FINISHED


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Hold the lock of a run until the test is over."""
    with ExitStack() as stack:

        def hold(path: Path) -> None:
            file = stack.enter_context((path / "lock").open("w"))
            file.write(str(os.getpid()))
            file.flush()

        yield hold


def test_what_is_left_is_judged_by_the_last_iterations(run: Path, held: Callable[[Path], None]) -> None:
    """The first hundred were slow; the last ten took two seconds each."""
    held(run)
    follower = RunFollower(run)
    assert follower.look().left() is None
    lines = [{"iteration": i + 1, "elapsed_s": 9.0 * min(i + 1, 20) + 2.0 * max(i - 19, 0)} for i in range(30)]
    (run / "metrics.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert follower.look().iteration_seconds() == 9.0
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(told) + "\n" for told in lines[1:])
    seen = follower.look()._replace(since=0.5)
    assert seen.iteration_seconds() == 2.0
    assert seen.left() == 10 * 2.0 - 0.5
    assert seen._replace(since=100.0).left() == 9 * 2.0
    assert seen._replace(state=STOPPED).left() is None


def test_of_chains_the_first_that_is_not_finished_is_trained(tmp_path: Path, held: Callable[[Path], None]) -> None:
    """Also between two of them, when neither is worked on, but the lock of all is held."""
    (tmp_path / "chains.json").write_text("{}")
    for number, finished in ((1, True), (2, False), (10, False)):
        (tmp_path / f"chain-{number}").mkdir()
        (tmp_path / f"chain-{number}" / "config.json").write_text(json.dumps(CONFIG | {"finished": finished}))
    assert current_run(tmp_path) == tmp_path / "chain-2"
    assert begun_runs(tmp_path) == [tmp_path / "chain-1", tmp_path / "chain-2"]
    assert training_started(tmp_path / "chain-2") is None
    held(tmp_path)
    assert RunFollower(tmp_path / "chain-2").look().state == RUNNING
    for number in (2, 10):
        (tmp_path / f"chain-{number}" / "config.json").write_text(json.dumps(CONFIG | {"finished": True}))
    assert current_run(tmp_path) == tmp_path / "chain-10"
