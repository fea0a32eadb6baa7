"""Measure where time goes: seconds by purpose, and seconds in which a process stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

_SCHEDULED = Path("/proc/self/schedstat")  # nanoseconds that a process of one thread ran, and waited for a processor


class Stopwatch:
    """Measures seconds by purpose."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._purpose: str | None = None
        self._since = 0.0

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Count the time of the context for a purpose, and not for the purpose that it interrupts."""
        outer = self._turn_to(purpose)
        try:
            yield
        finally:
            self._turn_to(outer)

    @contextmanager
    def rather(self, purpose: str) -> Iterator[None]:
        """Count the time of the context for a purpose, if something is counted already; otherwise nothing."""
        with self.on(purpose) if self._purpose else nullcontext():
            yield

    def take(self) -> dict[str, float]:
        """Return the seconds of each purpose since the last call."""
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
    """Return the seconds in which this single-threaded process neither ran nor waited for a processor, since any
    moment.

    While it only computes on arrays, they are page faults of mapped files that are read from disk. Always 0 if the
    system does not measure them.
    """
    try:
        waited = int(_SCHEDULED.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
    return time.perf_counter() - time.process_time() - waited
