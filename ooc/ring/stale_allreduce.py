"""Sums over all ranks with bounded staleness (a stale all-reduce).

After each macro-step, a rank contributes its own changes. With a staleness of s, it continues with the sums over all
ranks up to s macro-steps ago, plus all of its own changes; a thread computes the newer sums during the next
macro-steps. With a staleness of 0, the rank waits for the sums.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from ooc.ring.ranks import RankCollectives
from ooc.ring.ring import Ring

PENDING = "pending"  # array of a generation, int64: changes of this rank that were not summed yet


class StaleAllreduce:
    """Arrays that are summed over all ranks.

    arrays: int64 arrays; the caller adds to them, and `advance` adds the changes of other ranks. pending: changes of
        this rank in each macro-step that is not summed yet, oldest first.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], ranks: RankCollectives, staleness: int) -> None:
        self._arrays, self._ranks, self._staleness = arrays, ranks, staleness
        self._known = self._flat()
        self._pending: deque[tuple[np.ndarray, Future[np.ndarray]]] = deque()

    def _flat(self) -> np.ndarray:
        return np.concatenate([np.empty(0, np.int64), *(array.reshape(-1) for array in self._arrays.values())])

    def to_commit(self) -> dict[str, np.ndarray]:
        """Return the array that a generation stores in addition to the arrays themselves."""
        return {PENDING: self.pending.reshape(-1)}

    def restore(self, committed: Mapping[str, np.ndarray]) -> None:
        """Restore the pending changes from a generation; the arrays themselves must already be restored."""
        self._known = self._flat()
        pending = committed[PENDING].reshape(self._staleness, self._known.size)
        self._pending = deque((added, self._sum(added)) for added in pending)

    def _sum(self, added: np.ndarray) -> Future[np.ndarray]:
        def work(ring: Ring) -> np.ndarray:
            total = added.copy()
            ring.all_reduce(total)
            return total

        return self._ranks.ask(work)

    @property
    def pending(self) -> np.ndarray:
        """Return the pending changes, int64 (s, N), with zeros for macro-steps that have not happened."""
        found = np.zeros((self._staleness, self._known.size), np.int64)
        for place, (added, _) in enumerate(reversed(self._pending)):
            found[-1 - place] = added
        return found

    def advance(self) -> float:
        """End a macro-step; returns the sum of the absolute errors that staleness caused in the arrays."""
        added = self._flat() - self._known
        self._pending.append((added, self._sum(added)))
        off = 0.0
        if len(self._pending) > self._staleness:
            own, total = self._pending.popleft()
            others = total.result() - own
            off = float(np.abs(others).sum())
            self._add(others)
        self._known = self._flat()
        return off

    def settle(self) -> None:
        """Wait for all pending sums, and add them to the arrays."""
        while self._pending:
            own, total = self._pending.popleft()
            self._add(total.result() - own)
        self._known = self._flat()

    def _add(self, changes: np.ndarray) -> None:
        at = 0
        for array in self._arrays.values():
            array.reshape(-1)[:] += changes[at : at + array.size]
            at += array.size

    def exact(self) -> dict[str, np.ndarray]:
        """Return copies of the arrays that include all changes of all ranks. The arrays themselves are not changed."""
        whole, found, at = self._flat(), {}, 0
        for own, total in self._pending:
            whole += total.result() - own
        for name, array in self._arrays.items():
            found[name] = whole[at : at + array.size].reshape(array.shape)
            at += array.size
        return found
