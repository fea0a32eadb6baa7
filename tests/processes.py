"""Helpers for tests of how processes end."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
from fork_server import started

PATIENCE = 300.0  # seconds until something that must happen is taken not to


def gone(pids: list[int]) -> bool:
    """Return whether all processes have ended, including unreaped ones."""

    def ended(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return all(map(ended, pids))


def children() -> list[psutil.Process]:
    """Return the running processes that this process started, but for the nursery and servers of `multiprocessing`.

    From Python 3.14 on other libraries leave such a server running.
    """
    found = psutil.Process().children(recursive=True)
    itself = started().process.pid if started.cache_info().currsize else None
    running = [child for child in found if child.pid != itself and not gone([child.pid])]
    return [child for child in running if "multiprocessing" not in " ".join(child.cmdline())]


def until(happens: Callable[[], bool]) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)
