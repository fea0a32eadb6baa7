"""Advice about pages of arrays that lie in files: followed where there are any, and no array changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from ooc.pages import ask_for, ask_for_runs, drop, populate, say_order, unmap
from ooc.shared import ArraySpec, SharedArrays, total_bytes


def mapped_bytes(file: Path) -> int:
    """Of a file, by this process, that have been touched."""
    (found,) = re.findall(rf"{re.escape(str(file))}\n(?:.*\n)*?Rss: *(\d+) kB", Path("/proc/self/smaps").read_text())
    return 1024 * int(found)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the kernel does not say what is mapped")
def test_pages_of_a_file_are_mapped_and_let_go_and_keep_what_is_written(tmp_path):
    specs = {"a": ArraySpec((3,), "int64"), "b": ArraySpec((1000, 1000), "float32")}
    file = tmp_path / "arrays"
    file.write_bytes(bytes(total_bytes(specs)))
    shared = SharedArrays(specs, os.open(file, os.O_RDWR))
    some, before = shared["b"][100:900], mapped_bytes(file)
    populate(some)
    assert mapped_bytes(file) - before >= some.nbytes - 8192  # whole pages
    some[:] = 7
    unmap(some)
    assert mapped_bytes(file) <= before + 8192 + (128 << 10)  # what a fault brings in around it
    os.fdatasync(shared.descriptor)
    drop(some)
    ask_for(some)
    say_order(some, streamed=False)
    ask_for_runs(some, np.array([0, 500]), np.array([1, 800]))
    say_order(some, streamed=True)
    assert (shared["b"][100:900] == 7).all()
    assert not shared["b"][:100].any()
    assert not shared["b"][900:].any()
    shared.close()


def test_arrays_that_are_in_no_file_stay_as_they_are():
    shared = SharedArrays({"b": ArraySpec((10_000,), "float32")})
    for array in (shared["b"], np.zeros(10_000)):
        array[:] = 3
        for advise in (populate, unmap, drop, ask_for):
            advise(array)
            assert (array == 3).all()
        say_order(array, streamed=False)
        ask_for_runs(array, np.array([10]), np.array([20]))
        assert (array == 3).all()
    shared.close()
