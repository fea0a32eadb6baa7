"""Collective operations for the engine of a rank; a single machine is a ring of one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ooc.ring.message_relay import MessageRelay, collect_messages, gather_values, pack_arrays, unpack_arrays
from ooc.ring.ring import Ring, error_reason
from ooc.workers.madvise import UNWRITTEN, write_back
from ooc.workers.stopwatch import Stopwatch

Arrays = tuple[np.ndarray, ...]


class RankCollectives:
    """Collective operations of one rank of a ring.

    One thread makes all collective calls of the rank, in the order in which they are requested. The stopwatch counts
    time spent waiting for them as "network".
    """

    def __init__(self, ring: Ring, watch: Stopwatch) -> None:
        self.ring, self._watch = ring, watch
        self._thread = ThreadPoolExecutor(1, "collective")

    @property
    def is_alone(self) -> bool:
        return self.ring.ranks == 1

    @property
    def is_first(self) -> bool:
        return self.ring.rank == 0

    def ask(self, work: Callable[[Ring], Any]) -> Future[Any]:
        """Request a collective call; all ranks must request the same calls in the same order."""
        return self._thread.submit(work, self.ring)

    def _together(self, work: Callable[[Ring], Any]) -> Any:
        with self._watch.rather("network"):
            return self.ask(work).result()

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all ranks, in rank order."""
        return self._together(lambda ring: gather_values(ring, value))

    def add_up(self, array: np.ndarray) -> None:
        """Replace an array by its sum over all ranks."""
        self._together(lambda ring: ring.all_reduce(array))

    def spread(self, array: np.ndarray) -> None:
        """Replace an array by rank 0's array, bit for bit, in pieces.

        array: array of 8-byte numbers, or of an even number of 4-byte numbers.
        """
        whole = array.reshape(-1).view(np.int64)
        for first in range(0, 0 if self.is_alone else whole.size, UNWRITTEN // 8):
            piece = whole[first : first + UNWRITTEN // 8]
            if not self.is_first:
                piece[:] = 0
            self.add_up(piece)
            write_back(piece)

    def summed(self, values: dict[str, float]) -> dict[str, float]:
        """Return the sum of each value over all ranks, whose dictionaries must have the same keys."""
        if self.is_alone:
            return values
        sums = np.array(list(values.values()), np.float64)
        self.add_up(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def exchange(self, arrays: Sequence[np.ndarray]) -> list[Arrays]:
        """Return the one-dimensional arrays of each rank, in rank order, on all ranks."""
        with self._watch.rather("network"):
            return [unpack_arrays(each) for each in MessageRelay(self.ring).exchange(pack_arrays(arrays))]

    def collect(self, own_arrays: Iterator[Arrays], first: int) -> Iterator[Arrays]:
        """Yield the arrays of all ranks on rank 0, starting with rank `first`; yields nothing on other ranks.

        All ranks must iterate to the end.
        """
        if self.is_alone:
            return own_arrays
        order = [(first + turn) % self.ring.ranks for turn in range(self.ring.ranks)]
        return map(unpack_arrays, collect_messages(self.ring, map(pack_arrays, own_arrays), order))

    def fail(self, error: BaseException) -> None:
        """Inform the other ranks of a failure, so that they do not wait for messages that will never arrive."""
        if not self.is_alone:
            self.ring.fail(error_reason(error))

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
