"""Run rounds of the dynamic engine on a ring of machines.

Each machine holds all columns, and updates some bands of rows. Every machine schedules and aggregates all rounds, with
the same result. Aggregation needs the sums that `update` computes from the rows of the other machines: a thread of the
coordinator exchanges these sums, wave by wave, while the workers compute other rounds. Coefficients are bitwise
identical to those on one machine. Row arrays are exchanged after the last round of a run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ooc.dynamic.round_loop import COUNTERS, COUNTS, SUMS, RoundLoopShape, RoundsStopped, is_stopped, set_stop_flag
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.round_steps import LOOKS, wave_places
from ooc.ring.array_exchange import exchange_parts
from ooc.ring.ring import Ring
from ooc.workers.atomics import have_reached, raise_to

_NAP = 50e-6  # seconds


class MachineExchange:
    """Exchanges sums and row arrays with the other machines.

    bounds: int64 (B+1,), first row of each band.
    """

    def __init__(
        self,
        ring: Ring,
        pipeline: RoundPipeline,
        shape: RoundLoopShape,
        bounds: np.ndarray,
        shared: Mapping[str, np.ndarray],
    ) -> None:
        self.ring, self._pipeline, self._shape, self._shared = ring, pipeline, shape, shared
        self._bands = shape.bands_here(bounds.size - 1)
        self._rows = slice(*bounds[list(self._bands)].tolist())
        self._thread = ThreadPoolExecutor(1, "rounds")

    def begin(self, first: int, last: int) -> Future[None]:
        """Exchange the sums of rounds `first` to `last` (exclusive) in a thread, while the workers run the rounds."""
        return self._thread.submit(self._exchange, first, last)

    def _exchange(self, first: int, last: int) -> None:
        try:
            for number in range(first, last):
                for wave in range(self._pipeline.waves):
                    self._exchange_wave(number, wave)
        except BaseException:
            set_stop_flag(self._shared[COUNTERS])  # otherwise the workers would wait forever
            raise

    def _exchange_wave(self, number: int, wave: int) -> None:
        mark = number * self._pipeline.waves + wave + 1
        workers = 2 * self._pipeline.schedulers
        others = workers + self._shape.workers
        self._wait(workers, others, mark)
        slot, first, last = wave_places(number, wave, self._pipeline.slots, self._pipeline.waves, self._shared[COUNTS])
        if last > first:
            exchange_parts(self.ring, self._shared[SUMS][slot, first:last], (slice(None), slice(*self._bands)))
        raise_to(self._shared[COUNTERS], others, mark)

    def _wait(self, first: int, last: int, mark: int) -> None:
        counters = self._shared[COUNTERS]
        while not have_reached(counters, first, last, mark, LOOKS):
            if is_stopped(counters):
                raise RoundsStopped
            time.sleep(_NAP)

    def share_rows(self, array: np.ndarray) -> None:
        """Fill a row array with the rows that each machine has updated."""
        exchange_parts(self.ring, array, self._rows)

    def share_of(self, count: int) -> slice:
        """Return the slice of `count` items that belongs to this machine."""
        return slice(count * self.ring.rank // self.ring.ranks, count * (self.ring.rank + 1) // self.ring.ranks)

    def close(self) -> None:
        """Stop the thread without waiting for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)
