"""Read design matrices from .npz files: sparse (scipy.sparse.save_npz) or a dense array `X`, with an optional target
`y`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from blocks.design.design_rows import MOST_COLUMNS, MOST_ROWS
from blocks.design.messages import DenseRowsChunk, MatrixEntriesChunk
from blocks.design.npz_members import NpzArchive, NpzMember
from blocks.errors import RequestError

_SPARSE = ("csr", "csc", "coo")
_SHORT = 1 << 10  # maximum bytes of arrays that hold a word or two numbers
_COPIES = 16  # maximum memory for each byte of a row while it is read


class NpzDesignShape(NamedTuple):
    """Shape of the matrix, and the target float64 (n,), if any."""

    rows: int
    columns: int
    y: np.ndarray | None


def design_shape(archive: NpzArchive, source: str, room: int) -> NpzDesignShape:
    """Return the shape of the matrix.

    Raises RequestError if the file has neither format.

    room: maximum bytes of the target.
    """
    if "X" in archive.names:
        shape = archive.open("X").shape
    elif {"format", "shape"} <= archive.names:
        _format(archive, source)
        shape = tuple(archive.open("shape").whole(_SHORT).tolist())
    else:
        raise RequestError(
            f"{source} has neither an array X nor a sparse matrix; its arrays are {sorted(archive.names)}",
            "Write the file with scipy.sparse.save_npz(FILE, X), or numpy.savez(FILE, X=X, y=y).",
        )
    if len(shape) != 2:
        raise RequestError(f"{source}: X must be two-dimensional, got shape {tuple(shape)}")
    if not (0 < shape[0] <= MOST_ROWS and 0 < shape[1] <= MOST_COLUMNS):
        raise RequestError(
            f"{source}: X has {shape[0]} rows and {shape[1]} columns",
            f"It must have at least 1 of each, and at most {MOST_ROWS} rows and {MOST_COLUMNS} columns.",
        )
    return NpzDesignShape(*shape, archive.open("y").whole(room).astype(np.float64) if "y" in archive.names else None)


def chunks(
    archive: NpzArchive, source: str, shape: NpzDesignShape, size: int, room: int, progress: Callable[[int], object]
) -> Iterator[MatrixEntriesChunk | DenseRowsChunk]:
    """Yield the matrix in chunks of about `size` bytes.

    room: maximum bytes of offsets or of a row.
    progress: function called with the number of bytes just read.
    """
    if "X" in archive.names:
        yield from _dense(archive.open("X"), source, shape, size, room, progress)
        return
    entries = max(size // 16, 1)
    by_column = _format(archive, source) == "csc"
    if _format(archive, source) == "coo":
        made = _coordinates(archive, source, entries)
    else:
        made = _compressed(archive, source, shape.columns if by_column else shape.rows, entries, room)
    for number, (major, minor, values) in enumerate(made):
        rows, columns = (minor, major) if by_column else (major, minor)
        outside = (rows < 0) | (rows >= shape.rows) | (columns < 0) | (columns >= shape.columns)
        if outside.any():
            at = int(np.argmax(outside))
            raise RequestError(
                f"{source}: an entry is in row {rows[at]}, column {columns[at]} (counted from 0), but the matrix has "
                f"{shape.rows} rows and {shape.columns} columns",
                "Write the file again.",
            )
        progress(values.nbytes)
        yield MatrixEntriesChunk(number, source, rows.astype(np.uint32), columns.astype(np.uint32), values)


def _format(archive: NpzArchive, source: str) -> str:
    found = archive.open("format").whole(_SHORT)[0]
    name = found.decode() if isinstance(found, bytes) else str(found)
    if name not in _SPARSE:
        raise RequestError(
            f"{source}: a sparse matrix in {name} format cannot be read", "Convert it with .tocsr(), then save_npz."
        )
    return name


def _coordinates(archive: NpzArchive, source: str, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    members = [archive.open(name) for name in ("row", "col", "data")]
    total = _length(members, source)
    for first in range(0, total, size):
        row, column, values = (member.take(min(size, total - first)) for member in members)
        yield row, column, values


def _length(members: Sequence[NpzMember], source: str) -> int:
    """Return the common length of arrays with one element per entry.

    Raises RequestError if the lengths differ.
    """
    if len({member.shape for member in members}) > 1 or len(members[0].shape) != 1:
        told = ", ".join(f"{member.name} {member.shape}" for member in members)
        raise RequestError(
            f"{source}: the arrays have different shapes: {told}", "Write the file again with scipy.sparse.save_npz."
        )
    return members[0].shape[0]


def _compressed(
    archive: NpzArchive, source: str, lines: int, size: int, room: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield rows, columns and values of a CSR matrix, or columns, rows and values of a CSC matrix.

    lines: number of rows (CSR) or columns (CSC).
    """
    offsets, minor, data = archive.open("indptr").whole(room), archive.open("indices"), archive.open("data")
    total = _length([minor, data], source)
    if offsets.size != lines + 1 or offsets[0] != 0 or offsets[-1] > total or (offsets[1:] < offsets[:-1]).any():
        raise RequestError(
            f"{source}: indptr must ascend from 0 to {total} in {lines + 1} elements",
            "Write the file again with scipy.sparse.save_npz.",
        )
    total = int(offsets[-1])
    for first in range(0, total, size):
        last = min(first + size, total)
        begin, end = np.searchsorted(offsets, first, "right") - 1, np.searchsorted(offsets, last)
        lengths = np.diff(np.clip(offsets[begin : end + 1], first, last))
        yield np.repeat(np.arange(begin, end), lengths), minor.take(last - first), data.take(last - first)


def _dense(
    member: NpzMember, source: str, shape: NpzDesignShape, size: int, room: int, progress: Callable[[int], object]
) -> Iterator[MatrixEntriesChunk | DenseRowsChunk]:
    rows, columns = (shape.columns, shape.rows) if member.by_column else (shape.rows, shape.columns)
    if _COPIES * columns * member.dtype.itemsize > room:
        raise RequestError(
            f"{source}: a row of X, {columns} numbers, does not fit in --memory",
            "Increase --memory; or write a sparse matrix with scipy.sparse.save_npz.",
        )
    step, numbers = max(size // (columns * max(member.dtype.itemsize, 4)), 1), count()
    for first in range(0, rows, step):
        values = member.take(min(step, rows - first) * columns)
        progress(values.nbytes)
        if not member.by_column:
            yield DenseRowsChunk(next(numbers), source, first, values.reshape(-1, columns))
            continue
        found = np.flatnonzero(values)
        column, row = np.divmod(found, columns)
        yield MatrixEntriesChunk(
            next(numbers), source, row.astype(np.uint32), (column + first).astype(np.uint32), values[found]
        )
