"""Parts of a unit that workers claim, whoever is free the next, without asking the coordinator."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np

from ooc.shared import ArraySpec, SharedArrays

CLAIMED = "claimed"  # the shared array of how many parts of each unit are, see `claims_spec`


def claims_spec(units: int, queues: int = 1) -> ArraySpec:
    """The array `CLAIMED`: a row for each queue, and one for whether anything is to be had at all."""
    return ArraySpec((queues + 1, units), "int64")


class Claims:
    """Counts the parts of each unit that are claimed; every process has its own object over the same arrays.

    There is one queue of them for all workers, or one for each, dealt in turn.
    """

    def __init__(self, shared: SharedArrays) -> None:
        self._counts, self._refused = shared[CLAIMED][:-1], shared[CLAIMED][-1:, 0]
        self._descriptor = shared.descriptor

    def clear(self) -> None:
        """No part of any unit is claimed, before workers are told of them."""
        self._counts[:] = 0

    def refuse(self) -> None:
        """Nothing more is to be had: workers end with the part they are at."""
        self._refused[:] = 1

    def taken(self) -> int:
        """How many there are in all; it grows while workers get on."""
        return int(self._counts.sum())

    def take(self, unit: int, parts: Sequence[int], worker: int = 0) -> Iterator[int]:
        """Claim one of a unit's parts after the other, in their order, until a worker's queue is empty."""
        queues = len(self._counts)
        counts = self._counts[worker % queues]
        mine = parts[worker % queues :: queues]
        while not self._refused[0] and (place := self._next(counts, unit)) < len(mine):
            yield mine[place]

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
