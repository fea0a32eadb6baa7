"""Threads that work together: where they run."""

from __future__ import annotations

import os

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
