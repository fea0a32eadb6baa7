"""Threads that work together: each on a part of many columns, or all in one kernel with barriers.

Results do not depend on the number of threads: sums are made of chunks that do not depend on it, and so are loops over
numbers, since compiled loops have several versions, for vectors and for the remainder, which round differently where
sums may be reordered.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numba.core import types

from blocks.compiled import reordered_kernel
from ooc.workers.atomics import counters_spec, have_reached, raise_to
from samplers.regression.threads.worker_thread import WorkerThread, outcome_of

CHUNKS = 32  # maximum number of chunks of a sum
_LEAST = 8  # minimum number of elements in a chunk: a cache line
# polls for the other threads, some tens of microseconds, before the processor is yielded to other processes
_LOOKS = 1_000
_LOOKS_FOR_WORK = 50_000  # polls for work, a millisecond: waking a thread takes a tenth of that
# fraction of a run that all threads but one spend waiting: then one thread is as fast, as other processes use the
# processors
_CROWDED = 0.5
_MOST_RESTS = 1 << 10
_FEW = 1 << 15  # number of columns: fewer are not worth a thread
_VECTORS = 1 << 10  # shares begin at multiples of this, so that all shares but the last consist of whole vectors

Item = TypeVar("Item")
Result = TypeVar("Result")
_compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
_give_way: Any = types.ExternalFunction("sched_yield", types.int32()) if _compiled else os.sched_yield
_read_clock: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
_MONOTONIC = time.CLOCK_MONOTONIC


class PoolThread(NamedTuple):
    """One of the threads, as seen by kernels."""

    rank: int
    size: int  # number of threads in the pool
    # int64 (size, .), how often each thread has called `thread_barrier`, and how long it has waited there, in ns
    meetings: np.ndarray


def _cores_of_their_own(size: int) -> list[set[int]]:
    """Return cores for `size` threads, distinct if there are enough.

    Threads that wait for each other for microseconds all look busy, so the kernel would leave two of them on one core
    for a long time.
    """
    every = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [set(every[rank::size]) if len(every) >= size else set(every) for rank in range(size)]


def _stay_on(cores: set[int]) -> set[int]:
    """Pin the calling thread to cores, if allowed; returns its previous cores."""
    if not cores:
        return cores
    before = os.sched_getaffinity(0)
    with suppress(OSError):  # the cores may have been taken from this process since
        os.sched_setaffinity(0, cores)
    return before


class ThreadPool:
    """`size` threads, including the caller's, for one caller at a time. Attributes: `members`, and `size`, their
    number.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._meetings = np.zeros(counters_spec(size).shape, np.int64)
        self.members = [PoolThread(rank, size, self._meetings) for rank in range(size)]
        # runs in the caller's thread alone: how many remain, and how many will follow the next long wait
        self._rests, self._next_rests = 0, 1
        self._cores = _cores_of_their_own(size)
        looks = _LOOKS_FOR_WORK if size <= len(set().union(*self._cores)) else 1
        self._worker_threads = [WorkerThread(partial(_stay_on, cores), looks) for cores in self._cores[1:]]

    def run(self, kernel: Callable[..., object], *arguments: Any) -> None:
        """Run a kernel, whose first argument is the `PoolThread`, on all threads; or, for some time after long waits,
        in the caller's thread alone. The result of the kernel must not depend on the number of threads.
        """
        if self.size == 1:
            kernel(*self.members, *arguments)
            return
        if self._rests:
            self._rests -= 1
            kernel(*ALONE.members, *arguments)
            return
        self._meetings[:, 1], began = 0, time.perf_counter_ns()
        self._each([(member, *arguments) for member in self.members], kernel)
        most = _CROWDED * (self.size - 1) * (time.perf_counter_ns() - began)
        crowded = self._meetings[:, 1].sum() > most
        self._next_rests = min(2 * self._next_rests, _MOST_RESTS) if crowded else 1
        self._rests = self._next_rests if crowded else 0

    def each(self, items: Iterable[Item], work: Callable[[Item], object]) -> None:
        """Call work(item) for all items, in the order in which threads become free.

        The caller's thread starts with the first item and the next thread with the last, so that each thread writes to
        nearby memory.
        """
        left = deque(items)

        def take(rank: int) -> None:
            while True:
                try:
                    item = left.pop() if rank % 2 else left.popleft()
                except IndexError:
                    return
                work(item)

        self._each([(rank,) for rank in range(self.size)], take)

    def share(self, count: int, work: Callable[[int, int], Result]) -> list[Result]:
        """Call work(begin, end) in each thread for a part of `count` columns; returns the results in order."""
        size = self.size if count > _FEW else 1
        bounds = [*(count * rank // size // _VECTORS * _VECTORS for rank in range(size)), count]
        return self._each(list(pairwise(bounds)), work)

    def _each(self, arguments: Sequence[tuple[Any, ...]], work: Callable[..., Result]) -> list[Result]:
        if len(arguments) == 1:
            return [work(*arguments[0])]
        before, used = _stay_on(self._cores[0]), self._worker_threads[: len(arguments) - 1]
        for worker_thread, some in zip(used, arguments[1:], strict=True):
            worker_thread.hand(work, some)
        outcomes = [outcome_of(work, arguments[0]), *(worker_thread.outcome() for worker_thread in used)]
        _stay_on(before)
        for _, error in outcomes:
            if error:
                raise error
        return [result for result, _ in outcomes]


ALONE = ThreadPool(1)


def since_start(told):
    """Return the nanoseconds since the machine started.

    told: int64 (2,), working memory that receives the seconds and nanoseconds of the clock.
    """
    _read_clock(_MONOTONIC, told.ctypes.data)
    return 1_000_000_000 * told[0] + told[1]


nanoseconds: Any = reordered_kernel(since_start) if _compiled else lambda _: time.monotonic_ns()


@reordered_kernel
def thread_barrier(member):
    """Wait until all members have reached this call; each then sees what the others have written."""
    if member.size > 1:
        often = member.meetings[member.rank, 0] + 1
        raise_to(member.meetings, member.rank, often)
        if not have_reached(member.meetings, 0, member.size, often, _LOOKS):
            own = member.meetings[member.rank]
            began = nanoseconds(own[2:4])
            while not have_reached(member.meetings, 0, member.size, often, 1):
                _give_way()
            own[1] += nanoseconds(own[2:4]) - began


@reordered_kernel
def own_chunks(member, count):
    """Return the size of a chunk of `count` elements, and the member's range of chunks."""
    each = -(-count // (CHUNKS * _LEAST)) * _LEAST
    chunks = -(-count // max(each, 1))
    return each, chunks * member.rank // member.size, chunks * (member.rank + 1) // member.size


@reordered_kernel
def own_numbers(member, count):
    """Return the member's range of `count` elements."""
    each, first, last = own_chunks(member, count)
    return min(each * first, count), min(each * last, count)


@reordered_kernel
def sum_of_chunks(sums, count):
    """Return the sum of `count` elements from the sums of their chunks."""
    each, total = -(-count // (CHUNKS * _LEAST)) * _LEAST, 0.0
    for c in range(-(-count // max(each, 1))):
        total += sums[c]
    return total


@reordered_kernel
def max_of_chunks(found, count):
    """Return the maximum of nonnegative values, one for each chunk of `count` elements."""
    each, most = -(-count // (CHUNKS * _LEAST)) * _LEAST, 0.0
    for c in range(-(-count // max(each, 1))):
        most = max(most, found[c])
    return most


@reordered_kernel
def barrier_sum(member, sums, count):
    """Return the sum after all members have written the sums of their chunks, which must not be overwritten before the
    next `thread_barrier`.
    """
    thread_barrier(member)
    return sum_of_chunks(sums, count)
