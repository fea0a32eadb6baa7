"""What the ingestion of any kind of dataset asks of its workers, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NOBODY = 0  # instead of a worker, of rows that were not spilled, as they have no entries


@dataclass
class LinesChunk:
    """Some whole lines, or rows, of one input. form: how they are read, which says the worker what reads them."""

    number: int
    source: str
    line: int
    data: bytes = field(repr=False)
    form: Any = field(repr=False)


@dataclass
class Report:
    """Ask a worker for what it has counted while it read; it forgets that."""


class Piece(NamedTuple):
    """Consecutive rows and their entries in the spill file of a worker, from the byte `offset` on."""

    worker: int  # process id: whose numbering ids have
    offset: int
    rows: int
    entries: int


@dataclass
class Run:
    """Consecutive pieces to be sorted by the bucket of their rows. first: the number of the first row."""

    number: int
    pieces: list[Piece] = field(repr=False)
    first: int
    seed: int
    buckets: int


class SortedRun(NamedTuple):
    """Where each bucket begins in a sorted run."""

    rows: np.ndarray  # int64 (buckets+1,)
    entries: np.ndarray  # int64 (buckets+1,)


class RunSegment(NamedTuple):
    """Consecutive buckets of a sorted run."""

    run: int
    sizes: tuple[int, int]  # rows and entries of the whole run
    parts: tuple[slice, slice]  # rows and entries of these buckets


@dataclass
class BucketsToWrite:
    """A block: some consecutive buckets of all runs. `number` keys the shuffle and names the file."""

    number: int
    segments: list[RunSegment] = field(repr=False)
    slice_bounds: np.ndarray | None = field(repr=False)
    seed: int


def spill_file(spill: Path, worker: int) -> Path:
    """Where a worker leaves the rows that it has parsed."""
    return spill / f"parsed-{worker}"
