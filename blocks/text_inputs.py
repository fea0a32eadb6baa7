"""Find and open input files, decode them to UTF-8 lines, and cut them into chunks of whole records."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from blocks.databases import is_database, rows_as_csv
from blocks.decompression import DAMAGE, decompress_pieces, is_zip, zip_contents
from blocks.encodings import to_utf8, with_line_feeds
from blocks.errors import RequestError
from blocks.files import no_such_file

STANDARD_INPUT = "-"
CHUNK = 1 << 21  # bytes of a chunk: it takes a worker little time, and hundreds of documents share its overhead
LONGEST_RECORD = 1 << 28
_PIECE = 1 << 17  # number of bytes read at a time


class InputOpenOptions(NamedTuple):
    """How inputs are opened.

    encoding: None for UTF-8.
    longest: maximum number of bytes in a record.
    query: SQL query for databases.
    """

    encoding: str | None = None
    longest: int = LONGEST_RECORD
    query: str | None = None


Progress = Callable[[int], object]
Cut = Callable[[bytearray], int]  # end of the last complete record of a buffer, 0 if there is none


class TextInput:
    """An input read as UTF-8 text without a byte order mark and with line feeds.

    Attributes: `name` for messages; `line`, number of the first line not yet consumed.

    path: `-` is standard input.
    progress: function called with the number of bytes just read from disk.
    encoding: None for UTF-8.
    longest: maximum number of bytes in a record.
    databases: read the result of a database query as CSV; `is_database` tells whether it is one.
    pieces: contents that are not in a file of their own.
    Raises RequestError if the input cannot be read or decompressed, or has a longer record.
    """

    def __init__(
        self,
        path: str,
        progress: Callable[[int], object] = lambda _: None,
        *,
        encoding: str | None = None,
        longest: int = LONGEST_RECORD,
        query: str | None = None,
        databases: bool = False,
        pieces: Iterator[bytes] | None = None,
    ) -> None:
        self.name = input_name(path)
        self.line = 1
        self._longest = longest
        self.is_database = databases and pieces is None and path != STANDARD_INPUT and is_database(path)
        if query and not self.is_database:
            raise RequestError(f"--query is only for SQLite databases, and {self.name} is not one", "Omit --query.")
        if self.is_database:
            self._pieces = with_line_feeds(rows_as_csv(path, query, progress, longest))
        else:
            found = _pieces(path, self.name, progress) if pieces is None else pieces
            self._pieces = with_line_feeds(to_utf8(found, self.name, encoding))
        self._buffer = bytearray()

    def _fill(self) -> bool:
        piece = next(self._pieces, None)
        self._buffer += piece or b""
        return piece is not None

    def change(self, how: Callable[[Iterator[bytes]], Iterator[bytes]], name: str) -> None:
        """Filter the rest of the input through the function `how`.

        name: name of the filter in errors.
        """
        self._pieces = how(chain([bytes(self._buffer)], self._pieces))
        self._buffer.clear()
        self.name = name

    def take(self, first_record: Cut) -> bytes:
        """Consume and return the first record, whose end `first_record` finds; the rest of the input if it is
        incomplete."""
        return self._taken(len(self.peek(first_record)))

    def peek(self, first_record: Cut) -> bytes:
        """Return what `take` would return, without consuming it."""
        while not (end := first_record(self._buffer)):
            self._require_room()
            if not self._fill():
                end = len(self._buffer)
                break
        return bytes(self._buffer[:end])

    def chunks(self, cut: Cut, size: int = CHUNK) -> Iterator[tuple[int, bytes]]:
        """Yield the rest of the input in chunks of whole records: (number of the first line, bytes)."""
        wanted = size
        while self._fill():
            if len(self._buffer) < wanted:
                continue
            if end := cut(self._buffer):
                yield self.line, self._taken(end)
                wanted = size
            else:
                self._require_room()
                wanted = min(2 * len(self._buffer), self._longest + 1)
        if self._buffer:
            yield self.line, self._taken(len(self._buffer))

    def _require_room(self) -> None:
        if len(self._buffer) > self._longest:
            raise record_too_long(f"{self.name}, line {self.line}", self._longest)

    def _taken(self, end: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:end])
        del self._buffer[:end]
        self.line += data.count(b"\n")
        return data


def record_too_long(where: str, longest: int) -> RequestError:
    """Return the error for a record that exceeds the maximum length."""
    return RequestError(
        f"{where}: a record of more than {longest / 1e6:,.1f} MB begins here, too long for --memory",
        "If the record is complete, give a larger --memory. If not, look for a quote that is not closed, or (for text "
        "without --lines) for a file of many documents.",
    )


def last_line_end(buffer: bytearray) -> int:
    """Return the position after the last complete line in a buffer."""
    return buffer.rfind(b"\n") + 1


def first_line_end(buffer: bytearray) -> int:
    """Return the position after the first line in a buffer, 0 if it is incomplete."""
    return buffer.find(b"\n") + 1


def input_name(path: str) -> str:
    """Return the name of an input for messages."""
    return "standard input" if path == STANDARD_INPUT else path


def _pieces(path: str, name: str, progress: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the decompressed bytes of an input."""
    with open_input(path) as file, InputErrors(name):
        if is_zip(file):
            yield from zip_contents(file, name)
            progress(input_size(path))
        else:
            yield from decompress_pieces(file_pieces(file, progress), name)


def file_pieces(file: IO[bytes], progress: Progress = lambda _: None) -> Iterator[bytes]:
    """Yield the bytes of a file on disk.

    progress: function called with the number of bytes just read.
    """
    while piece := file.read(_PIECE):
        progress(len(piece))
        yield piece


class InputErrors:
    """Turns errors while reading or decompressing into errors that name the input."""

    kinds = (*DAMAGE, OSError)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, DAMAGE):
            raise RequestError(
                f"{self.name} is truncated or damaged: {error}",
                "Copy or download the file again; none of its data was kept.",
            ) from error
        if isinstance(error, OSError):
            raise RequestError(f"{self.name} cannot be read: {error.strerror or error}") from error


def open_input(path: str) -> IO[bytes]:
    """Open an input on disk; `-` is standard input.

    Raises RequestError if that fails.
    """
    try:
        if path == STANDARD_INPUT:
            return os.fdopen(os.dup(_standard_input()), "rb")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise no_such_file(Path(path)) from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error


def _standard_input() -> int:
    if sys.stdin is None:
        raise RequestError("standard input is closed", "Pipe the data in, or name a file.")
    return sys.stdin.fileno()


def read_whole(path: str, opening: InputOpenOptions) -> bytes:
    """Return the contents of an input that is one document, decoded as `TextInput` does."""
    return TextInput(path, **opening._asdict()).take(lambda _: 0)


def is_stream(path: str) -> bool:
    """Return whether an input is standard input, a pipe or a device, readable only once and only by this process."""
    return path == STANDARD_INPUT or not stat.S_ISREG(_status(path).st_mode)


def input_size(path: str) -> int:
    """Return the size in bytes of an input on disk; 0 for a stream.

    Raises RequestError if it does not exist.
    """
    if path == STANDARD_INPUT:
        return 0
    status = _status(path)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _status(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        raise no_such_file(Path(path)) from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error


def input_facts(path: str) -> dict[str, Any]:
    """Return the name and size of an input for the manifest; the size of a stream is None."""
    return {"name": path, "bytes": None if is_stream(path) else input_size(path)}
