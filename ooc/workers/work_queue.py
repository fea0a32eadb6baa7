"""Work queue in shared memory: workers claim parts of a unit, and wait for parts, without the coordinator."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import psutil

from ooc.workers.shared_arrays import ArraySpec, SharedArrays

CLAIMED = "claimed"  # name of the shared array with the number of claimed parts of each unit
DONE = "done"  # name of the shared array that marks finished parts of overlapping stages
_PAUSE = 5e-5  # seconds between polls of other workers' parts
_GLANCE = 1.0  # seconds between checks that the coordinator is alive


def claims_spec(units: int, queues: int = 1) -> ArraySpec:
    """Return the spec of the array `CLAIMED`: one row for each queue, and one row to close the queues."""
    return ArraySpec((queues + 1, units), "int64")


def done_spec(stages: Sequence[Sequence[int]]) -> ArraySpec:
    """Return the spec of the array `DONE`, which has a flag for each part of each stage."""
    return ArraySpec((len(stages) or 1, 1 + max((part for parts in stages for part in parts), default=0)), "uint8")


class WorkQueue:
    """Claimed parts of each unit; every process has its own object over the same arrays.

    There is one queue for all workers, or one for each worker, with parts distributed round-robin.

    coordinator: process id of the coordinator.
    """

    def __init__(self, shared: SharedArrays, coordinator: int = 0) -> None:
        self._counts, self._refused = shared[CLAIMED][:-1], shared[CLAIMED][-1:, 0]
        self._done, self._coordinator = shared.get(DONE, np.zeros((1, 1), np.uint8)), coordinator or os.getpid()
        self._descriptor = shared.descriptor

    def clear(self) -> None:
        """Mark all parts as unclaimed and not done, before units are queued for workers."""
        self._counts[:] = 0
        self._done[:] = 0

    def refuse(self) -> None:
        """Close the queues: workers stop after their current part."""
        self._refused[:] = 1

    def taken(self) -> int:
        """Return the number of claimed parts; it grows while workers work."""
        return int(self._counts.sum())

    def take(self, unit: int, parts: Sequence[Any], worker: int = 0) -> Iterator[Any]:
        """Claim and yield parts of a unit in order, until the worker's queue is empty."""
        queues = len(self._counts)
        counts = self._counts[worker % queues]
        queue_parts = parts[worker % queues :: queues]
        while not self._refused[0] and (place := self._next(counts, unit)) < len(queue_parts):
            yield queue_parts[place]

    def finish(self, stage: int, part: int) -> None:
        """Mark a part as done. Processes that see the mark also see the part's writes, because of the lock."""
        with self._locked():
            self._done[stage, part] = 1

    def wait(self, stage: int, parts: Collection[int]) -> bool:
        """Wait until the given parts of a stage are done; returns False if the queues are closed."""
        glance = time.monotonic() + _GLANCE
        while not self._refused[0]:
            with self._locked():
                if all(self._done[stage, part] for part in parts):
                    return True
            if time.monotonic() > glance:
                if not _is_alive(self._coordinator):
                    return False
                glance = time.monotonic() + _GLANCE
            time.sleep(_PAUSE)
        return False

    def _next(self, counts: np.ndarray, unit: int) -> int:
        with self._locked() if len(self._counts) == 1 else nullcontext():
            place = int(counts[unit])
            counts[unit] = place + 1
        return place

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on the counters. The kernel releases the lock of a killed process."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


def _is_alive(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
