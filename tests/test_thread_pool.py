"""Threads that work together: where they run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from samplers.regression.threads.thread_pool import PoolThread, ThreadPool, thread_barrier
from samplers.regression.threads.worker_thread import WorkerThread

MANY = 1 << 20  # columns: worth a thread


def met_by(pool: ThreadPool, what: Callable[[], object]) -> list[object]:
    """What each of the threads says when all have begun with their shares."""
    barrier = threading.Barrier(pool.size)

    def work(begin: int, end: int) -> object:
        barrier.wait(60)
        return what()

    return pool.share(MANY, work)


def cores() -> set[int]:
    return os.sched_getaffinity(0)


def test_threads_have_cores_of_their_own_for_as_long_as_they_work():
    before = cores()
    pair = ThreadPool(2)
    for _ in range(3):
        first, second = met_by(pair, cores)
        assert first | second == before
        assert len(before) == 1 or not first & second
        assert cores() == before


def test_more_threads_than_cores_may_run_on_all_of_them():
    before = cores()
    assert met_by(ThreadPool(len(before) + 1), cores) == [before] * (len(before) + 1)


def test_the_cores_of_the_caller_are_as_before_also_if_the_work_fails():
    before = cores()

    def fail(begin: int, end: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ThreadPool(2).share(MANY, fail)
    assert cores() == before


def test_cores_that_are_taken_from_the_process_are_not_missed(monkeypatch):
    before = cores()
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda process: {4000, 4001})
        pair = ThreadPool(2)
    assert met_by(pair, cores) == [before, before]


def test_threads_end_with_their_team():
    pair = ThreadPool(2)
    caller, other = met_by(pair, threading.current_thread)
    assert caller is threading.current_thread() and other is not caller
    assert other.is_alive()
    del pair
    other.join(60)
    assert not other.is_alive()


def test_a_thread_works_alone_for_some_time_if_others_wait_longer_than_they_work():
    pair, sizes = ThreadPool(2), []

    def work_or_wait(member: PoolThread) -> None:
        if member.rank == 0:
            sizes.append(member.size)
            time.sleep(0.02)
        thread_barrier(member)

    for _ in range(20):
        pair.run(work_or_wait)
    assert sizes[0] == 2
    assert 1 in sizes
    assert 2 in sizes[sizes.index(1) :]  # which have tried it again


def test_what_a_thread_does_not_come_to_is_done_by_who_waits_for_it():
    free = threading.Event()
    worker_thread = WorkerThread(free.wait, looks=1)
    for _ in range(2):
        worker_thread.hand(threading.current_thread, ())
        assert worker_thread.outcome() == (threading.current_thread(), None)
    free.set()
    begun = threading.Barrier(2)
    worker_thread.hand(begun.wait, (60,))
    begun.wait(60)
    assert worker_thread.outcome()[1] is None


@pytest.mark.parametrize("failing", [[0], [1], [0, 2]])
def test_after_work_that_failed_results_are_those_of_what_comes_next(failing):
    pool = ThreadPool(3)

    def fail_in_some(begin: int, end: int) -> None:
        if begin // MANY in failing:
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            pool.share(3 * MANY, fail_in_some)
        assert pool.share(3 * MANY, lambda begin, end: (begin, end)) == [(r * MANY, (r + 1) * MANY) for r in range(3)]
