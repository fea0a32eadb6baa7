"""Measure how time is spent: seconds by purpose, and seconds for which a process stands still."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

_SCHEDULED = "/proc/self/schedstat"  # nanoseconds for which a thread ran, and for which it waited to run


class Stopwatch:
    """Measures the seconds spent on each purpose."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._purpose: str | None = None
        self._since = 0.0

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Count the time of the context for a purpose rather than for the purpose that it interrupts."""
        outer = self._turn_to(purpose)
        try:
            yield
        finally:
            self._turn_to(outer)

    @contextmanager
    def rather(self, purpose: str) -> Iterator[None]:
        """Count the time of the context for a purpose only if time is already being counted for another purpose."""
        with self.on(purpose) if self._purpose else nullcontext():
            yield

    def take(self) -> dict[str, float]:
        """Return the seconds spent on each purpose since the last call."""
        self._turn_to(self._purpose)
        taken, self._seconds = self._seconds, {}
        return taken

    def _turn_to(self, purpose: str | None) -> str | None:
        now, before = time.perf_counter(), self._purpose
        if before:
            self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._purpose, self._since = purpose, now
        return before


def still_seconds() -> float:
    """Return the seconds for which this single-threaded process neither ran nor waited to run, up to a constant.

    While the process only computes on arrays, these are the page faults on mapped files that are read from disk. Always
    0 if the system does not measure scheduling times.
    """
    try:
        file = os.open(_SCHEDULED, os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        waited = int(os.read(file, 100).split()[1]) / 1e9
    finally:
        os.close(file)
    return time.perf_counter() - time.process_time() - waited
