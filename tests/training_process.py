"""A training in a separate process that tests kill, stop and monitor."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

SCRIPT = Path(__file__).with_name("engine_script.py")
PATIENCE = 300.0  # seconds until something that must happen is taken not to


def until(happens: Callable[[], Any], what: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.002)


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TrainingProcess:
    """A training in a separate process."""

    def __init__(
        self,
        run: Path,
        workers: int,
        buffers: int,
        *,
        mapped: bool = False,
        checkpoint_s: float = 0.0,
        environment: dict[str, str] | None = None,
        program: tuple[str, ...] = (),
    ) -> None:
        self.run = run
        arguments = map(str, (SCRIPT, run, workers, buffers, int(mapped), checkpoint_s, *program))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        self.tree: list[psutil.Process] = []

    def iterations(self) -> int:
        """Return the number of lines in the metrics."""
        metrics = self.run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def wait_for(self, iteration: int) -> None:
        """Wait until an iteration is in the metrics or the process has ended, and record its processes."""
        until(lambda: self.iterations() >= iteration or self.process.poll() is not None, f"iteration {iteration}")
        self.note_tree()

    def note_tree(self) -> None:
        if self.process.poll() is None:
            self.tree = psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Return the workers: children of the process that forks them, which is a child of the training process."""
        template = psutil.Process(self.process.pid).children()[0]
        return template.children()

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal, if any, and wait; returns exit status and output, and checks that no process is left."""
        if number:
            self.process.send_signal(number)
        _, told = self.process.communicate(timeout=PATIENCE)
        until(lambda: not any(map(alive, self.tree)), f"{self.tree} are gone")
        return self.process.returncode, told


ITERATIONS = 25


RESIDENT, STREAMED = 0, 3  # buffers


def kill_at_random_points(path: Path, chance: random.Random, kills: int) -> None:
    """Kill the coordinator of a run repeatedly, and resume each time with other workers and another plan."""
    for _ in range(kills):
        training_ = TrainingProcess(path, chance.randint(1, 3), chance.choice([RESIDENT, 2, STREAMED]))
        done = training_.iterations()
        if chance.random() < 0.8:
            training_.wait_for(min(done + chance.randint(1, 3), ITERATIONS))
        else:  # while it starts
            time.sleep(chance.uniform(0.5, 1.5))
            training_.note_tree()
        time.sleep(chance.uniform(0, 0.08))
        training_.end(signal.SIGKILL)
        if (path / "state").exists():
            assert len(list((path / "state").glob("*.cells"))) <= 3
