"""Advice about pages of arrays that lie in files: followed where there are any, and no array changes."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from blocks.arrays import map_arrays, write_arrays
from ooc.plan.disk_speed import drop_page_cache
from ooc.workers.madvise import advise_order, drop_pages, populate_pages, read_ahead, read_ahead_runs, unmap_pages
from ooc.workers.shared_arrays import ArraySpec, SharedArrays, total_bytes


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
    populate_pages(some)
    assert mapped_bytes(file) - before >= some.nbytes - 8192  # whole pages
    some[:] = 7
    unmap_pages(some)
    assert mapped_bytes(file) <= before + 8192 + (128 << 10)  # what a fault brings in around it
    os.fdatasync(shared.descriptor)
    drop_pages(some)
    read_ahead(some)
    advise_order(some, streamed=False)
    read_ahead_runs(some, np.array([0, 500]), np.array([1, 800]))
    advise_order(some, streamed=True)
    assert (shared["b"][100:900] == 7).all()
    assert not shared["b"][:100].any()
    assert not shared["b"][900:].any()
    shared.close()


def test_arrays_that_are_in_no_file_stay_as_they_are():
    shared = SharedArrays({"b": ArraySpec((10_000,), "float32")})
    for array in (shared["b"], np.zeros(10_000)):
        array[:] = 3
        for advise in (populate_pages, unmap_pages, drop_pages, read_ahead):
            advise(array)
            assert (array == 3).all()
        advise_order(array, streamed=False)
        read_ahead_runs(array, np.array([10]), np.array([20]))
        assert (array == 3).all()
    shared.close()


def resident_bytes(array: np.ndarray) -> int:
    """Of a mapped array that begins at a page, those in the page cache."""
    pages = np.zeros(-(-array.nbytes // mmap.PAGESIZE), np.uint8)
    address = array.ctypes.data - array.ctypes.data % mmap.PAGESIZE
    size = ctypes.c_size_t(array.nbytes)
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), size, pages.ctypes.data_as(ctypes.c_void_p)) == 0
    return mmap.PAGESIZE * int((pages & 1).sum())


@pytest.mark.skipif(sys.platform != "linux", reason="mincore and its advice are of Linux")
def test_what_is_read_here_and_there_is_all_that_is_read(tmp_path):
    where = write_arrays(tmp_path, "numbers.h5", {"numbers": np.arange(4 << 20)})["arrays"]
    numbers = map_arrays(tmp_path / "numbers.h5", where, streamed=True)["numbers"]
    drop_page_cache(tmp_path / "numbers.h5")
    if resident_bytes(numbers):
        pytest.skip("NOT TESTED: this file system keeps all pages of a file")
    advise_order(numbers, streamed=False)
    begins = np.arange(0, numbers.size, 1 << 19)
    read_ahead_runs(numbers, begins, begins + 1000)
    least, most = begins.size * 8000, begins.size * (8000 + 2 * mmap.PAGESIZE)
    until = time.monotonic() + 60
    while resident_bytes(numbers) < least and time.monotonic() < until:
        time.sleep(0.01)
    assert least <= resident_bytes(numbers) <= most
    assert [numbers[begin : begin + 1000].sum() for begin in begins.tolist()] == (1000 * begins + 499_500).tolist()
    assert resident_bytes(numbers) <= most
    between = begins + (1 << 18)
    assert [numbers[one] for one in between.tolist()] == between.tolist()
    assert resident_bytes(numbers) <= most + begins.size * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="mincore and its advice are of Linux")
def test_long_runs_are_read_to_their_ends_and_what_is_between_near_ones(tmp_path):
    where = write_arrays(tmp_path, "numbers.h5", {"numbers": np.arange(4 << 20)})["arrays"]
    numbers = map_arrays(tmp_path / "numbers.h5", where)["numbers"]
    drop_page_cache(tmp_path / "numbers.h5")
    if resident_bytes(numbers):
        pytest.skip("NOT TESTED: this file system keeps all pages of a file")
    advise_order(numbers, streamed=False)
    long, near = slice(0, 1 << 18), slice(1 << 20, (1 << 20) + 2048)  # 2 MB; runs at both ends of 16 KB
    begins = np.array([long.start, near.start, near.stop - 8])
    read_ahead_runs(numbers, begins, np.array([long.stop, near.start + 8, near.stop]))
    least, until = (1 << 21) + (1 << 14), time.monotonic() + 60
    while resident_bytes(numbers) < least and time.monotonic() < until:
        time.sleep(0.01)
    assert least <= resident_bytes(numbers) <= least + 4 * mmap.PAGESIZE
