"""Read the progress of a run from its files, from any process, while another process trains the run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ooc.runs.chains import CHAINS
from ooc.runs.metrics import parse_metrics_line
from ooc.runs.run import CONFIG, METRICS, Run

RUNNING, FINISHED, STOPPED = "running", "finished", "stopped"
_RECENT = 10  # number of recent iterations from which the time of the next iterations is estimated


class RunProgress(NamedTuple):
    """Progress of a run.

    config: configuration of the run.
    lines: lines of its metrics.
    state: RUNNING, FINISHED (it has a model) or STOPPED.
    since: seconds since the last line, or since the start or resume if that was later.
    """

    path: Path
    config: dict[str, Any]
    lines: list[dict[str, Any]]
    state: str
    since: float

    @property
    def done(self) -> int:
        """Return the number of finished iterations."""
        return int(self.lines[-1]["iteration"]) if self.lines else 0

    @property
    def planned(self) -> int:
        return int(self.config["iterations"])

    def iteration_seconds(self) -> float | None:
        """Return the duration of recent iterations in seconds, without evaluations; None before the first iteration."""
        if not self.lines:
            return None
        recent = self.lines[-1 - _RECENT :]
        if len(recent) == 1:
            return float(recent[0]["elapsed_s"]) / max(recent[0]["iteration"], 1)
        seconds = recent[-1]["elapsed_s"] - recent[0]["elapsed_s"]
        return max(float(seconds) / max(recent[-1]["iteration"] - recent[0]["iteration"], 1), 0.0)

    def left(self) -> float | None:
        """Return an estimate of the remaining time in seconds; None if unknown."""
        each = self.iteration_seconds()
        if each is None or self.state != RUNNING:
            return None
        return max((self.planned - self.done) * each - min(self.since, each), 0.0)


class RunFollower:
    """Reads the progress of a run repeatedly, but each line of its metrics only once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metrics = path / METRICS
        self._file, self._read = -1, 0  # inode of the metrics file, and number of bytes read
        self._lines: list[dict[str, Any]] = []

    def look(self) -> RunProgress:
        """Return the current progress.

        Raises the errors of `Run`.
        """
        config = Run(self._path).config
        alive = training_started(self._path)
        self._read_on()
        state = FINISHED if config["finished"] else RUNNING if alive else STOPPED
        last = self._metrics.stat().st_mtime if self._lines else 0.0
        return RunProgress(self._path, config, self._lines, state, max(time.time() - max(last, alive or 0.0), 0.0))

    def _read_on(self) -> None:
        try:
            with self._metrics.open("rb") as file:
                status = os.fstat(file.fileno())
                replaced = status.st_ino != self._file or status.st_size < self._read  # such as when a run is resumed
                if replaced:
                    self._file, self._read, self._lines = status.st_ino, 0, []
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        if whole:
            self._read += len(whole) + 1
            told = map(parse_metrics_line, whole.split(b"\n"))  # `ooc verify` reports damaged lines
            self._lines = [*self._lines, *(values for values in told if values is not None)]


def training_started(path: Path) -> float | None:
    """Return when the process that trains a run, or one of its chains, started; None if no process trains it."""
    own = holder_started(path)
    return own if own or not (path.parent / CHAINS).exists() else holder_started(path.parent)


def holder_started(path: Path) -> float | None:
    """Return when the process that trains a run took its lock, in seconds since 1970; None if no process trains it.

    The lock itself is not taken, so that no other process finds it in use. The lock file contains the id of the
    process, which must have the file open, because another process may have got the same id since.
    """
    lock = path / "lock"
    try:
        process = psutil.Process(int(lock.read_text() or 0))
        try:
            if all(Path(file.path) != lock.resolve() for file in process.open_files()):
                return None
        except psutil.AccessDenied:  # process of another user: its open files are unknown
            pass
        return lock.stat().st_mtime
    except (OSError, ValueError, psutil.Error):
        return None


def current_run(path: Path) -> Path:
    """Return the run or, for several chains, the chain in training: the first unfinished one, or the last."""
    return begun_runs(path)[-1]


def begun_runs(path: Path) -> list[Path]:
    """Return the run or, for several chains, the finished chains and the chain in training."""
    if not (path / CHAINS).exists():
        return [path]
    chains = sorted(path.glob(f"chain-*/{CONFIG}"), key=lambda file: int(file.parent.name.removeprefix("chain-")))
    finished = [Run(file.parent).config["finished"] for file in chains]
    return [file.parent for file in chains[: [*finished, False].index(False) + 1]]
