"""Arrays that a process and its workers see alike."""

from __future__ import annotations

import os
import resource

import numpy as np
import pytest

from blocks import WorkFailed
from blocks.workers import WorkerPool
from ooc.workers.shared_arrays import ArraySpec, SharedArrays

SPECS = {"a": ArraySpec((3, 5), "int64"), "none": ArraySpec((0, 4), "uint16"), "b": ArraySpec((10_000,), "float32")}


def test_arrays_have_their_shape_and_are_zero_and_apart():
    shared = SharedArrays(SPECS)
    for name, (shape, dtype, _) in SPECS.items():
        assert shared[name].shape == shape
        assert shared[name].dtype == dtype
        assert not shared[name].any()
    shared["a"][:] = -1
    assert not shared["b"].any()
    assert shared["a"].ctypes.data % 4096 == shared["b"].ctypes.data % 4096 == 0
    shared.close()


def test_workers_see_what_the_caller_writes_and_the_other_way_round():
    shared = SharedArrays(SPECS)
    with WorkerPool("worker_targets:adding", (SPECS, shared.descriptor), 2, inherit=(shared.descriptor,)) as team:
        shared["b"][:] = 0.5
        answers = [answer for _, answer in team.map_unordered([1, 1], ahead=1)]
        assert answers == [5000.0, 5000.0]
        for worker in range(2):
            team.send(worker, 10)
            list(team.receive())  # one after the other: both add to the same elements
        assert (shared["a"] >= 21).all()
    shared.close()


def test_memory_that_cannot_be_had_is_an_error_at_once():
    """By a limit on the size of files, which shared memory obeys; nothing stays allocated."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(WorkFailed, match="could not allocate 8 MB of shared memory:"):
            SharedArrays({"a": ArraySpec((1_000_000,), "float64")})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_no_arrays_are_fine():
    shared = SharedArrays({})
    assert dict(shared) == {}
    shared.close()


def test_attaching_does_not_copy():
    first = SharedArrays(SPECS)
    second = SharedArrays(SPECS, os.dup(first.descriptor))
    second["a"][1, 2] = 7
    assert np.array_equal(first["a"], second["a"])
    assert first["a"][1, 2] == 7
    second.close()
    first.close()
