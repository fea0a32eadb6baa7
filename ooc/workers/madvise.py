"""Page hints for arrays in mapped files: read ahead, map, unmap, drop.

They never change the content of an array, and do nothing for arrays that are in no file.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from typing import Any

import numpy as np

UNWRITTEN = 1 << 23  # bytes of arrays in a file of the start that a process changes before it calls `write_back`
_GAP = 1 << 14  # bytes: to leave out fewer takes longer than to read them
_AT_ONCE = 1 << 17  # bytes: of more, kernels may read but the beginning
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # of madvise; Python 3.13 has no names for them


class MappedFile(mmap.mmap):
    """A mapped file that knows its descriptor."""

    descriptor: int


def ask_for(part: np.ndarray) -> None:
    """Have the kernel read a part of a mapped array in the background."""
    _advise(part, getattr(mmap, "MADV_WILLNEED", 0))


def ask_for_runs(array: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
    """Have the kernel read ranges of a mapped array, int64 (R,), ascending, along its first axis, and small gaps
    between them."""
    whole, first = _file_of(array)
    if whole is None or not begins.size or not (advice := getattr(mmap, "MADV_WILLNEED", 0)):
        return
    begins, ends = first + array.strides[0] * begins, first + array.strides[0] * ends
    apart = np.flatnonzero(begins[1:] - ends[:-1] > _GAP)
    begins, ends = begins[np.append(0, apart + 1)], ends[np.append(apart, -1)]
    for begin, end in zip((begins // mmap.PAGESIZE * mmap.PAGESIZE).tolist(), ends.tolist(), strict=True):
        for at in range(begin, end, _AT_ONCE):
            whole.madvise(advice, at, min(_AT_ONCE, end - at))


def say_order(array: np.ndarray, *, streamed: bool) -> None:
    """Tell the kernel whether a mapped array will be read sequentially (with huge pages, if possible) or at random.

    If read at random, only requested or touched pages are read.
    """
    whole, _ = _file_of(array)
    for name in ("SEQUENTIAL", "HUGEPAGE") if streamed else ("RANDOM", "NOHUGEPAGE"):
        if whole is not None and hasattr(mmap, f"MADV_{name}"):
            with suppress(OSError):  # a kernel may know of it and not have it
                whole.madvise(getattr(mmap, f"MADV_{name}"))


def populate(part: np.ndarray) -> None:
    """Map all pages of a mapped array at once, for writing if possible, which is cheaper than faulting one by one
    (Linux 5.14)."""
    if sys.platform == "linux":
        with suppress(OSError):
            _advise(part, _POPULATE_WRITE if part.flags.writeable else _POPULATE_READ)


def unmap(part: np.ndarray) -> None:
    """Unmap the pages of a mapped array until they are touched again; nothing is lost.

    Unmapped pages are cheaper to write and can be dropped.
    """
    _advise(part, getattr(mmap, "MADV_DONTNEED", 0))


def drop(part: np.ndarray) -> None:
    """Have the kernel drop pages of a mapped array that are neither mapped nor dirty."""
    if (place := _pages(part)) and hasattr(os, "posix_fadvise") and isinstance(place[0], MappedFile):
        whole, begin, size = place
        os.posix_fadvise(whole.descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def write_back(part: np.ndarray) -> None:
    """Write the changed pages of a shared array to its file, and wait until they are written; do nothing for an array
    in memory."""
    whole, first = _file_of(part)
    if whole is not None and part.nbytes:
        begin = first // mmap.PAGESIZE * mmap.PAGESIZE
        whole.flush(begin, first + part.nbytes - begin)


def _advise(part: np.ndarray, advice: int) -> None:
    if (place := _pages(part)) and advice:
        whole, begin, size = place
        whole.madvise(advice, begin, size)


def _pages(part: np.ndarray) -> tuple[Any, int, int] | None:
    """Return offset and size, in whole pages, of a contiguous part of a mapped array; None if it is not mapped."""
    whole, first = _file_of(part)
    if whole is None:
        return None
    begin, end = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, (first + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    return (whole, begin, end - begin) if begin < end else None


def _file_of(array: np.ndarray) -> tuple[Any, int]:
    """Return the mapped file of an array and the array's offset; None if it is in no file."""
    whole: Any = array
    while isinstance(whole, np.ndarray | memoryview):
        whole = whole.base if isinstance(whole, np.ndarray) else whole.obj
    if not isinstance(whole, mmap.mmap):
        return None, 0
    return whole, array.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
