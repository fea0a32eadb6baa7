"""Rotation schedule: where slices of the model are on a ring, and in which order they arrive (pure functions).

Between two trips every slice rests at one rank. On a trip it goes from rank to rank until all have had it; it ends one
rank before the rank at which it started. A rank takes one slice that rested with it, then one slice of each rank before
it as they arrive, then its next own slice. In each of these rounds every rank has one slice in flight: one is worked on
while another arrives and a third leaves.

No deadlock if every rank has room for one own slice and two in flight: a rank starts a round when it has had all slices
of the round before. While one of those is in flight, not all ranks have started the next round, so fewer slices are in
flight than there is room for. Hence some rank has room, and the slice before it can be passed on or worked on.
"""

from __future__ import annotations

from typing import NamedTuple


class Visit(NamedTuple):
    """A visit of a slice at a rank on a trip. own: it rested there before. last: it comes to rest there."""

    slice_: int
    own: bool
    last: bool


def resting(slices: int, ranks: int, rank: int, trips: int) -> range:
    """Return the slices that rest at a rank after `trips` trips."""
    home = (rank + trips) % ranks
    return range(home * slices // ranks, (home + 1) * slices // ranks)


def rotation_schedule(slices: int, ranks: int, rank: int, trips: int) -> list[Visit]:
    """Return the visits of all slices at a rank, in order of arrival, on the trip after `trips` others."""
    begins = [resting(slices, ranks, (rank - back) % ranks, trips) for back in range(ranks)]
    return [
        Visit(begins[back][turn], back == 0, back == ranks - 1)
        for turn in range(max(map(len, begins)))
        for back in range(ranks)
        if turn < len(begins[back])
    ]
