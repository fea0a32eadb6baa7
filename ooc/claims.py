"""Parts of a unit that workers claim, whoever is free the next, without asking the coordinator."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ooc.shared import SharedArrays

CLAIMED = "claimed"  # int64 (units,), the shared array of how many parts of each unit are
_ALL = 1 << 62


class Claims:
    """Counts the parts of each unit that are claimed; every process has its own object over the same arrays."""

    def __init__(self, shared: SharedArrays) -> None:
        self._counts, self._descriptor = shared[CLAIMED], shared.descriptor

    def clear(self) -> None:
        """No part of any unit is claimed, before workers are told of them."""
        self._counts[:] = 0

    def refuse(self) -> None:
        """Nothing more is to be had: workers end with the part they are at."""
        with self._locked():
            self._counts[:] = _ALL

    def taken(self) -> int:
        """How many there are in all; it grows while workers get on."""
        return int(self._counts.sum())

    def take(self, unit: int, parts: Sequence[int]) -> Iterator[int]:
        """Claim one of a unit's parts after the other, in their order, until they all are."""
        while (place := self._next(unit)) < len(parts):
            yield parts[place]

    def _next(self, unit: int) -> int:
        with self._locked():
            place = int(self._counts[unit])
            self._counts[unit] = place + 1
        return place

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other process counts meanwhile; the kernel unlocks for one that dies."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
