"""Hints to the kernel about the pages of memory-mapped arrays: read ahead, map, unmap, drop.

Hints never change the contents of an array, and have no effect on arrays that are not in a file.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from typing import Any

import numpy as np

UNWRITTEN = 1 << 23  # bytes of file-backed arrays of the start that may be changed between calls of `write_back`
_GAP = 1 << 14  # bytes: skipping smaller gaps takes longer than reading them
_AT_ONCE = 1 << 17  # bytes: kernels may read only the start of larger ranges
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # advice of madvise that has no names in Python 3.13


class MappedFile(mmap.mmap):
    """Mapped file with its file descriptor."""

    descriptor: int


def read_ahead(part: np.ndarray) -> None:
    """Make the kernel read a part of a mapped array in the background."""
    _advise(part, getattr(mmap, "MADV_WILLNEED", 0))


def read_ahead_runs(array: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
    """Make the kernel read ranges along the first axis of a mapped array, and small gaps between the ranges.

    begins, ends: int64 (R,), ascending.
    """
    whole, first = _file_of(array)
    if whole is None or not begins.size or not (advice := getattr(mmap, "MADV_WILLNEED", 0)):
        return
    begins, ends = first + array.strides[0] * begins, first + array.strides[0] * ends
    apart = np.flatnonzero(begins[1:] - ends[:-1] > _GAP)
    begins, ends = begins[np.append(0, apart + 1)], ends[np.append(apart, -1)]
    for begin, end in zip((begins // mmap.PAGESIZE * mmap.PAGESIZE).tolist(), ends.tolist(), strict=True):
        for at in range(begin, end, _AT_ONCE):
            whole.madvise(advice, at, min(_AT_ONCE, end - at))


def advise_order(array: np.ndarray, *, streamed: bool) -> None:
    """Tell the kernel whether a mapped array will be read sequentially (with huge pages, if possible) or at random.

    In random order, only requested or touched pages are read.
    """
    whole, _ = _file_of(array)
    for name in ("SEQUENTIAL", "HUGEPAGE") if streamed else ("RANDOM", "NOHUGEPAGE"):
        if whole is not None and hasattr(mmap, f"MADV_{name}"):
            with suppress(OSError):  # a kernel may know the advice but not support it
                whole.madvise(getattr(mmap, f"MADV_{name}"))


def populate_pages(part: np.ndarray) -> None:
    """Map all pages of a mapped array at once, for writing if possible, which is cheaper than page faults one by one
    (needs Linux 5.14)."""
    if sys.platform == "linux":
        with suppress(OSError):
            _advise(part, _POPULATE_WRITE if part.flags.writeable else _POPULATE_READ)


def unmap_pages(part: np.ndarray) -> None:
    """Unmap the pages of a mapped array until they are touched again, without losing data.

    Unmapped pages are cheaper to write and can be dropped.
    """
    _advise(part, getattr(mmap, "MADV_DONTNEED", 0))


def drop_pages(part: np.ndarray) -> None:
    """Make the kernel drop pages of a mapped array that are neither mapped nor dirty."""
    if (place := _pages(part)) and hasattr(os, "posix_fadvise") and isinstance(place[0], MappedFile):
        whole, begin, size = place
        os.posix_fadvise(whole.descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def write_back(part: np.ndarray) -> None:
    """Write the changed pages of a shared array to its file, and wait until they are written. Arrays in memory are left
    as they are."""
    whole, first = _file_of(part)
    if whole is not None and part.nbytes:
        begin = first // mmap.PAGESIZE * mmap.PAGESIZE
        whole.flush(begin, first + part.nbytes - begin)


def _advise(part: np.ndarray, advice: int) -> None:
    if (place := _pages(part)) and advice:
        whole, begin, size = place
        whole.madvise(advice, begin, size)


def _pages(part: np.ndarray) -> tuple[Any, int, int] | None:
    """Return the mapping, and the offset and size in whole pages, of a contiguous part of a mapped array; None if the
    part is not mapped or contains no whole page."""
    whole, first = _file_of(part)
    if whole is None:
        return None
    begin, end = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, (first + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    return (whole, begin, end - begin) if begin < end else None


def _file_of(array: np.ndarray) -> tuple[Any, int]:
    """Return the mapped file of an array and the array's offset; the file is None if the array is not in a file."""
    whole: Any = array
    while isinstance(whole, np.ndarray | memoryview):
        whole = whole.base if isinstance(whole, np.ndarray) else whole.obj
    if not isinstance(whole, mmap.mmap):
        return None, 0
    return whole, array.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
