"""Parts of a unit that workers claim, whoever is free the next, and wait for, without asking the coordinator."""

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

CLAIMED = "claimed"  # the shared array of how many parts of each unit are, see `claims_spec`
DONE = "done"  # the one of which parts of stages that overlap are, see `done_spec`
_PAUSE = 5e-5  # seconds between two looks at what others do
_GLANCE = 1.0  # at whether there is still somebody to do it for


def claims_spec(units: int, queues: int = 1) -> ArraySpec:
    """The array `CLAIMED`: a row for each queue, and one for whether anything is to be had at all."""
    return ArraySpec((queues + 1, units), "int64")


def done_spec(stages: Sequence[Sequence[int]]) -> ArraySpec:
    """The array `DONE`: for each stage and each part whether it is."""
    return ArraySpec((len(stages) or 1, 1 + max((part for parts in stages for part in parts), default=0)), "uint8")


class Claims:
    """Counts the parts of each unit that are claimed; every process has its own object over the same arrays.

    There is one queue of them for all workers, or one for each, dealt in turn. coordinator: the process that they work
    for.
    """

    def __init__(self, shared: SharedArrays, coordinator: int = 0) -> None:
        self._counts, self._refused = shared[CLAIMED][:-1], shared[CLAIMED][-1:, 0]
        self._done, self._coordinator = shared.get(DONE, np.zeros((1, 1), np.uint8)), coordinator or os.getpid()
        self._descriptor = shared.descriptor

    def clear(self) -> None:
        """No part of any unit is claimed, and none is done, before workers are told of them."""
        self._counts[:] = 0
        self._done[:] = 0

    def refuse(self) -> None:
        """Nothing more is to be had: workers end with the part they are at."""
        self._refused[:] = 1

    def taken(self) -> int:
        """How many there are in all; it grows while workers get on."""
        return int(self._counts.sum())

    def take(self, unit: int, parts: Sequence[Any], worker: int = 0) -> Iterator[Any]:
        """Claim one of a unit's parts after the other, in their order, until a worker's queue is empty."""
        queues = len(self._counts)
        counts = self._counts[worker % queues]
        mine = parts[worker % queues :: queues]
        while not self._refused[0] and (place := self._next(counts, unit)) < len(mine):
            yield mine[place]

    def finish(self, stage: int, part: int) -> None:
        """Let others know that a part is done. What it wrote is seen by whoever knows: a lock lies between."""
        with self._locked():
            self._done[stage, part] = 1

    def wait(self, stage: int, parts: Collection[int]) -> bool:
        """Wait until some parts of a stage are done; False if nothing more is to be had."""
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
        """No other process counts meanwhile; the kernel unlocks for one that dies."""
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
