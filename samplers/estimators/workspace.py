"""Datasets and runs that nobody is to see: of estimators, whose users have arrays and want arrays."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import psutil

from blocks import memory

_SHARED_MEMORY = Path("/dev/shm")
_SHARE = 0.1  # of the memory that may be used: so much data may be there once more


class Workspace:
    """A directory that goes when this object does, and at the latest with the process: in memory if there is plenty.

    expected: bytes that will be written there, about. memory: bytes that may be used; None for what is available.
    Attribute: `path`.
    """

    def __init__(self, expected: int, memory: int | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ooc-", dir=_in_memory(expected, memory)))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        self._end()


def _in_memory(expected: int, most: int | None) -> Path | None:
    """Where files lie in memory, if so many bytes are a small part of it, and of what may be used; else None."""
    if not _SHARED_MEMORY.is_dir():
        return None
    room = min(memory.available(), psutil.disk_usage(str(_SHARED_MEMORY)).free)
    room = room if most is None else min(room, most)
    return _SHARED_MEMORY if expected <= _SHARE * room else None
