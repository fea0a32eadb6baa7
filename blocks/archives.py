"""Read the files in tar and zip archives one after another, in one pass, without unpacking the archive."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import IO, NamedTuple

from blocks.decompression import decompress_pieces, is_hidden, is_tar, is_zip
from blocks.errors import RequestError
from blocks.text_inputs import InputErrors, InputOpenOptions, Progress, TextInput, file_pieces, is_stream, open_input

_PIECE = 1 << 20
_MOST_HEADER = 1 << 22  # maximum bytes of a tar header, including a long name
_OFFICE = ("[Content_Types].xml", "mimetype")  # office documents and e-books are zip archives with one of these


class ArchiveMember(NamedTuple):
    """A file in an archive.

    path: archive and file, for messages.
    name: name in the archive.
    """

    path: str
    name: str
    content: bytes


def is_archive(path: str) -> bool:
    """Return whether a file is a tar archive, compressed or not, or a zip archive."""
    if is_stream(path):
        return False
    with open_input(path) as file:
        if is_zip(file):
            return True
    try:
        with open_input(path) as file:
            return is_tar(next(decompress_pieces(file_pieces(file), path, tar=True), b""))
    except (RequestError, *InputErrors.kinds):
        return False  # the error is reported when the file is opened


def archive_members(path: str, pattern: str, opening: InputOpenOptions, progress: Progress) -> Iterator[ArchiveMember]:
    """Yield the files of an archive that are not hidden and match a glob, as UTF-8 text with line feeds.

    progress: function called with the number of bytes just read.
    Raises RequestError if the archive is truncated or damaged, or a file in it is too large.
    """
    with open_input(path) as file, InputErrors(path):
        if is_zip(file):
            found = _of_zip(file, path, progress)
        else:
            found = _of_tar(_ForwardOnlyFile(decompress_pieces(file_pieces(file, progress), path, tar=True)), path)
        for name, pieces in found:
            if PurePath(name).match(pattern) and not is_hidden(name):
                where = f"{path}/{name}"
                source = TextInput(where, pieces=decompress_pieces(pieces, where), **opening._asdict())
                yield ArchiveMember(where, name, source.take(lambda _: 0))


def _of_zip(file: IO[bytes], path: str, progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    try:
        archive = zipfile.ZipFile(file)
        if any(name in _OFFICE for name in archive.namelist()):
            raise RequestError(f"{path} is an office document or an e-book, not text", "Save it as plain text.")
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as inside:
                    yield member.filename, iter(partial(inside.read, _PIECE), b"")
            progress(member.compress_size)
    except (RuntimeError, NotImplementedError) as error:
        raise RequestError(f"{path} cannot be unpacked: {error}", "Unpack it with another program.") from None


def _of_tar(stream: _ForwardOnlyFile, path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the members of a tar archive.

    Headers are read one by one, as `TarFile.next` treats a damaged header as the end.
    """
    with tarfile.TarFile(fileobj=stream, mode="r") as archive:  # type: ignore[arg-type]
        member = archive.firstmember  # type: ignore[attr-defined]
        while member:
            if member.isfile() and (inside := archive.extractfile(member)):
                yield member.name, iter(partial(inside.read, _PIECE), b"")
            stream.seek(archive.offset)
            member = _next_header(archive)
        stream.read_all()


def _next_header(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    """Return the next member, or None at the end."""
    try:
        return tarfile.TarInfo.fromtarfile(archive)
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return None
    except (tarfile.HeaderError, ValueError, RecursionError) as error:
        raise tarfile.ReadError(str(error)) from None


class _ForwardOnlyFile:
    """Forward-only file object that reads from an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest, self._at = pieces, b"", 0

    def tell(self) -> int:
        return self._at

    def seek(self, place: int) -> None:
        if place < self._at:
            raise tarfile.ReadError("members of the archive overlap")
        while self._at < place and self.read(min(place - self._at, _PIECE)):
            pass

    def read(self, size: int) -> bytes:
        if size > _MOST_HEADER:
            raise tarfile.ReadError("the name of a member is too long")
        pieces, wanted = [], size
        while wanted > 0:
            self._rest = self._rest or next(self._pieces, b"")
            if not self._rest:
                break
            pieces.append(self._rest[:wanted])
            self._rest = self._rest[wanted:]
            wanted -= len(pieces[-1])
        self._at += size - wanted
        return b"".join(pieces)

    def read_all(self) -> None:
        """Read to the end, where there may be a checksum."""
        while self.read(_PIECE):
            pass

    def close(self) -> None:
        pass
