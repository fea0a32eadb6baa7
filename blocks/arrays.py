"""Files of named arrays: HDF5, written once, contiguous, and mapped by file offset without the HDF5 library."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.files import checksum, disk_errors, publish


class Where(NamedTuple):
    """Where one array lies in its file: byte offset, dtype name, number of elements."""

    offset: int
    dtype: str
    size: int


class Pieces(NamedTuple):
    """An array that is not in memory as a whole: its dtype, number of elements, and the runs of them in order."""

    dtype: str
    size: int
    runs: Iterable[np.ndarray]


def write_arrays(root: Path, file_name: str, arrays: Mapping[str, np.ndarray | Pieces]) -> dict[str, Any]:
    """Publish an HDF5 file of one-dimensional arrays, each contiguous and aligned to 64 bytes.

    Returns the entry for the manifest: file name below `root`, bytes, checksum, and where each array lies.
    """
    import h5py

    where = {}
    with publish(root / file_name) as beside:
        with _FailSafeFile(beside) as safe:
            with h5py.File(safe, "w", alignment_threshold=0, alignment_interval=64) as file:
                for name, array in arrays.items():
                    if isinstance(array, Pieces):
                        _write_pieces(file.create_dataset(name, (array.size,), array.dtype), array)
                    else:
                        file.create_dataset(name, data=array)
                    where[name] = Where(file[name].id.get_offset() or 0, str(array.dtype), array.size)
            safe.check()
        entry = {"bytes": beside.stat().st_size, "checksum": checksum(beside)}
    return {"file": file_name, **entry, "arrays": where}


class _FailSafeFile(io.FileIO):
    """A file for the HDF5 library, which may crash the process once a write has failed (HDF5 2.0).

    The first error is kept for `check`; nothing is written from there on.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "r+")
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of `data`, or none of it once writing has failed."""
        view, done = memoryview(data).cast("B"), 0
        try:
            while self._error is None and done < len(view):
                done += super().write(view[done:])
        except OSError as error:
            self._error = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if self._error is None else 0
        except OSError as error:
            self._error = error
            return 0

    def check(self) -> None:
        """Raise what has gone wrong."""
        if self._error is not None:
            raise self._error


def _write_pieces(written: Any, array: Pieces) -> None:
    at = 0
    for run in array.runs:
        written[at : at + run.size] = run
        at += run.size


def map_arrays(path: Path, where: Mapping[str, Any], *, streamed: bool = False) -> dict[str, np.ndarray]:
    """Map the arrays of a file written by `write_arrays`, read-only; pages come in when they are touched.

    streamed: they are read from end to end, then others are for a long time. Where files are more than memory, what is
    kept of them is then what was read last, and not what was touched most often.
    """
    with disk_errors(path), path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if streamed and hasattr(mmap, "MADV_SEQUENTIAL"):
        whole.madvise(mmap.MADV_SEQUENTIAL)
    return {
        name: np.frombuffer(whole if size else b"", dtype, count=size, offset=offset if size else 0)
        for name, (offset, dtype, size) in where.items()
    }
