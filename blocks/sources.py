"""Input files: found, opened, decompressed and cut into chunks that hold whole records."""

from __future__ import annotations

import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import zstandard

from blocks.errors import RequestError
from blocks.files import no_such_file

CHUNK = 1 << 21  # bytes of a chunk: workers are never long at one, and a few hundred documents share its overhead
_PIECE = 1 << 17  # bytes read at a time: even a run of zeros does not inflate to more than memory holds
_LONGEST_RECORD = 1 << 28
_COMPRESSIONS: dict[str, tuple[bytes, Callable[[], Any]]] = {
    ".gz": (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    ".xz": (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
    ".zst": (b"\x28\xb5\x2f\xfd", lambda: zstandard.ZstdDecompressor().decompressobj()),
}
_DAMAGE = (zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError)

Cut = Callable[[bytearray], int]  # where the last whole record of a buffer ends, 0 if there is none


class Source:
    """An input being read. `name` is what messages call it, `line` the number of the first line not yet taken."""

    def __init__(self, path: str, progress: Callable[[int], object] = lambda _: None) -> None:
        self.name = "standard input" if path == "-" else path
        self.line = 1
        self._pieces = _decompressed(path, self.name, progress)
        self._buffer = bytearray()

    def _fill(self) -> bool:
        piece = next(self._pieces, None)
        self._buffer += piece or b""
        return piece is not None

    def take(self, first_record: Cut) -> bytes:
        """The first record, as `first_record` finds its end; what there is if the input ends before it does."""
        return self._taken(len(self.peek(first_record)))

    def peek(self, first_record: Cut) -> bytes:
        """What `take` would give."""
        while not (end := first_record(self._buffer)):
            if len(self._buffer) > _LONGEST_RECORD or not self._fill():
                end = len(self._buffer)
                break
        return bytes(self._buffer[:end])

    def chunks(self, cut: Cut, size: int = CHUNK) -> Iterator[tuple[int, bytes]]:
        """Yields (number of the first line, bytes): whole records that together are the rest of the input."""
        wanted = size
        while self._fill():
            if len(self._buffer) < wanted:
                continue
            if end := cut(self._buffer):
                yield self.line, self._taken(end)
                wanted = size
            elif len(self._buffer) > _LONGEST_RECORD:
                raise RequestError(
                    f"{self.name}: the record that begins in line {self.line} does not end within "
                    f"{_LONGEST_RECORD >> 20} MB",
                    "Look there for a quote that is not closed, or for line breaks that are missing.",
                )
            else:
                wanted = 2 * len(self._buffer)
        if self._buffer:
            yield self.line, self._taken(len(self._buffer))

    def _taken(self, end: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:end])
        del self._buffer[:end]
        self.line += data.count(b"\n")
        return data


def whole_line(buffer: bytearray) -> int:
    """Where the last line ends."""
    return buffer.rfind(b"\n") + 1


def first_line(buffer: bytearray) -> int:
    """Where the first line ends."""
    return buffer.find(b"\n") + 1


def whole_row(buffer: bytearray) -> int:
    """Where the last CSV row ends: after a line break with an even number of quotes before it."""
    end = whole_line(buffer)
    quotes = buffer.count(b'"', 0, end)
    while end and quotes % 2:
        before = buffer.rfind(b"\n", 0, end - 1) + 1
        quotes -= buffer.count(b'"', before, end)
        end = before
    return end


def first_row(buffer: bytearray) -> int:
    """Where the first CSV row ends."""
    end = first_line(buffer)
    while end and buffer.count(b'"', 0, end) % 2:
        end = buffer.find(b"\n", end) + 1
    return end


def _decompressed(path: str, name: str, progress: Callable[[int], object]) -> Iterator[bytes]:
    with open_input(path) as file, _ReadErrors(name):
        piece = file.read(_PIECE)
        magic, start = _COMPRESSIONS.get(Path(path).suffix.lower(), (b"", None))
        if not piece.startswith(magic):
            raise RequestError(f"{name} is not compressed as its name says", "Rename it, or get it again.")
        if path == "-":
            start = next((start for magic, start in _COMPRESSIONS.values() if piece.startswith(magic)), None)
        decompressor = start() if start else None
        while piece:
            progress(len(piece))
            if decompressor is None or start is None:
                yield piece
            while decompressor is not None and start is not None and piece:
                if decompressor.eof:
                    decompressor = start()
                yield decompressor.decompress(piece)
                piece = decompressor.unused_data.lstrip(b"\0") if decompressor.eof else b""
            piece = file.read(_PIECE)
        if decompressor is not None and not decompressor.eof:
            raise EOFError("it ends in the middle")


class _ReadErrors:
    """Turns errors of reading and decompressing into ones that name the input."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, _DAMAGE):
            raise RequestError(
                f"{self.name} is truncated or damaged: {error}", "Get it again; nothing of it was kept."
            ) from error
        if isinstance(error, OSError):
            raise RequestError(f"{self.name} cannot be read: {error.strerror or error}") from error


def open_input(path: str) -> IO[bytes]:
    """Open an input as it is on disk; `-` is standard input. Raises RequestError if that cannot be done."""
    try:
        if path == "-":
            return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise no_such_file(Path(path)) from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error


def read_whole(path: str) -> bytes:
    """The decompressed content of an input that is one document."""
    return Source(path).take(lambda _: 0)


def size_of(path: str) -> int:
    """Bytes of an input on disk; 0 if it is a stream. Raises RequestError if it is not there."""
    if path == "-":
        return 0
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        raise no_such_file(Path(path)) from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error


def find_files(inputs: Sequence[str], pattern: str) -> list[tuple[str, str]]:
    """(path, name) of every text file among the inputs, directories searched recursively in sorted order.

    pattern: a glob that file names inside directories must match. A file in a directory is named by its path below it.
    """
    found = []
    for given in inputs:
        if given == "-" or not Path(given).is_dir():
            size_of(given)
            found.append((given, given))
            continue
        inside = sorted(path for path in Path(given).rglob(pattern) if path.is_file())
        if not inside:
            raise RequestError(f"{given}: no file in this directory matches {pattern!r}", "Choose with --glob.")
        found += [(str(path), path.relative_to(given).as_posix()) for path in inside]
    return found
