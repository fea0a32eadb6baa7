"""What tests of processes that end share."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
from nursery import started

PATIENCE = 300.0  # seconds until something that must happen is taken not to


def gone(pids: list[int]) -> bool:
    """Whether all of them have ended, be it that nobody has asked how."""

    def ended(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return all(map(ended, pids))


def children() -> list[psutil.Process]:
    """What runs that this process has started, or had started; the nursery itself is none of that."""
    found = psutil.Process().children(recursive=True)
    itself = started().process.pid if started.cache_info().currsize else None
    return [child for child in found if child.pid != itself and not gone([child.pid])]


def until(happens: Callable[[], bool]) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)
