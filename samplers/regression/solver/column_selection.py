"""Select columns by their gains."""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy
from samplers.regression.threads.thread_pool import ALONE, ThreadPool

_SAMPLE = 1 << 12  # number of gains in a sample that represents all of them
_MORE = 1.5  # the limit estimated from a sample should be exceeded by this factor times the required number,
_SPARE = 16  # plus this number of gains of the sample


def largest_gains(gains: np.ndarray, chosen: np.ndarray, size: int, pool: ThreadPool = ALONE) -> np.ndarray:
    """Return the `size` chosen columns, int64 (m,), with the largest positive gains, in original order.

    gains: float32 (m,), at least 0.
    """
    limit = _likely_limit(gains, size)
    places = indices_above(limit, gains, pool)
    if places.size < size and limit > 0:
        places = indices_above(0.0, gains, pool)
    if 0 < size < places.size:
        some = gains[places]
        least = np.partition(some, -size)[-size]
        kept = some > least
        kept[np.flatnonzero(some == least)[: size - np.count_nonzero(kept)]] = True
        places = places[kept]
    return chosen[places[:size]]


def sorted_union(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the union of two ascending arrays of indices, int64."""
    both = np.empty(one.size + other.size, np.int64)
    return both[: merge(one, other, both)]


def _likely_limit(gains: np.ndarray, size: int) -> float:
    """Return a limit that slightly more than `size` gains probably exceed; 0 if `size` is small, or most of the
    gains.
    """
    if gains.size <= _SAMPLE:
        return 0.0
    sample = gains[:: gains.size // _SAMPLE]
    above = int(_MORE * size * sample.size / gains.size) + _SPARE
    return float(np.partition(sample, -above)[-above]) if above < sample.size else 0.0


def indices_above(limit: float, gains: np.ndarray, pool: ThreadPool) -> np.ndarray:
    """Return the indices of gains above the limit, int64, ascending."""

    def work(begin: int, end: int) -> np.ndarray:
        some = gains[begin:end]
        found = np.empty(count_above(limit, some) + 1, np.int64)  # not allocated larger: fresh memory is slow to obtain
        choose_above(limit, some, found, begin)
        return found[:-1]

    return np.concatenate(pool.share(gains.size, work))


@reordered_kernel
def merge(one, other, both):
    """Write the union of two ascending arrays to `both`; returns its size."""
    i, k, count = 0, 0, 0
    while i < one.size and k < other.size:  # without a branch that the processor could mispredict
        a, b = one[i], other[k]
        both[count] = min(a, b)
        i, k, count = i + (a <= b), k + (b <= a), count + 1
    copy(one[i:], both[count : count + one.size - i])
    count += one.size - i
    copy(other[k:], both[count : count + other.size - k])
    return count + other.size - k


@reordered_kernel
def count_above(limit, gains):
    count = 0
    for i in range(gains.size):
        count += gains[i] > limit
    return count


@reordered_kernel
def choose_above(limit, gains, found, first):
    """Write the indices of m gains, float32, above the limit to `found`, int64 (m+1,).

    first: index of the first gain.
    """
    count = 0
    for i in range(gains.size):  # branch-free: all indices are written, and most are overwritten
        found[count] = first + i
        count += gains[i] > limit
