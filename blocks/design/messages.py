"""Messages to the workers that ingest a design matrix, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from blocks.design.dense_spill import DenseSpillFile
from blocks.design.design_rows import ValueProperties
from blocks.design.sparse_runs import SparseRunFile, SparseRunSegment


class DesignReaderSettings(NamedTuple):
    """Settings of all workers.

    spill: spill directory.
    counts_bytes: memory of a worker for counting the entries of columns.
    """

    spill: str
    counts_bytes: int


@dataclass
class MatrixEntriesChunk:
    """Entries of a matrix.

    rows, columns: uint32 (N,).
    values: (N,), any real dtype.
    """

    number: int
    source: str
    rows: np.ndarray = field(repr=False)
    columns: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)


@dataclass
class DenseRowsChunk:
    """Rows of a dense array.

    row: index of the first row.
    values: (R, p), any real dtype.
    names: column names, if any.
    y: float64 (R,) or (0,).
    first: index of the first column; rows are counted by the chunks that contain column 0.
    """

    number: int
    source: str
    row: int
    values: np.ndarray = field(repr=False)
    names: Sequence[str] | None = field(default=None, repr=False)
    y: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    first: int = 0


class SpilledChunk(NamedTuple):
    """Result of parsing a chunk, and where its rows were spilled.

    records: number of rows or lines of entries.
    columns: lower bound on the number of columns.
    queries: see `SparseDesignRows`.
    """

    records: int
    columns: int
    y: np.ndarray
    facts: ValueProperties
    spill: SparseRunFile | DenseSpillFile
    queries: bool = False


@dataclass
class WriteBlockTask:
    """The columns from `first` to `last` (exclusive) to write; the answer is the manifest entry.

    offsets: float64 (W,), prescribed offsets where nonzero; None to find all offsets.
    """

    number: int
    first: int
    last: int
    rows: int
    form: str
    offsets: np.ndarray | None = field(repr=False)

    def given(self, columns: slice) -> np.ndarray | None:
        """Return the prescribed offsets of some columns, counted from the block's first column."""
        return None if self.offsets is None else self.offsets[columns]


@dataclass
class WriteBlockFromRuns(WriteBlockTask):
    """Columns in runs.

    counts: uint32 (W,), number of entries in each column.
    source: name of the inputs in messages.
    """

    source: str
    segments: list[SparseRunSegment] = field(repr=False)
    counts: np.ndarray = field(repr=False)


@dataclass
class WriteBlockFromDenseSpill(WriteBlockTask):
    panels: list[DenseSpillFile] = field(repr=False)


@dataclass
class WriteBlockFromBed(WriteBlockTask):
    """Columns in a .bed file.

    shape: numbers of individuals and variants in the file.
    individuals: int64, rows to keep; None for all.
    """

    bed: str
    shape: tuple[int, int]
    individuals: np.ndarray | None = field(repr=False)


def moments_file(number: int) -> str:
    """Return the path, in the spill directory, of the column moments of a block."""
    return f"moments-{number}"


def offsets_file(number: int) -> str:
    """Return the path of the column offsets of a block; the file does not exist if all are 0."""
    return f"offsets-{number}"
