"""Files of named arrays: HDF5, written once, contiguous, and memory-mapped by offset without the HDF5 library.

The contents of a file are declared as a NamedTuple of arrays whose annotations give the dtypes, such as `Int64`.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np

from blocks.errors import WorkFailed
from blocks.files import REMEDY, checksum, disk_errors, publish_file

_NUMBERS = ("bool", *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
Int64 = Annotated[np.ndarray, "int64"]
Uint32 = Annotated[np.ndarray, "uint32"]
Uint64 = Annotated[np.ndarray, "uint64"]
Float32 = Annotated[np.ndarray, "float32"]
Float64 = Annotated[np.ndarray, "float64"]


class ArrayLocation(NamedTuple):
    """Position of an array in its file: byte offset, dtype name, number of elements."""

    offset: int
    dtype: str
    size: int


class ArrayPieces(NamedTuple):
    """An array given in pieces that need not fit in memory together: dtype, number of elements, and the pieces in
    order."""

    dtype: str
    size: int
    runs: Iterable[np.ndarray]


def write_arrays(root: Path, file_name: str, arrays: Mapping[str, np.ndarray | ArrayPieces]) -> dict[str, Any]:
    """Publish an HDF5 file of one-dimensional arrays, each contiguous and aligned to 64 bytes.

    Returns its manifest entry: file name relative to `root`, size in bytes, checksum, and the position of each array.
    """
    import h5py

    where = {}
    with publish_file(root / file_name) as beside:
        with _FailSafeFile(beside) as safe:
            with h5py.File(safe, "w", alignment_threshold=0, alignment_interval=64) as file:
                for name, array in arrays.items():
                    if isinstance(array, ArrayPieces):
                        _write_pieces(file.create_dataset(name, (array.size,), array.dtype), array)
                    else:
                        file.create_dataset(name, data=array)
                    where[name] = ArrayLocation(file[name].id.get_offset() or 0, str(array.dtype), array.size)
            safe.check()
        entry = {"bytes": beside.stat().st_size, "checksum": checksum(beside)}
    return {"file": file_name, **entry, "arrays": where}


class _FailSafeFile(io.FileIO):
    """File object for the HDF5 library, which can crash the process after a failed write (HDF5 2.0).

    The first error is kept for `check`, and nothing is written after it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "r+")
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of `data`, or nothing after an error."""
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
        """Raise the error, if any."""
        if self._error is not None:
            raise self._error


def _write_pieces(written: Any, array: ArrayPieces) -> None:
    at = 0
    for run in array.runs:
        written[at : at + run.size] = run
        at += run.size


@cache
def _fields(holds: Any) -> dict[str, tuple[str, ...]]:
    """Return the allowed dtypes of each array in a NamedTuple."""
    return {name: hint.__metadata__ for name, hint in get_type_hints(holds, include_extras=True).items()}


def open_arrays(
    path: Path, entry: Mapping[str, Any], holds: Any, *, remedy: str = REMEDY, streamed: bool = False
) -> dict[str, np.ndarray]:
    """Memory-map the arrays of a file named by a manifest, which may be damaged or untrusted. See `map_arrays`.

    entry: a `blocks.schemas.ArrayFileEntry`.
    holds: NamedTuple of the expected arrays; None accepts any numeric arrays.
    Raises WorkFailed if the file is missing, has a different size or different arrays, or if an array extends past its
    end.
    """
    _require_size(path, entry["bytes"], remedy)
    where = entry["arrays"]
    fields = dict.fromkeys(where, _NUMBERS) if holds is None else _fields(holds)
    needed = fields.keys() - getattr(holds, "_field_defaults", {}).keys()
    if not needed <= where.keys() <= fields.keys():
        raise WorkFailed(f"{path} has the arrays {', '.join(where)}; expected {', '.join(fields)}", remedy)
    for name, (offset, dtype, size) in where.items():
        if dtype not in fields[name]:
            raise WorkFailed(
                f"{path}: the array {name} has dtype {dtype!r}; expected {' or '.join(fields[name])}", remedy
            )
        if size and (offset % np.dtype(dtype).alignment or offset + size * np.dtype(dtype).itemsize > entry["bytes"]):
            raise WorkFailed(
                f"{path}: the array {name} ({size} numbers starting at byte {offset}) extends past the end of the file",
                remedy,
            )
    return map_arrays(path, where, streamed=streamed)


def _require_size(path: Path, expected: int, remedy: str) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise WorkFailed(f"{path} is missing; expected a file of {expected} bytes", remedy) from None
    if found != expected or not found:
        raise WorkFailed(f"{path} is damaged: it has {found} bytes, expected {expected}", remedy)


def map_arrays(path: Path, where: Mapping[str, Any], *, streamed: bool = False) -> dict[str, np.ndarray]:
    """Memory-map the arrays of a file from `write_arrays`, read-only; pages are read when they are touched.

    streamed: the file is read sequentially and not again for a long time; the page cache then prefers recently read
        files over frequently read ones.
    """
    with disk_errors(path), path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if streamed and hasattr(mmap, "MADV_SEQUENTIAL"):
        whole.madvise(mmap.MADV_SEQUENTIAL)
    return {
        name: np.frombuffer(whole if size else b"", dtype, count=size, offset=offset if size else 0)
        for name, (offset, dtype, size) in where.items()
    }
