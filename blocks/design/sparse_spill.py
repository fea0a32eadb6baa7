"""Sort entries from row order into columns, out of core.

Each chunk of entries is sorted by column and written to a file, a run. The columns of a block are then read from all
runs in order, so their rows ascend if the rows of the input do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import kernel, unmanaged_kernel
from blocks.design.design import SparseDesignBlock
from blocks.design.design_rows import WIDE_ENTRY
from blocks.design.sparse_runs import LANDMARK, SparseRunSegment
from blocks.errors import RequestError
from blocks.ratings.transposition import ENTRY


def write_run(path: Path, entries: np.ndarray) -> np.ndarray:
    """Sort entries, ENTRY or WIDE_ENTRY (N,), by column, and write them to a file.

    Returns the landmarks, uint32: the column of every `LANDMARK`th entry.
    """
    keys = entries["column"].astype(np.uint64) << np.uint64(32) | np.arange(entries.size, dtype=np.uint64)
    keys.sort()  # faster than a stable argsort, with the same result
    sorted_ = entries[keys & np.uint64(0xFFFFFFFF)]
    path.write_bytes(sorted_.data)
    return sorted_["column"][::LANDMARK].copy()


def gather_sparse(segments: Sequence[SparseRunSegment], first: int, counts: np.ndarray) -> SparseDesignBlock:
    """Return consecutive sparse columns, starting at `first`.

    counts: number of entries in each column.

    Values are float64 if any run has float64 values, else float32.
    Raises RequestError for two entries in one cell.
    """
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    rows, values = np.empty(offsets[-1], np.uint32), np.empty(offsets[-1], kind_of(segments))
    following = offsets[:-1].copy()
    for piece in _pieces(segments, first, counts.size):
        place_entries(piece, following, rows, values)
    column, row = order_rows(offsets, rows, values)
    if column >= 0:
        raise RequestError(
            f"two entries for row {row + 1}, column {first + column + 1} (counted from 1)",
            "Keep one of the two, or their sum.",
        )
    return SparseDesignBlock(offsets, rows, values)


def gather_dense(
    segments: Sequence[SparseRunSegment], first: int, counts: np.ndarray, rows: int, dtype: Any
) -> np.ndarray:
    """Return consecutive columns, starting at `first`, as a dense array, (W, rows).

    dtype: must represent all values.
    """
    values = np.zeros((counts.size, rows), dtype)
    for piece in _pieces(segments, first, counts.size):
        found = piece["value"] if values.dtype == np.float64 else piece["value"].astype(np.float32, copy=False)
        values[piece["column"], piece["row"]] = found  # found is float32 if values are int8
    if np.count_nonzero(values) != counts.sum(dtype=np.int64):
        gather_sparse(segments, first, counts)  # raises an error that names the repeated entry
    return values


def kind_of(segments: Sequence[SparseRunSegment]) -> np.dtype[Any]:
    """Return the dtype of the values in all runs: float64 if any run needs it, else float32."""
    return np.dtype(np.float64 if any(segment.wide for segment in segments) else np.float32)


def _pieces(segments: Sequence[SparseRunSegment], first: int, width: int) -> Iterator[np.ndarray]:
    """Yield the entries of each run; column indices are relative to `first`."""
    for path, wide, begin, end, place in segments:
        kind = WIDE_ENTRY if wide else ENTRY
        found = np.fromfile(path, kind, end - begin, offset=kind.itemsize * begin)
        found = found[slice(*np.searchsorted(found["column"], (first, first + width)))]
        found["column"] -= np.uint32(first)
        found["row"] += np.uint32(place)
        yield found


@unmanaged_kernel
def place_entries(entries, following, rows, values):
    """Append entries to their columns.

    entries: ENTRY or WIDE_ENTRY (N,).
    following: int64 (W,), position of the next entry of each column, updated.
    rows: uint32, filled.
    values: float32 or float64, filled.
    """
    for i in range(entries.size):
        column = entries["column"][i]
        rows[following[column]], values[following[column]] = entries["row"][i], entries["value"][i]
        following[column] += 1


@kernel
def order_rows(offsets, rows, values):
    """Sort the entries of each column by row where needed; return the column and row of a repeated entry, or -1, -1.

    offsets: int64 (W+1,).
    rows: uint32 (N,), sorted.
    values: float32 or float64 (N,), permuted alike.
    """
    for column in range(offsets.size - 1):
        begin, end = offsets[column], offsets[column + 1]
        mine, ascending = rows[begin:end], True
        for i in range(1, mine.size):
            ascending &= mine[i - 1] < mine[i]
        if ascending:
            continue
        order = np.argsort(mine, kind="mergesort")
        rows[begin:end], values[begin:end] = mine[order], values[begin:end][order]
        for i in range(1, mine.size):
            if mine[i - 1] == mine[i]:
                return column, np.int64(mine[i])
    return -1, np.int64(-1)


def warm_up() -> None:
    """Run every kernel once on tiny input, to compile it."""
    for kind, dtype in ((ENTRY, np.float32), (ENTRY, np.float64), (WIDE_ENTRY, np.float64)):
        place_entries(np.zeros(1, kind), np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(1, dtype))
        order_rows(np.array([0, 2]), np.array([1, 0], np.uint32), np.zeros(2, dtype))


@kernel
def count_columns(columns, counts):
    """Add the number of occurrences of each column in `columns`, uint32 (N,), to `counts`, uint32 (p,)."""
    for column in columns:
        counts[column] += np.uint32(1)
