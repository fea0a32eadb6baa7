"""Reading and writing large files past the page cache, where the file system allows it.

State that is streamed is read once and then written anew, so nothing is gained by keeping it; and on a virtual machine
the page cache takes many times the processor's time of the transfer itself (docs/memory.md).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

PAGE = 4096  # positions, sizes and places in memory are multiples of it
_UNWRITTEN = 64 << 20  # bytes that may wait in the page cache where it is not passed by


class DirectFile:
    """An existing file, read and written by whole pages from and to memory that begins a page, such as a mapping.

    Requests of a few megabytes take least time: on a virtual machine each costs a processor some 40 microseconds.
    """

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self._file, self._direct = _open(path, flags)
        self._unwritten = 0

    def read(self, at: int, into: memoryview) -> int:
        """Read bytes from position `at` on; returns how many there are, fewer than `into` holds if the file ends."""
        done = 0
        while done < len(into):
            got = os.preadv(self._file, [into[done:]], at + done)
            done += got
            if got == 0 or got % PAGE:  # the file ends
                break
        return done

    def write(self, at: int, data: memoryview) -> None:
        """Write bytes from position `at` on."""
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], at + done)
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


def _open(path: Path, flags: int) -> tuple[int, bool]:
    """Open a file directly, or as usual where the system or the file system does not do that; and which it was."""
    direct = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, flags | direct), bool(direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags), False
