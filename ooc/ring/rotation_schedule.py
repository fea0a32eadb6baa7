"""Rotation schedule: where on a ring the slices of a model are, and in which order they arrive (pure functions).

Between two trips, every slice rests at one rank, which stores it. On a trip, it visits all ranks in turn, so it ends at
the rank before the one at which it started. A rank takes one of its own slices, which rested there, then one slice of
each rank before it as these arrive, then its next own slice. In each of these rounds, every rank has one slice in
flight: one is updated while another arrives and a third leaves.

There is no deadlock if every rank has room for one own slice and two slices in flight. A rank starts a round when it
has updated all slices of the previous round. While one of those is in flight, not all ranks have started the next
round, so fewer slices are in flight than there is room for. Hence some rank has room, and the slice that it waits for
can be sent or updated.
"""

from __future__ import annotations

from typing import NamedTuple


class SliceVisit(NamedTuple):
    """A visit of a slice to a rank.

    own: whether the slice starts its trip there.
    last: whether its trip ends there.
    """

    slice_: int
    own: bool
    last: bool


def resting_slices(slices: int, ranks: int, rank: int, trips: int) -> range:
    """Return the slices stored on a rank after `trips` trips."""
    home = (rank + trips) % ranks
    return range(home * slices // ranks, (home + 1) * slices // ranks)


def rotation_schedule(slices: int, ranks: int, rank: int, trips: int) -> list[SliceVisit]:
    """Return the visits of all slices to a rank, in order of arrival, on the trip that follows `trips` earlier ones."""
    begins = [resting_slices(slices, ranks, (rank - back) % ranks, trips) for back in range(ranks)]
    return [
        SliceVisit(begins[back][turn], back == 0, back == ranks - 1)
        for turn in range(max(map(len, begins)))
        for back in range(ranks)
        if turn < len(begins[back])
    ]
