"""Columns of a design matrix that are held in shared memory, as the rounds of the dynamic engine work on them.

The rows are cut into bands, by which a worker takes its share of every column. How many there are is a property of the
design: sums over a column are made band by band, and so do not depend on the workers. Columns keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.design.design import DenseBlock, Design, SparseBlock
from blocks.errors import RequestError
from ooc.workers.shared_arrays import ArraySpec

MOST_BANDS = 16
_BAND_ENTRIES = 32  # that a column has on average in a band, at least: fewer are not worth another worker's way to them
_BOUNDS, _ROWS, _VALUES = "held.bounds", "held.rows", "held.values"


class HeldSparse(NamedTuple):
    """m columns with N entries."""

    bounds: np.ndarray  # int64 (m, B+1), where the entries of each column in each of B bands begin, and where they end
    rows: np.ndarray  # uint32 (N,)
    values: np.ndarray  # float32 (N,)


class HeldDense(NamedTuple):
    """m columns with all values."""

    bounds: np.ndarray  # int64 (B+1,), first row of each band
    values: np.ndarray  # float32 (m, n)


class Room(NamedTuple):
    """What can be held at a time; a column of a dense design has as many entries as there are rows."""

    columns: int
    entries: int


class Gathering(NamedTuple):
    """Columns of a block, numbered from its first one on, int64 (k,), and at which place the first of them is held."""

    block: int
    columns: np.ndarray
    place: int


def whole_room(design: Design) -> Room:
    """For all columns."""
    return Room(design.columns, design.rows * design.columns if design.dense else design.entries)


def band_bounds(design: Design) -> np.ndarray:
    """int64 (B+1,), the first row of each band."""
    entries = design.rows if design.dense else design.entries // design.columns
    bands = min(max(entries // _BAND_ENTRIES, 1), MOST_BANDS, design.rows)
    return np.arange(bands + 1) * design.rows // bands


def held_specs(design: Design, room: Room) -> dict[str, ArraySpec]:
    """The shared arrays of `held`."""
    bands = band_bounds(design).size - 1
    if design.dense:
        return {_VALUES: ArraySpec((room.columns, design.rows), "float32")}
    return {
        _BOUNDS: ArraySpec((room.columns, bands + 1), "int64"),
        _ROWS: ArraySpec((room.entries,), "uint32"),
        _VALUES: ArraySpec((room.entries,), "float32"),
    }


def held(design: Design, shared: Mapping[str, np.ndarray]) -> HeldSparse | HeldDense:
    """The columns in the arrays of `held_specs`; there may be fewer of them than the arrays have room for."""
    if design.dense:
        return HeldDense(band_bounds(design), shared[_VALUES])
    return HeldSparse(shared[_BOUNDS], shared[_ROWS], shared[_VALUES])


def gatherings(design: Design, columns: np.ndarray) -> Iterator[Gathering]:
    """What to gather from each block to hold some columns, int64 (m,), ascending."""
    places = np.searchsorted(columns, design.block_bounds)
    for block in np.flatnonzero(np.diff(places)).tolist():
        begin, end = places[block], places[block + 1]
        yield Gathering(block, columns[begin:end] - design.block_bounds[block], int(begin))


def make_room(design: Design, room: Room, columns: np.ndarray, shared: Mapping[str, np.ndarray]) -> None:
    """Say where the entries of each column will be; raises RequestError if they are more than there is room for."""
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
            "Give a larger --memory.",
        )
    if not design.dense:
        shared[_BOUNDS][: columns.size, 0] = begins[:-1]


def gather(design: Design, gathering: Gathering, into: HeldSparse | HeldDense) -> None:
    """Copy columns from their block to where room was made for them."""
    block = design.block(gathering.block)
    if isinstance(block, SparseBlock) and isinstance(into, HeldSparse):
        hold_sparse(*block, gathering.columns, gathering.place, band_bounds(design), *into)
    elif isinstance(block, DenseBlock) and isinstance(into, HeldDense):
        means = design.means[design.block_bounds[gathering.block] + gathering.columns]
        hold_dense(*block, gathering.columns, gathering.place, means, into.values)


@kernel
def hold_sparse(offsets, rows, values, columns, place, bands, into_bounds, into_rows, into_values):
    """Copy columns (k,) of a SparseBlock, whose values are 1 if there are none, to `place` and after it.

    bands: int64 (B+1,), first rows. Filled: what HeldSparse has, but for into_bounds[:, 0], which is known.
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
    """Copy columns (k,) of a DenseBlock, the mean of each, float64 (k,), where a value is missing."""
    for i in range(columns.size):
        column = columns[i]
        into[place + i] = values[column]
        for row in missing_rows[missing_offsets[column] : missing_offsets[column + 1]]:
            into[place + i, row] = means[i]
