"""How far a run has come, seen from its files, by any process and while another works on it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ooc.runs.chains import CHAINS
from ooc.runs.metrics import values_of
from ooc.runs.run import CONFIG, METRICS, Run

RUNNING, FINISHED, STOPPED = "running", "finished", "stopped"
_RECENT = 10  # iterations by which the next ones are judged


class Progress(NamedTuple):
    """config: of the run. lines: its metrics. state: RUNNING, FINISHED (its model is there) or STOPPED.

    since: seconds since the last line, or since it was started or resumed if that was later.
    """

    path: Path
    config: dict[str, Any]
    lines: list[dict[str, Any]]
    state: str
    since: float

    @property
    def done(self) -> int:
        """Iterations."""
        return int(self.lines[-1]["iteration"]) if self.lines else 0

    @property
    def planned(self) -> int:
        return int(self.config["iterations"])

    def iteration_seconds(self) -> float | None:
        """Of one of the last iterations, without evaluations; None before the first."""
        if not self.lines:
            return None
        recent = self.lines[-1 - _RECENT :]
        if len(recent) == 1:
            return float(recent[0]["elapsed_s"]) / max(recent[0]["iteration"], 1)
        seconds = recent[-1]["elapsed_s"] - recent[0]["elapsed_s"]
        return max(float(seconds) / max(recent[-1]["iteration"] - recent[0]["iteration"], 1), 0.0)

    def left(self) -> float | None:
        """Seconds that are left, if it goes on as it did; None if that is not known."""
        each = self.iteration_seconds()
        if each is None or self.state != RUNNING:
            return None
        return max((self.planned - self.done) * each - min(self.since, each), 0.0)


class Follower:
    """Reads a run again and again, of its metrics only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metrics = path / METRICS
        self._file, self._read = -1, 0  # the inode of what was read, and how many bytes
        self._lines: list[dict[str, Any]] = []

    def look(self) -> Progress:
        """The present state; raises what `Run` raises."""
        config = Run(self._path).config
        alive = started(self._path)
        self._read_on()
        state = FINISHED if config["finished"] else RUNNING if alive else STOPPED
        last = self._metrics.stat().st_mtime if self._lines else 0.0
        return Progress(self._path, config, self._lines, state, max(time.time() - max(last, alive or 0.0), 0.0))

    def _read_on(self) -> None:
        try:
            with self._metrics.open("rb") as file:
                status = os.fstat(file.fileno())
                replaced = status.st_ino != self._file or status.st_size < self._read  # as when a run is resumed
                if replaced:
                    self._file, self._read, self._lines = status.st_ino, 0, []
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        if whole:
            self._read += len(whole) + 1
            told = map(values_of, whole.split(b"\n"))  # `ooc verify` names those that are damaged
            self._lines = [*self._lines, *(values for values in told if values is not None)]


def started(path: Path) -> float | None:
    """When a run, or the chains that it is one of, was begun or resumed by the process that works on it; None if none
    does."""
    own = holder_started(path)
    return own if own or not (path.parent / CHAINS).exists() else holder_started(path.parent)


def holder_started(path: Path) -> float | None:
    """When the process that works on a run took its lock, in seconds since 1970; None if none does.

    The lock is not touched: whoever wants it must not find it held. Its file names the process, which has it open;
    another that only has the same number has not.
    """
    lock = path / "lock"
    try:
        process = psutil.Process(int(lock.read_text() or 0))
        try:
            if all(Path(file.path) != lock.resolve() for file in process.open_files()):
                return None
        except psutil.AccessDenied:  # of another user: there is no telling
            pass
        return lock.stat().st_mtime
    except (OSError, ValueError, psutil.Error):
        return None


def current(path: Path) -> Path:
    """The run, or of several chains the one that is trained: the first that is not finished, or the last."""
    return begun(path)[-1]


def begun(path: Path) -> list[Path]:
    """The run, or of several chains those that are finished, in a row, and the one that is trained."""
    if not (path / CHAINS).exists():
        return [path]
    chains = sorted(path.glob(f"chain-*/{CONFIG}"), key=lambda file: int(file.parent.name.removeprefix("chain-")))
    finished = [Run(file.parent).config["finished"] for file in chains]
    return [file.parent for file in chains[: [*finished, False].index(False) + 1]]
