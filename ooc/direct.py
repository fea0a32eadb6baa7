"""Reading and writing large files past the page cache, where the file system allows it.

State that is streamed is read once and then written anew, so nothing is gained by keeping it; and on a virtual machine
the page cache takes several times the processor's time of the copy itself (docs/memory.md).
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

PAGE = 4096  # positions and sizes of direct reads and writes are multiples of it
_ROOM = 4 << 20  # bytes of the buffer in between: smaller requests take more of a processor, larger ones no less
_UNWRITTEN = 64 << 20  # bytes that may wait in the page cache where it is not passed by

_Size = TypeVar("_Size", int, "np.ndarray[Any, Any]")


class Reader:
    """A file that one thread reads. Bytes go through an aligned buffer; where reads follow each other it is filled."""

    def __init__(self, path: Path) -> None:
        self._file, _ = _open(path, os.O_RDONLY)
        self._buffer = mmap.mmap(-1, _ROOM)
        self._begin = self._end = 0  # of what is in the buffer, as positions in the file

    def read(self, at: int, into: memoryview | bytearray) -> int:
        """Read bytes from position `at` on; returns how many there are, fewer than `into` holds if the file ends."""
        done = 0
        while done < len(into):
            if not self._begin <= at < self._end and not self._fill(at, len(into) - done):
                break
            part = min(len(into) - done, self._end - at)
            into[done : done + part] = memoryview(self._buffer)[at - self._begin :][:part]
            at += part
            done += part
        return done

    def _fill(self, at: int, wanted: int) -> bool:
        """Fill the buffer around a position; False if the file ends before it."""
        begin = at - at % PAGE
        size = _ROOM if at == self._end else min(_ROOM, whole_pages(at + wanted - begin))
        got = os.preadv(self._file, [memoryview(self._buffer)[:size]], begin)
        self._begin, self._end = begin, begin + got
        return at < self._end

    def close(self) -> None:
        os.close(self._file)
        self._buffer.close()


class Writer:
    """An existing file that one thread writes to, whole pages at a time.

    Bytes go through an aligned buffer: what follows what was written before waits there until it is full, or `flush`.
    """

    def __init__(self, path: Path) -> None:
        self._file, self._direct = _open(path, os.O_WRONLY)
        self._buffer = mmap.mmap(-1, _ROOM)
        self._at = self._filled = 0  # position in the file of the buffer's first byte, and bytes in it
        self._unwritten = 0

    def write(self, at: int, data: memoryview) -> None:
        """Write bytes from position `at` on, a multiple of PAGE, and then zeros to the end of the page."""
        if at != self._at + self._filled:
            self.flush()
            self._at = at
        done = 0
        while done < len(data):
            part = min(len(data) - done, _ROOM - self._filled)
            memoryview(self._buffer)[self._filled :][:part] = data[done : done + part]
            self._filled += part
            done += part
            if self._filled == _ROOM:
                self.flush()
        rest = whole_pages(self._filled) - self._filled
        memoryview(self._buffer)[self._filled :][:rest] = bytes(rest)
        self._filled += rest

    def flush(self) -> None:
        """Hand the system all that waits."""
        done = 0
        while done < self._filled:
            done += os.pwrite(self._file, memoryview(self._buffer)[done : self._filled], self._at + done)
        self._at += self._filled
        self._filled = 0
        if not self._direct:
            self._unwritten += done
            self._bound_unwritten()

    def _bound_unwritten(self) -> None:
        if self._unwritten > _UNWRITTEN:
            os.fdatasync(self._file)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
            self._unwritten = 0

    def close(self) -> None:
        os.close(self._file)
        self._buffer.close()


def whole_pages(size: _Size) -> _Size:
    """Bytes, rounded up to pages."""
    return -(-size // PAGE) * PAGE


def _open(path: Path, flags: int) -> tuple[int, bool]:
    """Open a file directly, or as usual where the system or the file system does not do that; and which it was."""
    direct = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, flags | direct), bool(direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags), False
