"""Parts that workers claim."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from blocks.workers import WorkerPool
from ooc.workers.shared_arrays import ArraySpec, SharedArrays
from ooc.workers.work_queue import CLAIMED, DONE, WorkQueue, claims_spec, done_spec

SPECS = {CLAIMED: claims_spec(2), "another": ArraySpec((3,), "float32")}
PARTS = range(20_000, 0, -1)


@pytest.fixture
def shared() -> Iterator[SharedArrays]:
    with closing(SharedArrays(SPECS)) as arrays:
        yield arrays


def claimed(shared: SharedArrays, unit: int) -> list[list[int]]:
    """What each of three workers could have of a unit that all of them are told of."""
    with WorkerPool("worker_targets:claiming", (SPECS, shared.descriptor), 3, inherit=(shared.descriptor,)) as team:
        return [answer for _, answer in team.map_unordered([(unit, PARTS)] * 3, ahead=1)]


def test_each_part_is_claimed_by_one_worker(shared):
    """Thousands of claims at once, by processes: none is made twice, none is left out, each takes them in order."""
    claims = WorkQueue(shared)
    for unit in (0, 1):
        found = claimed(shared, unit)
        assert sorted(part for mine in found for part in mine) == sorted(PARTS)
        assert all(mine == sorted(mine, reverse=True) for mine in found)
    assert claims.taken() == 2 * (len(PARTS) + 3)  # each worker asked once more
    assert claimed(shared, 1) == [[], [], []]
    claims.clear()
    assert list(claims.take(1, PARTS)) == list(PARTS)


def test_nothing_is_claimed_once_that_is_refused(shared):
    claims = WorkQueue(shared)
    mine = claims.take(0, PARTS)
    assert next(mine) == PARTS[0]
    claims.refuse()
    assert list(mine) == []
    assert claimed(shared, 0) == [[], [], []]


def test_with_queues_of_their_own_workers_have_what_was_dealt_to_them():
    with closing(SharedArrays({CLAIMED: claims_spec(2, queues=3)})) as shared:
        claims = WorkQueue(shared)
        found = [list(claims.take(1, PARTS, worker)) for worker in range(3)]
        assert found == [list(PARTS[worker::3]) for worker in range(3)]
        assert claims.taken() == len(PARTS) + 3
        assert next(claims.take(0, PARTS, 2)) == PARTS[2]
        claims.refuse()
        assert list(claims.take(0, PARTS, 2)) == []


def test_parts_are_waited_for_until_they_are_done_or_nobody_wants_them():
    specs = {CLAIMED: claims_spec(1), DONE: done_spec([range(3), range(2)])}
    with closing(SharedArrays(specs)) as arrays:
        claims = WorkQueue(arrays)
        claims.finish(0, 2)
        with ThreadPoolExecutor() as others:
            waits = others.submit(claims.wait, 0, (1, 2))
            assert claims.wait(0, (2,))
            assert not waits.done()
            claims.finish(0, 1)
            assert waits.result(60)
            claims.clear()
            waits = others.submit(claims.wait, 0, (1,))
            claims.refuse()
            assert not waits.result(60)


def test_nobody_waits_for_a_coordinator_that_has_gone():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
        with closing(SharedArrays({CLAIMED: claims_spec(1), DONE: done_spec([range(1)])})) as arrays:
            assert not WorkQueue(arrays, gone.pid).wait(0, (0,))
