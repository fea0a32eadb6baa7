"""A training watched: in a terminal, as lines and as JSON; one that ends, one that is killed, several chains."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Ooc
from corpora import tiny_dataset
from processes import until
from rich.console import Console

from ooc.cli.watch import iteration_line, progress_panel, sparkline
from ooc.runs.progress import RunProgress

SHORT = ("--topics", 2, "--iterations", 6, "--evaluate-every", 2, "--workers", 1)
OOC = f"{sys.executable} -m ooc"
TRAIN = f"{OOC} train lda corpus run {' '.join(map(str, SHORT))}"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    tiny_dataset(tmp_path / "corpus", [[0, 1, 2, 2]] * 5, 3)
    return tmp_path / "corpus"


def in_terminal(folder: Path, command: str, **environment: str) -> tuple[int, str]:
    """The exit code of what is typed in a shell, and all that it wrote to its terminal."""
    ours, its = pty.openpty()
    plainly = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    variables = plainly | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **environment}
    streams = {"stdin": its, "stdout": its, "stderr": its}
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=variables, **streams)
    os.close(its)
    written = b""
    try:
        while piece := os.read(ours, 1 << 16):
            written += piece
    except OSError:  # Linux says so when nobody has the other end any more
        pass
    os.close(ours)
    return process.wait(), written.decode()


@pytest.mark.long
def test_results_are_not_drawn_over(corpus: Path, tmp_path: Path) -> None:
    """They go to standard output, wherever that is, while the picture is in the terminal."""
    code, written = in_terminal(tmp_path, f"{TRAIN} --watch --json > result.json")
    assert code == 0, written
    assert json.loads((tmp_path / "result.json").read_text())["iteration"] == 6
    assert "6 of 6" in text_of(written)


def text_of(written: str) -> str:
    """Without what moves the cursor and sets colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)


def test_a_training_in_a_terminal(corpus: Path, tmp_path: Path) -> None:
    """--watch draws in place of the progress bar, and results follow; then `ooc watch` shows the end, without colours
    if nobody wants them."""
    code, written = in_terminal(tmp_path, f"{TRAIN} --memory 1GB --watch")
    assert code == 0, written
    last = text_of(written).rpartition("run finished")[2]
    assert "6 of 6 (100%)" in last
    assert re.search(r"memory +│? *\d+ of 1,000 MB", last)
    assert "log-likelihood" in last
    assert "tokens/s" in last
    assert "run: 6 iterations in" in last
    assert "iteration/s" not in text_of(written)
    code, written = in_terminal(tmp_path, f"{OOC} watch run", NO_COLOR="1")
    assert code == 0
    assert "6 of 6" in text_of(written)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", written)
    assert re.search(r"\x1b\[[0-9;]*3[0-7]m", in_terminal(tmp_path, f"{OOC} watch run")[1])


def test_a_training_as_lines(corpus: Path, ooc: Ooc) -> None:
    """Where there is no terminal: one for each iteration, each once, on standard error while standard output has the
    result; `ooc watch` says the same of the run afterwards, also as JSON."""
    done = ooc("train", "lda", "corpus", "run", *SHORT, "--watch", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iteration"] == 6
    told = [line for line in done.stderr.splitlines() if line.startswith("run: iteration")]
    assert [int(line.split()[2]) for line in told] == list(range(1, 7))
    assert "log-likelihood" in told[1]
    assert "log-likelihood" not in told[0]
    assert ooc("watch", "run").stdout.splitlines() == told
    lines = [json.loads(line) for line in ooc("watch", "run", "--json").stdout.splitlines()]
    assert [(line["run"], line["iteration"], line["planned"]) for line in lines] == [("run", i, 6) for i in range(1, 7)]


@pytest.mark.long
def test_a_training_that_is_killed_while_it_is_watched(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """The watcher ends with exit code 1 and says how to go on; told of an interrupt, it leaves the training alone."""
    command = [sys.executable, "-m", "ooc"]
    long = ["train", "lda", "corpus", "run", "--topics", "2", "--iterations", "1000000", "--workers", "1", "--quiet"]
    training = subprocess.Popen([*command, *long], cwd=tmp_path, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "run" / "metrics.jsonl"
    until(lambda: metrics.exists() and metrics.stat().st_size > 0)
    piped: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "watch", "run"], **piped) as watcher:
        assert watcher.stdout
        assert watcher.stdout.readline().startswith("run: iteration 1 of 1000000")
        watcher.send_signal(signal.SIGINT)
        assert "interrupted" in watcher.communicate()[1]
        assert watcher.returncode == 130
    assert training.poll() is None
    with subprocess.Popen([*command, "watch", "run"], **piped) as watcher:
        assert watcher.stdout
        assert watcher.stderr
        told = [watcher.stdout.readline()]
        training.kill()
        training.wait()
        told += watcher.stdout.readlines()  # communicate would not know of what was read with the first line
        said = watcher.stderr.read()
    assert watcher.returncode == 1
    assert "is not being trained now: it stopped at iteration" in said
    assert "ooc resume run" in said
    assert [int(line.split()[2]) for line in told] == list(range(1, len(told) + 1))


def test_chains_are_watched_one_after_the_other(corpus: Path, ooc: Ooc) -> None:
    long = ("--topics", 2, "--iterations", 16, "--evaluate-every", 2, "--workers", 1, "--chains", 2)
    done = ooc("train", "lda", "corpus", "both", *long, "--watch")
    assert done.returncode == 0, done.stderr
    told = [line.split(":")[0] for line in done.stderr.splitlines() if ": iteration" in line]
    assert told == ["both/chain-1"] * 16 + ["both/chain-2"] * 16


def test_what_goes_wrong_is_told_as_without_watching(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    done = ooc("train", "lda", "corpus", "run", "--topics", 0, "--watch")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--topics must be" in done.stderr
    assert not (tmp_path / "run").exists()
    assert "--watch can only be used on one machine" in ooc("resume", "run", "--watch", "--transport", "mpi").stderr


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([3.0]) == "▁"
    assert sparkline([2.0, 2.0, 2.0]) == "▁▁▁"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 9, 14, 14], width=3) == "▁▅█"
    assert len(sparkline(range(1000), width=32)) == 32


@pytest.mark.parametrize("width", [40, 88, 200])
def test_any_run_can_be_drawn(width: int) -> None:
    """Of any kind and at any time, in narrow terminals, too: no line is longer than the terminal."""
    common = {"elapsed_s": 3.0, "memory_bytes": 10**8, "sampling_s": 1.0, "disk_s": 0.0}
    ratings = [{"iteration": 1, "samples_per_s": 5, "rmse": 0.9, "objective": 1e9, "held_out_rmse": 1.1, **common}]
    diverged = [
        *ratings,
        {"iteration": 2, **common, "samples_per_s": 5, "rmse": float("nan"), "objective": float("inf")},
    ]
    for lines, config in (([], {"iterations": 0}), (ratings, {"iterations": 5}), (diverged, {"iterations": 2})):
        for state in ("running", "stopped", "finished"):
            seen = RunProgress(Path("a/run"), config, lines, state, 1.0)
            console = Console(width=width, record=True, file=io.StringIO())
            console.print(progress_panel(seen, console))
            drawn = console.export_text().splitlines()
            assert all(len(line) <= width for line in drawn)
            assert state in drawn[0]
    assert "RMSE 0.9000" in iteration_line(seen, ratings[0])
