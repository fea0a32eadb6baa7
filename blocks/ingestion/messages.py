"""Messages to the workers of every ingestion, and their answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NOBODY = 0  # in place of a worker, for rows that were not spilled because they have no entries


@dataclass
class LineChunk:
    """Whole lines or rows of one input.

    form: line format, whose type selects the parser.
    """

    number: int
    source: str
    line: int
    data: bytes = field(repr=False)
    form: Any = field(repr=False)


@dataclass
class WordCountsRequest:
    """Request for the counts of a worker, which then frees them."""


class SpilledRows(NamedTuple):
    """Consecutive rows and their entries in the spill file of a worker, starting at byte `offset`."""

    worker: int  # process id of the worker that assigned the ids
    offset: int
    rows: int
    entries: int


@dataclass
class SortRowsTask:
    """Consecutive pieces to be sorted by the bucket of their rows.

    first: index of the first row.
    """

    number: int
    pieces: list[SpilledRows] = field(repr=False)
    first: int
    seed: int
    buckets: int


class SortedRunOffsets(NamedTuple):
    """Start of each bucket in a sorted run."""

    rows: np.ndarray  # int64 (buckets+1,)
    entries: np.ndarray  # int64 (buckets+1,)


class SortedRunSegment(NamedTuple):
    """Consecutive buckets of a sorted run."""

    run: int
    sizes: tuple[int, int]  # numbers of rows and entries in the whole run
    parts: tuple[slice, slice]  # rows and entries of these buckets


@dataclass
class WriteBucketsTask:
    """A block to write: consecutive buckets of all runs.

    number: block index, which seeds the shuffle and names the file.
    """

    number: int
    segments: list[SortedRunSegment] = field(repr=False)
    slice_bounds: np.ndarray | None = field(repr=False)
    seed: int


def spill_file(spill: Path, worker: int) -> Path:
    """Return the path of the spill file of a worker."""
    return spill / f"parsed-{worker}"
