"""Direct I/O: read and write large files without the page cache, where the file system supports that.

Streamed state is read once and then rewritten, so caching gains nothing. On a virtual machine the page cache takes many
times as much processor time as the transfer (docs/notes/memory.md).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

PAGE = 4096  # bytes: offsets, sizes and memory addresses are multiples of the page size
_UNWRITTEN = 64 << 20  # maximum bytes waiting in the page cache where direct I/O is not supported


class DirectIoFile:
    """An existing file that is read into and written from page-aligned memory, such as a mapping, in whole pages.

    Requests of a few megabytes are fastest, as each request costs about 40 microseconds of processor time on a virtual
    machine.
    """

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self._file, self._direct = _open(path, flags)
        self._unwritten = 0

    def read(self, at: int, into: memoryview) -> int:
        """Read bytes starting at offset `at`; returns the number of bytes read, less than the size of `into` at the end
        of the file."""
        done = 0
        while done < len(into):
            got = os.preadv(self._file, [into[done:]], at + done)
            done += got
            if got == 0 or got % PAGE:  # end of the file
                break
        return done

    def write(self, at: int, data: memoryview) -> None:
        """Write bytes at offset `at`."""
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
    """Open a file for direct I/O, or normally if that is not supported; returns the descriptor and whether I/O is
    direct."""
    direct = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, flags | direct), bool(direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags), False
