"""Messages to and answers from the workers that ingest a design matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from blocks.design.dense_spill import Panel
from blocks.design.rows import Facts
from blocks.design.runs import EntryRun, Segment


class DesignReading(NamedTuple):
    """Settings of all workers. spill: directory. counts_bytes: memory of a worker for counting the entries of
    columns."""

    spill: str
    counts_bytes: int


@dataclass
class EntriesChunk:
    """Entries of an array: rows and columns uint32 (N,), values of any real dtype (N,)."""

    number: int
    source: str
    rows: np.ndarray = field(repr=False)
    columns: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)


@dataclass
class CellsChunk:
    """Rows of a dense array, the first with number `row`: values (R, p) of any real dtype.

    names: of its columns, if any. y: float64 (R,) or (0,). first: number of the first column; the chunks with column 0
    count rows.
    """

    number: int
    source: str
    row: int
    values: np.ndarray = field(repr=False)
    names: Sequence[str] | None = field(default=None, repr=False)
    y: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    first: int = 0


class Spilled(NamedTuple):
    """Result of a chunk, and where it is. records: number of rows or lines of entries. columns: lower bound on their
    number. queries: see `SparseRows`."""

    records: int
    columns: int
    y: np.ndarray
    facts: Facts
    spill: EntryRun | Panel
    queries: bool = False


@dataclass
class BlockToWrite:
    """The columns from `first` to `last` (exclusive) to write; the answer is the manifest entry.

    offsets: float64 (W,), prescribed offsets where not 0; None to find all.
    """

    number: int
    first: int
    last: int
    rows: int
    form: str
    offsets: np.ndarray | None = field(repr=False)

    def given(self, columns: slice) -> np.ndarray | None:
        """Return the prescribed offsets of some columns, counted from the first of the block."""
        return None if self.offsets is None else self.offsets[columns]


@dataclass
class FromRuns(BlockToWrite):
    """Columns in runs. counts: uint32 (W,), entries of each column. source: name of the inputs in messages."""

    source: str
    segments: list[Segment] = field(repr=False)
    counts: np.ndarray = field(repr=False)


@dataclass
class FromPanels(BlockToWrite):
    panels: list[Panel] = field(repr=False)


@dataclass
class FromBed(BlockToWrite):
    """Columns in a .bed file. shape: individuals and variants in the file. individuals: int64, rows to keep; None for
    all."""

    bed: str
    shape: tuple[int, int]
    individuals: np.ndarray | None = field(repr=False)


def moments_file(number: int) -> str:
    """Return the path, in the spill directory, of the moments of a block's columns."""
    return f"moments-{number}"


def offsets_file(number: int) -> str:
    """Return the path of the offsets of a block's columns; the file does not exist if all are 0."""
    return f"offsets-{number}"
