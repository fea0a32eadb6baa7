"""Named arrays that processes share, by default in anonymous memory: without a name, nothing can be left behind."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import WorkFailed

_ALIGN = 4096
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # of madvise; Python 3.13 has no names for them


class ArraySpec(NamedTuple):
    """Shape and dtype of an array that somebody else allocates."""

    shape: tuple[int, ...]
    dtype: str | np.dtype[Any]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class SharedArrays(Mapping[str, np.ndarray]):
    """Arrays that a process and the workers that inherit `descriptor` see alike, all zero at first.

    Give the descriptor to attach to arrays that exist, or to map those of a file of `total_bytes(specs)` zeros; without
    one they are allocated, every page of them, so that a lack of memory is an error here and not a signal later.
    """

    def __init__(self, specs: Mapping[str, ArraySpec], descriptor: int | None = None) -> None:
        size = total_bytes(specs)
        self.descriptor = _allocate(size) if descriptor is None else descriptor
        whole = _Map(self.descriptor, size)
        whole.descriptor = self.descriptor
        self._arrays: dict[str, np.ndarray] = {}
        offset = 0
        for name, spec in specs.items():
            size = math.prod(spec.shape)
            flat = np.frombuffer(whole, spec.dtype, size, offset) if size else np.empty(0, spec.dtype)
            self._arrays[name] = flat.reshape(spec.shape)
            offset += _aligned(spec.bytes)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def close(self) -> None:
        """Let go of the memory; it is freed when the last process that has it mapped lets go too."""
        self._arrays.clear()
        os.close(self.descriptor)


class _Map(mmap.mmap):
    """A mapped file that knows its descriptor."""

    descriptor: int


def ask_for(part: np.ndarray) -> None:
    """Have the kernel read, in the background, what will be needed soon of a shared array that lies in a file."""
    _advise(part, getattr(mmap, "MADV_WILLNEED", 0))


def populate(part: np.ndarray) -> None:
    """Map all pages of an array that lies in a file at once, which costs less than one after the other as they are
    touched: to be written to, if it can be. (Linux from 5.14 on.)"""
    if sys.platform == "linux":
        with suppress(OSError):
            _advise(part, _POPULATE_WRITE if part.flags.writeable else _POPULATE_READ)


def unmap(part: np.ndarray) -> None:
    """Let go of pages of a shared array that lies in a file, until they are touched again; nothing is lost. (Pages that
    nobody has mapped are cheaper to write, and can be dropped.)"""
    _advise(part, getattr(mmap, "MADV_DONTNEED", 0))


def drop(part: np.ndarray) -> None:
    """Have the kernel forget pages of a shared array that lies in a file; not those that somebody has mapped, or that
    are not written yet."""
    if (place := _pages(part)) and hasattr(os, "posix_fadvise") and isinstance(place[0], _Map):
        whole, begin, size = place
        os.posix_fadvise(whole.descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def _advise(part: np.ndarray, advice: int) -> None:
    if (place := _pages(part)) and advice:
        whole, begin, size = place
        whole.madvise(advice, begin, size)


def _pages(part: np.ndarray) -> tuple[Any, int, int] | None:
    """Where a contiguous part of a mapped array lies, in whole pages: offset and size. None if it is not mapped."""
    whole: Any = part
    while isinstance(whole, np.ndarray | memoryview):
        whole = whole.base if isinstance(whole, np.ndarray) else whole.obj
    if not isinstance(whole, mmap.mmap):
        return None
    first = part.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
    begin, end = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, (first + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    return (whole, begin, end - begin) if begin < end else None


def total_bytes(specs: Mapping[str, ArraySpec]) -> int:
    """What arrays take one after the other, each on pages of its own; at least one page."""
    return max(sum(_aligned(spec.bytes) for spec in specs.values()), _ALIGN)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _allocate(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ooc")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise WorkFailed(
            f"{size / 1e6:.0f} MB of shared memory could not be had: {os.strerror(error.errno or 0)}",
            "Give a smaller --memory, so that the state is streamed from disk.",
        ) from error
    return descriptor
