"""Processes that tests fork are like those that users start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import nursery, will_do
from processes import children, gone

from blocks import workers
from blocks.workers import WorkerPool

pytestmark = pytest.mark.skipif(not will_do(), reason="nothing is forked here")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["info", "nowhere"], ["train", "lda", "data"], ["train", "--no-such"]]
)
def test_a_command_ends_and_says_what_it_does_in_a_fresh_interpreter(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "ooc", *arguments]
    fresh = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    forked = nursery().run(arguments, tmp_path, 300.0)
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        nursery().run(["doctor"], tmp_path, 0.001)
    assert children() == []


def test_an_interpreter_has_the_surroundings_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, directory and files, under the numbers that these have there; it ends with its workers."""
    assert workers._start_interpreter.__name__ == "fork_interpreter"
    monkeypatch.setenv("SOMETHING", "set")
    monkeypatch.chdir(tmp_path)
    with Path("file").open("w") as file, WorkerPool("worker_targets:deeds", None, 1, inherit=[file.fileno()]) as one:
        pids = one.pids
        assert one.ask(0, ("environment", "SOMETHING")) == "set"
        assert one.ask(0, ("directory", None)) == str(tmp_path)
        assert one.ask(0, ("write", file.fileno())) == 7
    assert Path("file").read_text() == "written"
    assert gone(pids)
