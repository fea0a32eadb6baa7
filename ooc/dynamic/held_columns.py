"""Columns of a design matrix that are held in shared memory for the rounds of the dynamic engine.

The rows are split into bands, and each worker processes its own bands of every column. The number of bands depends only
on the design, and sums over a column are computed band by band, so they do not depend on the number of workers. Columns
keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.design.design import DenseDesignBlock, Design, SparseDesignBlock
from blocks.errors import RequestError
from ooc.workers.shared_arrays import ArraySpec

MOST_BANDS = 16
_BAND_ENTRIES = 32  # minimum mean number of entries per column and band: smaller bands are not worth another worker
_BOUNDS, _ROWS, _VALUES = "held.bounds", "held.rows", "held.values"


class HeldSparseColumns(NamedTuple):
    """The N entries of m sparse columns."""

    bounds: np.ndarray  # int64 (m, B+1), bounds of the entries of each column in each of B bands
    rows: np.ndarray  # uint32 (N,)
    values: np.ndarray  # float32 (N,)


class HeldDenseColumns(NamedTuple):
    """Values of m dense columns."""

    bounds: np.ndarray  # int64 (B+1,), first row of each band
    values: np.ndarray  # float32 (m, n)


class HeldColumnsCapacity(NamedTuple):
    """Capacity for held columns; a dense column has as many entries as the design has rows."""

    columns: int
    entries: int


class ColumnsToCopy(NamedTuple):
    """Columns to copy from a block.

    columns: int64 (k,), indices of the columns within the block.
    place: position of the first of them among the held columns.
    """

    block: int
    columns: np.ndarray
    place: int


def whole_room(design: Design) -> HeldColumnsCapacity:
    """Return the capacity for all columns of a design."""
    return HeldColumnsCapacity(design.columns, design.rows * design.columns if design.dense else design.entries)


def band_bounds(design: Design) -> np.ndarray:
    """Return the first row of each band, followed by the number of rows, int64 (B+1,)."""
    entries = design.rows if design.dense else design.entries // design.columns
    bands = min(max(entries // _BAND_ENTRIES, 1), MOST_BANDS, design.rows)
    return np.arange(bands + 1) * design.rows // bands


def held_specs(design: Design, room: HeldColumnsCapacity) -> dict[str, ArraySpec]:
    """Return the specs of the shared arrays of `held_columns_of_arrays`."""
    bands = band_bounds(design).size - 1
    if design.dense:
        return {_VALUES: ArraySpec((room.columns, design.rows), "float32")}
    return {
        _BOUNDS: ArraySpec((room.columns, bands + 1), "int64"),
        _ROWS: ArraySpec((room.entries,), "uint32"),
        _VALUES: ArraySpec((room.entries,), "float32"),
    }


def held_columns_of_arrays(design: Design, shared: Mapping[str, np.ndarray]) -> HeldSparseColumns | HeldDenseColumns:
    """Return the columns in the arrays of `held_specs`, whose capacity may exceed the number of columns held."""
    if design.dense:
        return HeldDenseColumns(band_bounds(design), shared[_VALUES])
    return HeldSparseColumns(shared[_BOUNDS], shared[_ROWS], shared[_VALUES])


def gatherings(design: Design, columns: np.ndarray) -> Iterator[ColumnsToCopy]:
    """Yield the columns to copy from each block in order to hold the given columns, int64 (m,), ascending."""
    places = np.searchsorted(columns, design.block_bounds)
    for block in np.flatnonzero(np.diff(places)).tolist():
        begin, end = places[block], places[block + 1]
        yield ColumnsToCopy(block, columns[begin:end] - design.block_bounds[block], int(begin))


def make_room(design: Design, room: HeldColumnsCapacity, columns: np.ndarray, shared: Mapping[str, np.ndarray]) -> None:
    """Set the bounds of the entries of each column to hold.

    Raises RequestError if the columns exceed the capacity.
    """
    if design.dense:
        entries = columns.size * design.rows
    else:
        counts = [np.zeros(1, np.int64)]
        for block, chosen, _ in gatherings(design, columns):
            offsets = design.block(block)[0]
            counts.append(offsets[chosen + 1] - offsets[chosen])
        begins = np.cumsum(np.concatenate(counts))
        entries = int(begins[-1])
    if columns.size > room.columns or entries > room.entries:
        raise RequestError(
            f"{columns.size:,} columns with {entries:,} entries do not fit into --memory, which has room for "
            f"{room.columns:,} columns with {room.entries:,} entries",
            "Increase --memory.",
        )
    if not design.dense:
        shared[_BOUNDS][: columns.size, 0] = begins[:-1]


def gather(design: Design, gathering: ColumnsToCopy, into: HeldSparseColumns | HeldDenseColumns) -> None:
    """Copy columns from their block to the positions that `make_room` has set."""
    block = design.block(gathering.block)
    if isinstance(block, SparseDesignBlock) and isinstance(into, HeldSparseColumns):
        hold_sparse(*block, gathering.columns, gathering.place, band_bounds(design), *into)
    elif isinstance(block, DenseDesignBlock) and isinstance(into, HeldDenseColumns):
        means = design.means[design.block_bounds[gathering.block] + gathering.columns]
        hold_dense(*block, gathering.columns, gathering.place, means, into.values)


@kernel
def hold_sparse(offsets, rows, values, columns, place, bands, into_bounds, into_rows, into_values):
    """Copy columns, (k,), of a SparseDesignBlock to the held columns starting at `place`. A block without values has
    values of 1.

    bands: int64 (B+1,), first row of each band.
    Filled: the arrays of HeldSparseColumns, except for into_bounds[:, 0], which must be set.
    """
    for i in range(columns.size):
        begin, end = offsets[columns[i]], offsets[columns[i] + 1]
        at = into_bounds[place + i, 0]
        into_rows[at : at + end - begin] = rows[begin:end]
        if values.size:
            into_values[at : at + end - begin] = values[begin:end]
        else:
            into_values[at : at + end - begin] = np.float32(1.0)
        into_bounds[place + i] = at + np.searchsorted(rows[begin:end], bands)


@kernel
def hold_dense(values, missing_offsets, missing_rows, columns, place, means, into):
    """Copy columns, (k,), of a DenseDesignBlock, with each column's mean, float64 (k,), in place of missing values."""
    for i in range(columns.size):
        column = columns[i]
        into[place + i] = values[column]
        for row in missing_rows[missing_offsets[column] : missing_offsets[column + 1]]:
            into[place + i, row] = means[i]
