"""Arrays of an .npz file, read from end to end in pieces: none need fit in memory."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.lib import format as npy

from blocks.errors import RequestError
from blocks.sources import open_input


class Member:
    """An array of an archive that is being read. Attributes: `name`, `shape`, `dtype`, `by_column` (Fortran order)."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.name = name
        self._file = archive.open(f"{name}.npy")
        read_header = npy.read_array_header_1_0 if npy.read_magic(self._file) == (1, 0) else npy.read_array_header_2_0
        self.shape, self.by_column, self.dtype = read_header(self._file)
        if self.dtype.kind not in ("SU" if name == "format" else "biuf"):
            raise RequestError(f"array {name} holds {self.dtype}, not real numbers", "Convert it to float32.")

    def take(self, count: int) -> np.ndarray:
        """The next so many elements, one after the other."""
        data = self._file.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise EOFError(f"array {self.name} ends in the middle")
        return np.frombuffer(data, self.dtype)

    def whole(self) -> np.ndarray:
        """All of its elements."""
        return self.take(int(np.prod(self.shape)))


class Archive:
    """An .npz file. Attributes: `names`, of its arrays."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self.names = {name.removesuffix(".npy") for name in file.namelist()}

    def open(self, name: str) -> Member:
        """Begin to read an array; several may be read at once. Raises RequestError if it is not of real numbers."""
        return Member(self._file, name)


@contextmanager
def opened(path: str) -> Iterator[Archive]:
    """An .npz file; what is wrong with it becomes a RequestError that names it."""
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            yield Archive(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError) as error:
        raise RequestError(f"{path} is truncated or damaged: {error}", "Write it again.") from error
