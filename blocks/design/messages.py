"""What the ingestion of a design matrix asks of its workers, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from blocks.design.panels import Panel
from blocks.design.rows import Facts
from blocks.design.runs import Run, Segment


class DesignReading(NamedTuple):
    """The same for all workers. spill: a directory. counts_bytes: a worker may use to count entries of columns."""

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
    """Rows of a dense array, from number `row` on: values (R, p) of any real dtype.

    names: of its columns, if they have any. y: float64 (R,) or (0,). first: the number of the first column; the rows of
    those from 0 on count.
    """

    number: int
    source: str
    row: int
    values: np.ndarray = field(repr=False)
    names: Sequence[str] | None = field(default=None, repr=False)
    y: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    first: int = 0


class Spilled(NamedTuple):
    """What a chunk held, and where it is. records: rows, or lines of entries. columns: at least so many are there.

    queries: see `SparseRows`.
    """

    records: int
    columns: int
    y: np.ndarray
    facts: Facts
    spill: Run | Panel
    queries: bool = False


@dataclass
class BlockToWrite:
    """The columns from `first` to `last` (exclusive) of so many rows. The answer is the manifest entry.

    offsets: float64 (W,), which the columns have in any case where they are not 0; None if all are to be found.
    """

    number: int
    first: int
    last: int
    rows: int
    form: str
    offsets: np.ndarray | None = field(repr=False)

    def given(self, columns: slice) -> np.ndarray | None:
        """The offsets of some columns, which are counted from the first of the block on."""
        return None if self.offsets is None else self.offsets[columns]


@dataclass
class FromRuns(BlockToWrite):
    """counts: uint32 (W,), the entries of each column. source: what messages call the inputs."""

    source: str
    segments: list[Segment] = field(repr=False)
    counts: np.ndarray = field(repr=False)


@dataclass
class FromPanels(BlockToWrite):
    panels: list[Panel] = field(repr=False)


@dataclass
class FromBed(BlockToWrite):
    """shape: individuals and variants in the file. individuals: int64, those to keep; None for all."""

    bed: str
    shape: tuple[int, int]
    individuals: np.ndarray | None = field(repr=False)


def moments_file(number: int) -> str:
    """Where, in the spill directory, the moments of the columns of a block are."""
    return f"moments-{number}"


def offsets_file(number: int) -> str:
    """Where their offsets are; there is none if all are 0."""
    return f"offsets-{number}"
