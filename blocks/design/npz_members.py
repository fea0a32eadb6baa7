"""Read arrays of an .npz file sequentially in pieces, so that no array needs to fit in memory."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.lib import format as npy

from blocks.decompression import DAMAGE
from blocks.errors import RequestError
from blocks.text_inputs import open_input

_KINDS = {"format": "SU", **dict.fromkeys(("shape", "indptr", "indices", "row", "col", "coords"), "iu")}


def _wanted(name: str) -> str:
    return {"biuf": "real numbers", "iu": "whole numbers", "SU": "text"}[_KINDS.get(name, "biuf")]


class NpzMember:
    """An array being read. Attributes: `name`, `shape`, `dtype`, `by_column` (Fortran order)."""

    def __init__(self, archive: zipfile.ZipFile, name: str, path: str) -> None:
        self.name, self._path = name, path
        try:
            self._file = archive.open(f"{name}.npy")
        except (OSError, RuntimeError) as error:  # a damaged directory gives a wrong position or version
            raise zipfile.BadZipFile(str(error)) from error
        read_header = npy.read_array_header_1_0 if npy.read_magic(self._file) == (1, 0) else npy.read_array_header_2_0
        self.shape, self.by_column, self.dtype = read_header(self._file)
        if self.dtype.kind not in _KINDS.get(name, "biuf"):
            raise RequestError(
                f"{path}: the array {name} has dtype {self.dtype}; expected {_wanted(name)}", "Write the file again."
            )

    def take(self, count: int) -> np.ndarray:
        """Return the next `count` elements."""
        data = self._file.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise EOFError(f"the array {self.name} is truncated")
        return np.frombuffer(data, self.dtype)

    def whole(self, most: int) -> np.ndarray:
        """Return the whole array.

        Raises RequestError if it is larger than `most` bytes.
        """
        size = math.prod(self.shape)
        if size * self.dtype.itemsize > most:
            raise RequestError(
                f"{self._path}: the array {self.name} takes {size * self.dtype.itemsize / 1e6:,.0f} MB,"
                f" but --memory has room for {most / 1e6:,.0f} MB",
                "Increase --memory; or write the file again if its sizes are wrong.",
            )
        return self.take(size)


class NpzArchive:
    """An .npz file. Attributes: `names`, the names of its arrays."""

    def __init__(self, file: zipfile.ZipFile, path: str) -> None:
        self._file, self._path = file, path
        self.names = {name.removesuffix(".npy") for name in file.namelist()}

    def open(self, name: str) -> NpzMember:
        """Start reading an array; several arrays can be read at once.

        Raises RequestError if its dtype is unsupported.
        """
        return NpzMember(self._file, name, self._path)


@contextmanager
def open_npz(path: str) -> Iterator[NpzArchive]:
    """Open an .npz file; errors become RequestErrors that name it."""
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            yield NpzArchive(archive, path)
    except RequestError:  # a subclass of ValueError
        raise
    except (*DAMAGE, ValueError, KeyError) as error:
        raise RequestError(f"{path} is truncated or damaged: {error}", "Write the file again.") from error
