"""Where slices of the model are on a ring, and in which order they come by: pure functions.

Between two trips every slice rests at one rank. On a trip it goes from there to the next rank, and so on, until all
have had it: it comes to rest one rank before the one at which it began. A rank takes one slice that rested with it,
then one of each rank before it, as they arrive; then its next. So in each of these rounds every rank has one slice on
its way, and there is one to work on while another comes and a third goes.

Nobody waits for ever where ranks have room for one slice of their own and two on their way. A rank begins a round when
it has had all slices of the one before: while one of them is on its way, not all ranks have begun the next, so fewer
slices are on their way than there is room for two each. So there is a rank with room, and what the one before it has
is either passed on to it, or worked on first.
"""

from __future__ import annotations

from typing import NamedTuple


class Stop(NamedTuple):
    """A slice at a rank on a trip. own: it rested there before. last: it comes to rest there."""

    slice_: int
    own: bool
    last: bool


def resting(slices: int, ranks: int, rank: int, trips: int) -> range:
    """The slices that rest at a rank after so many trips."""
    home = (rank + trips) % ranks
    return range(home * slices // ranks, (home + 1) * slices // ranks)


def itinerary(slices: int, ranks: int, rank: int, trips: int) -> list[Stop]:
    """All slices, in the order in which they come to a rank on the trip after `trips` others."""
    begins = [resting(slices, ranks, (rank - back) % ranks, trips) for back in range(ranks)]
    return [
        Stop(begins[back][turn], back == 0, back == ranks - 1)
        for turn in range(max(map(len, begins)))
        for back in range(ranks)
        if turn < len(begins[back])
    ]
