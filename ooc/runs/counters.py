"""Counters of the work of a run, on one machine or on all machines of a ring."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple


class WorkCounters(NamedTuple):
    """Work done so far by all machines.

    samples: number of samples.
    elapsed_s: time of the slowest machine.
    seconds: time of the last iteration by purpose, mean over machines.
    sums: sums over samples in the last iteration.
    memory_bytes: memory of each machine.
    """

    samples: int
    samples_processed: int
    elapsed_s: float
    seconds: dict[str, float]
    sums: dict[str, float]
    memory_bytes: list[int]
    bytes_read: int
    bytes_written: int
    bytes_sent: int

    @classmethod
    def of_all(cls, machines: Sequence[WorkCounters]) -> WorkCounters:
        """Combine the counters of several machines."""
        return cls(
            samples=sum(each.samples for each in machines),
            samples_processed=sum(each.samples_processed for each in machines),
            elapsed_s=max(each.elapsed_s for each in machines),
            seconds=_added([each.seconds for each in machines], 1 / len(machines)),
            sums=_added([each.sums for each in machines], 1.0),
            memory_bytes=[size for each in machines for size in each.memory_bytes],
            bytes_read=sum(each.bytes_read for each in machines),
            bytes_written=sum(each.bytes_written for each in machines),
            bytes_sent=sum(each.bytes_sent for each in machines),
        )


def _added(parts: Sequence[dict[str, float]], share: float) -> dict[str, float]:
    """Return the sum of each value over all dictionaries, times `share`."""
    return {name: share * sum(part.get(name, 0.0) for part in parts) for name in dict.fromkeys(chain(*parts))}
