"""Decompress inputs as they are read: gzip, bzip2, xz and Zstandard, detected by their first bytes."""

from __future__ import annotations

import bz2
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import IO, Any, NamedTuple

import zstandard

from blocks.errors import RequestError

_MOST = 1 << 20  # bytes decompressed at a time, so that a file of zeros does not fill the memory
_ZSTD_PIECE = 512  # compressed bytes at a time, which give at most 16 MiB; 15 percent slower than 128 KiB
DAMAGE = (  # raised for truncated compressed files and archives; the last three also by zipfile
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
    EOFError,
    UnicodeDecodeError,
    OverflowError,
    struct.error,
)


class _GzipDecompressor:
    """Adapter that gives `zlib.decompressobj` the interface of `lzma.LZMADecompressor`."""

    def __init__(self) -> None:
        self._stream, self._rest = zlib.decompressobj(wbits=31), b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        inflated = self._stream.decompress(self._rest + data, max_length)
        self._rest = self._stream.unconsumed_tail
        return inflated

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


class _ZstandardDecompressor:
    """Adapter that gives zstandard's decompression object, whose output is unlimited, the interface of
    `lzma.LZMADecompressor`."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj(write_size=1 << 14)
        self._rest, self._at = b"", 0

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            self._rest, self._at = data, 0
        pieces: list[bytes] = []
        size = 0
        while size < max_length and not self.needs_input and not self.eof:
            pieces.append(self._stream.decompress(self._rest[self._at : self._at + _ZSTD_PIECE]))
            size += len(pieces[-1])
            self._at += _ZSTD_PIECE
        return b"".join(pieces)

    @property
    def needs_input(self) -> bool:
        return self._at >= len(self._rest)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data + self._rest[self._at :]


class _CompressionFormat(NamedTuple):
    suffix: str
    magic: re.Pattern[bytes]
    start: Callable[[], Any]


_FORMATS = (
    _CompressionFormat(".gz", re.compile(rb"\x1f\x8b"), _GzipDecompressor),
    _CompressionFormat(
        ".bz2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor
    ),  # the second: an empty file
    _CompressionFormat(".xz", re.compile(rb"\xfd7zXZ\x00"), lzma.LZMADecompressor),
    _CompressionFormat(".zst", re.compile(rb"\x28\xb5\x2f\xfd"), _ZstandardDecompressor),
)
_OTHERS = (  # file formats that are not text: first bytes, name, remedy
    (b"PK\x03\x04", "a zip archive", "Unpack it: unzip -p {name} | ooc ingest ... - OUT"),
    (b"PAR1\x15", "a Parquet file", "`ooc ingest csv` and `ooc ingest ratings` read it."),
    (b"ARROW1\0\0", "an Arrow file", "`ooc ingest csv` and `ooc ingest ratings` read it."),
    (b"%PDF-", "a PDF document", "Extract its text, for example with pdftotext."),
    (b"\x89HDF", "an HDF5 file", "Export its data as CSV, JSON Lines or .npz."),
    (
        b"SQLite format 3\0",
        "a SQLite database",
        "Read the rows of a query: ooc ingest csv {name} OUT --query 'SELECT ...'",
    ),
    (b"\x7fELF", "a program", "Use a text file."),
    (b"\x89PNG", "a picture", "Use a text file."),
    (b"\xff\xd8\xff", "a picture", "Use a text file."),
)


def zip_contents(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the contents of the only file in a zip archive; the file may itself be compressed.

    Raises RequestError if there are several files, or if a password is needed.
    """
    try:
        archive = zipfile.ZipFile(file)
        members = [member for member in archive.infolist() if not (member.is_dir() or is_hidden(member.filename))]
        if len(members) != 1:
            raise RequestError(
                f"{name} is a zip archive of {len(members)} files; expected a single file",
                "Unpack it and name the files; or use `ooc ingest text`, which makes each file a document.",
            )
        with archive.open(members[0]) as inside:
            yield from decompress_pieces(iter(partial(inside.read, _MOST), b""), f"{name}/{members[0].filename}")
    except (RuntimeError, NotImplementedError) as error:
        raise RequestError(f"{name} cannot be unpacked: {error}", "Unpack it with another program.") from None


def is_zip(file: IO[bytes]) -> bool:
    """Return whether a newly opened file is a readable zip archive."""
    return file.seekable() and os.pread(file.fileno(), 4, 0) == b"PK\x03\x04"


def is_hidden(name: str) -> bool:
    """Return whether an archive member was added by macOS, or is hidden."""
    return name.startswith("__MACOSX/") or any(part.startswith(".") and part != ".." for part in PurePath(name).parts)


def is_tar(first: bytes) -> bool:
    """Return whether bytes are the first 512 bytes of a tar archive."""
    return first[257:265] in (b"ustar\x0000", b"ustar  \0")


def decompress_pieces(pieces: Iterator[bytes], name: str, *, tar: bool = False) -> Iterator[bytes]:
    """Decompress a file, given in pieces of which the first has at least 512 bytes.

    tar: accept an uncompressed tar archive, which is otherwise refused.
    Raises RequestError if the file name implies another format or the contents are not text, and one of `DAMAGE` if the
    file is truncated or damaged.
    """
    first = next(pieces, b"")
    found = next((each for each in _FORMATS if each.magic.match(first)), None)
    promised = next((each for each in _FORMATS if PurePath(name).suffix.lower() == each.suffix), None)
    if promised and promised != found and first:
        what = f"a {found.suffix} file" if found else "not compressed"
        raise RequestError(
            f"{name} is not a {promised.suffix} file, but {what}", "Rename the file, or download it again."
        )
    if promised and not first:
        raise EOFError("the file is empty")
    whole = chain([first], pieces)
    if found:
        yield from _inflated(whole, found.start)
        return
    if not (tar and is_tar(first)):
        _refuse_others(first, name)
    yield from whole


def _inflated(pieces: Iterator[bytes], start: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress concatenated streams; zeros between them are padding."""
    stream = start()
    for given in pieces:
        piece = given
        while piece or not (stream.eof or stream.needs_input):
            if stream.eof:
                if not (piece := piece.lstrip(b"\0")):
                    break
                stream = start()
            yield stream.decompress(piece, _MOST)
            piece = stream.unused_data if stream.eof else b""
    while not stream.eof and (rest := stream.decompress(b"", _MOST)):
        yield rest
    if not stream.eof:
        raise EOFError("the file is truncated")


def _refuse_others(first: bytes, name: str) -> None:
    """Raise RequestError if the first bytes are the signature of a format that is not text."""
    for magic, what, remedy in _OTHERS:
        if first.startswith(magic):
            raise RequestError(f"{name} is {what}, not text", remedy.format(name=name))
    if is_tar(first):
        raise RequestError(f"{name} is a tar archive, not text", f"Unpack it: tar -xOf {name} | ooc ingest ... - OUT")
