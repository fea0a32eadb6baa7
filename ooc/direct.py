"""Reading large files past the page cache, where the file system allows it.

State that is streamed is read once and then written anew, so nothing is gained by keeping it; and on a virtual machine
a gigabyte read through the page cache takes 0.8 to 1.8 seconds of a processor, past it 0.06 to 0.19.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

_PAGE = 4096  # positions and sizes of direct reads are multiples of it
_ROOM = 4 << 20  # bytes of the buffer in between


class Reader:
    """A file that one thread reads. Bytes go through an aligned buffer; where reads follow each other it is filled."""

    def __init__(self, path: Path) -> None:
        self._file = _open(path)
        self._buffer = mmap.mmap(-1, _ROOM)
        self._begin = self._end = 0  # of what is in the buffer, as positions in the file

    def read(self, at: int, into: memoryview) -> int:
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
        begin = at - at % _PAGE
        size = _ROOM if at == self._end else min(_ROOM, -(-(at + wanted - begin) // _PAGE) * _PAGE)
        got = os.preadv(self._file, [memoryview(self._buffer)[:size]], begin)
        self._begin, self._end = begin, begin + got
        return at < self._end

    def close(self) -> None:
        os.close(self._file)
        self._buffer.close()


def _open(path: Path) -> int:
    """Open a file to be read directly, or as usual where the system or the file system does not do that."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_RDONLY)
