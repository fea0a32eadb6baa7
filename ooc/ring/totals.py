"""Arrays that hold what happened everywhere, although sums take a while to come round.

After each macro-step a rank gives what it added to them. With a staleness of s it goes on with exactly what all ranks
had added up to s macro-steps before, and all that it added itself: sums are made, in a thread, while the next
macro-steps go on. With 0 it waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from ooc.ring.ranks import Ranks
from ooc.ring.ring import Ring

PENDING = "pending"  # in a generation: int64, what this rank added that had not come round yet


class Totals:
    """arrays: int64, which the caller adds to, and `advance` adds the others' changes to.

    What has not come round yet is `pending`: of each macro-step, oldest first, what this rank added to each array.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], ranks: Ranks, staleness: int) -> None:
        self._arrays, self._ranks, self._staleness = arrays, ranks, staleness
        self._known = self._flat()
        self._pending: deque[tuple[np.ndarray, Future[np.ndarray]]] = deque()

    def _flat(self) -> np.ndarray:
        return np.concatenate([np.empty(0, np.int64), *(array.reshape(-1) for array in self._arrays.values())])

    def to_commit(self) -> dict[str, np.ndarray]:
        """What a generation has of them beside the arrays themselves."""
        return {PENDING: self.pending.reshape(-1)}

    def restore(self, committed: Mapping[str, np.ndarray]) -> None:
        """The arrays were set to what a generation has; take from it what had not come round then."""
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
        """int64 (s, N), see above; zeros for macro-steps that have not been."""
        found = np.zeros((self._staleness, self._known.size), np.int64)
        for place, (added, _) in enumerate(reversed(self._pending)):
            found[-1 - place] = added
        return found

    def advance(self) -> float:
        """A macro-step is done; returns the sum of what the arrays then were off by."""
        added = self._flat() - self._known
        self._pending.append((added, self._sum(added)))
        off = 0.0
        if len(self._pending) > self._staleness:
            mine, total = self._pending.popleft()
            others = total.result() - mine
            off = float(np.abs(others).sum())
            self._add(others)
        self._known = self._flat()
        return off

    def settle(self) -> None:
        """Wait for all sums, and add them."""
        while self._pending:
            mine, total = self._pending.popleft()
            self._add(total.result() - mine)
        self._known = self._flat()

    def _add(self, changes: np.ndarray) -> None:
        at = 0
        for array in self._arrays.values():
            array.reshape(-1)[:] += changes[at : at + array.size]
            at += array.size

    def exact(self) -> dict[str, np.ndarray]:
        """The arrays with all that has happened everywhere; they themselves stay as they are."""
        whole, found, at = self._flat(), {}, 0
        for mine, total in self._pending:
            whole += total.result() - mine
        for name, array in self._arrays.items():
            found[name] = whole[at : at + array.size].reshape(array.shape)
            at += array.size
        return found
