"""Threads that work together: where they run."""

from __future__ import annotations

import os
import threading

import pytest

from samplers.regression.team import Team

MANY = 1 << 20  # columns: worth a thread


def test_threads_have_cores_of_their_own_for_as_long_as_they_work():
    before = os.sched_getaffinity(0)
    pair = Team(2)
    for _ in range(3):
        first, second = pair.share(MANY, lambda begin, end: os.sched_getaffinity(0))
        assert first | second == before
        assert len(before) == 1 or not first & second
        assert os.sched_getaffinity(0) == before


def test_more_threads_than_cores_may_run_on_all_of_them():
    before = os.sched_getaffinity(0)
    found = Team(len(before) + 1).share(MANY, lambda begin, end: os.sched_getaffinity(0))
    assert found == [before] * (len(before) + 1)


def test_the_cores_of_the_caller_are_as_before_also_if_the_work_fails():
    before = os.sched_getaffinity(0)

    def fail(begin: int, end: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Team(2).share(MANY, fail)
    assert os.sched_getaffinity(0) == before


def test_cores_that_are_taken_from_the_process_are_not_missed(monkeypatch):
    before = os.sched_getaffinity(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda process: {4000, 4001})
        pair = Team(2)
    assert pair.share(MANY, lambda begin, end: os.sched_getaffinity(0)) == [before, before]


def test_threads_end_with_their_team():
    pair = Team(2)
    caller, other = pair.share(MANY, lambda begin, end: threading.current_thread())
    assert caller is threading.current_thread() and other is not caller
    assert other.is_alive()
    del pair
    other.join(60)
    assert not other.is_alive()


@pytest.mark.parametrize("failing", [[0], [1], [0, 2]])
def test_after_work_that_failed_results_are_those_of_what_comes_next(failing):
    team = Team(3)

    def fail_in_some(begin: int, end: int) -> None:
        if begin // MANY in failing:
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            team.share(3 * MANY, fail_in_some)
        assert team.share(3 * MANY, lambda begin, end: (begin, end)) == [(r * MANY, (r + 1) * MANY) for r in range(3)]
