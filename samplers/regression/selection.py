"""The largest of many numbers."""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.team import ALONE, Team, closed_up

_BUCKETS = 1 << 15


def largest(gains: np.ndarray, chosen: np.ndarray, size: int, team: Team = ALONE) -> np.ndarray:
    """Those of the chosen columns, int64 (m,), whose gains are largest, so many, in their order, but none whose gain is
    0. gains: float32 (m,), not negative."""
    order = gains.view(np.int32)  # floats that are not negative are in order as their bits
    found = np.empty_like(chosen)

    def count(begin: int, end: int) -> tuple[int, np.ndarray]:
        return begin, count_buckets(order[begin:end], np.zeros(_BUCKETS, np.int64))

    counts = dict(team.share(chosen.size, count))
    above = np.cumsum(np.sum(list(counts.values()), axis=0)[::-1])[::-1]  # in each bucket and those above it
    bucket = max(int(np.count_nonzero(above > size)) - 1, 0)  # the last that not all of may come
    left = size - int(above[bucket + 1]) if bucket + 1 < _BUCKETS else size
    of_it = dict(zip(counts, np.cumsum([0, *(some[bucket] for some in counts.values())]), strict=False))

    def choose(begin: int, end: int) -> tuple[int, int]:
        some = [array[begin:end] for array in (order, chosen, found)]
        return begin, choose_above(bucket, left - of_it[begin], *some)

    return closed_up(team.share(chosen.size, choose), found)[0]


@reordered_kernel
def count_buckets(order, counts):
    """How many of some numbers, int32 (m,), that are above 0 begin with the same 16 bits. counts: int64, zeros."""
    for i in range(order.size):
        counts[order[i] >> 16] += order[i] > 0
    return counts


@reordered_kernel
def choose_above(bucket, left, order, chosen, found):
    """Write to `found` the columns of the buckets above that one, and so many of it; returns how many there are."""
    count = 0
    for i in range(order.size):
        of = order[i] >> 16
        if order[i] > 0 and (of > bucket or (of == bucket and left > 0)):
            left -= of == bucket
            found[count] = chosen[i]
            count += 1
    return count
