"""Where time goes: seconds by what they are spent on, and those in which a process stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

_SCHEDULED = Path("/proc/self/schedstat")  # nanoseconds that a process of one thread ran, and waited for a processor


class Stopwatch:
    """Counts while something is spent on a purpose."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._purpose: str | None = None
        self._since = 0.0

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Count what is done meanwhile for a purpose, and not for the one it interrupts."""
        outer = self._turn_to(purpose)
        try:
            yield
        finally:
            self._turn_to(outer)

    @contextmanager
    def rather(self, purpose: str) -> Iterator[None]:
        """The same where something is counted already; nothing is counted otherwise."""
        with self.on(purpose) if self._purpose else nullcontext():
            yield

    def take(self) -> dict[str, float]:
        """The seconds of each purpose since they were taken before."""
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
    """Seconds, since any moment, in which this process of one thread neither ran nor waited for a processor.

    While it only computes on arrays, these are spent on pages of mapped files that come from the disk. Always 0 where
    the system does not tell them.
    """
    try:
        waited = int(_SCHEDULED.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
    return time.perf_counter() - time.process_time() - waited
