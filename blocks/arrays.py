"""Files of named arrays: HDF5, written once, contiguous, and mapped by file offset without the HDF5 library.

What a file has to hold is a NamedTuple of arrays, whose annotations say of which dtype each is: `Int64` and the others.
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
from blocks.files import REMEDY, checksum, disk_errors, publish

_NUMBERS = ("bool", *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
Int64 = Annotated[np.ndarray, "int64"]
Uint32 = Annotated[np.ndarray, "uint32"]
Uint64 = Annotated[np.ndarray, "uint64"]
Float32 = Annotated[np.ndarray, "float32"]
Float64 = Annotated[np.ndarray, "float64"]


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


@cache
def _fields(holds: Any) -> dict[str, tuple[str, ...]]:
    """The dtypes that each array of a NamedTuple may have."""
    return {name: hint.__metadata__ for name, hint in get_type_hints(holds, include_extras=True).items()}


def open_arrays(
    path: Path, entry: Mapping[str, Any], holds: Any, *, remedy: str = REMEDY, streamed: bool = False
) -> dict[str, np.ndarray]:
    """Map the arrays of a file that a manifest names, which may be damaged or come from a stranger: see `map_arrays`.

    entry: a `blocks.schemas.ArrayFile`. holds: the NamedTuple of arrays that they have to be, None for any numbers.
    Raises WorkFailed if the file is missing or has another size, or if its arrays are others or reach beyond it.
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
                f"{path}: the array {name}, {size} numbers from byte {offset} on, does not fit into the file", remedy
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
