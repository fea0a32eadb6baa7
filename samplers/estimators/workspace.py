"""Datasets and runs that nobody is to see: of estimators, whose users have arrays and want arrays."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import psutil

from blocks import memory

_SHARED_MEMORY = Path("/dev/shm")
_SHARE = 0.1  # of the memory that is available: so much data may be there once more


class Workspace:
    """A directory that goes when this object does, and at the latest with the process: in memory if there is plenty.

    expected: bytes that will be written there, about. Attribute: `path`.
    """

    def __init__(self, expected: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ooc-", dir=_in_memory(expected)))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        self._end()


def _in_memory(expected: int) -> Path | None:
    """Where files lie in memory, if so many bytes are a small part of it; else None."""
    if not _SHARED_MEMORY.is_dir():
        return None
    room = min(memory.available(), psutil.disk_usage(str(_SHARED_MEMORY)).free)
    return _SHARED_MEMORY if expected <= _SHARE * room else None
