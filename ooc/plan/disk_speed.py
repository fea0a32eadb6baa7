"""Measure disk speed as it matters for streaming state: reading one file while writing another, without the page
cache.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from blocks.errors import WorkFailed
from blocks.files import disk_errors, temporary_directory
from ooc.state.direct_io import DirectIoFile

_CHUNK = 4 << 20


class DiskSpeed(NamedTuple):
    """Bytes per second of simultaneous reading and writing."""

    reading: float
    writing: float

    @property
    def both(self) -> float:
        return self.reading + self.writing


def measure_disk(directory: Path, size: int = 256 << 20) -> DiskSpeed:
    """Write a file of `size` bytes in a directory, then read it while writing another file.

    Raises WorkFailed on disk errors.
    """
    failures: list[BaseException] = []
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[Path, int], None], path: Path) -> None:
        began = time.perf_counter()
        try:
            work(path, size)
        except BaseException as error:
            failures.append(error)
        seconds[name] = time.perf_counter() - began

    with disk_errors(directory), temporary_directory(directory) as scratch:
        first, second = scratch / "first", scratch / "second"
        _write(first, size)
        threads = [
            threading.Thread(target=timed, args=("reading", _read, first)),
            threading.Thread(target=timed, args=("writing", _write, second)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
    return DiskSpeed(size / seconds["reading"], size / seconds["writing"])


def drop_page_cache(path: Path) -> None:
    """Write the pages of a file to disk, and drop them from the page cache."""
    with disk_errors(path), path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _write(path: Path, size: int) -> None:
    path.touch()
    with mmap.mmap(-1, _CHUNK) as memory, closing(DirectIoFile(path, os.O_WRONLY)) as file:
        memory[:] = os.urandom(_CHUNK)
        with memoryview(memory) as chunk:
            for at in range(0, size, _CHUNK):
                file.write(at, chunk)
    drop_page_cache(path)


def _read(path: Path, size: int) -> None:
    with mmap.mmap(-1, _CHUNK) as memory, closing(DirectIoFile(path)) as file, memoryview(memory) as chunk:
        if any(file.read(at, chunk) < _CHUNK for at in range(0, size, _CHUNK)):
            raise WorkFailed(f"{path} was truncated while it was read")
