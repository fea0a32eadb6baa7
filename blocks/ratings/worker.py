"""What a worker process does while ratings are ingested: parse chunks, sort runs by block, write blocks and slices.

Bulk goes through files in the spill directory, each written by one worker; answers hold small facts only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from blocks.compiler import prepare
from blocks.corpus.messages import Words
from blocks.errors import RequestError
from blocks.files import disk_errors
from blocks.ingestion.counts import Counts
from blocks.ingestion.messages import LinesChunk, Report
from blocks.ingestion.word_table import LINES, WordTable
from blocks.ratings.chunks import RowsChunk
from blocks.ratings.formats import Format
from blocks.ratings.reader import Reader
from blocks.ratings.transposition import ENTRY, ColumnsToWrite, gathered, spill_columns, write_columns
from blocks.ratings.writer import Entries, write_row_block
from blocks.shuffle import partition_entries

SIDES = ("rows", "columns")
_NAME_BYTES = 170  # of a name in memory, besides its letters: dictionary entry, string header, id, counts


class RatingsReading(NamedTuple):
    """How ratings are read; the same for all workers. spill: a directory. names_bytes: a worker may use for names."""

    spill: str
    low: float
    high: float
    skip: bool
    names_bytes: int


class RatingsSpilled(NamedTuple):
    """Where the entries of a chunk went, with rows and columns as their worker numbers them."""

    worker: int
    offset: int
    entries: int
    skipped: int
    first_problem: str


@dataclass
class EntryRun:
    """Consecutive pieces of spill files, to be sorted by bucket.

    pieces: (spill file, byte at which it begins, entries, file of row numbers, file of column ranks).
    """

    path: str
    pieces: list[tuple[str, int, int, str, str]] = field(repr=False)
    seed: int
    buckets: int


@dataclass
class RowsToWrite:
    """A block: some consecutive buckets of all runs. segments: (file, first entry, last)."""

    root: str
    number: int
    segments: list[tuple[str, int, int]] = field(repr=False)
    slice_bounds: np.ndarray = field(repr=False)
    seed: int


class RatingsWorker:
    """Answers the messages above, and `ColumnsToWrite`."""

    def __init__(self, reading: RatingsReading) -> None:
        self._reading = reading
        self._lines = Reader(reading.low, reading.high, skip=reading.skip)
        self._tables = {side: WordTable() for side in SIDES}
        self._counts = {side: Counts() for side in SIDES}
        self._spill: IO[bytes] | None = None
        self._maps: dict[str, np.ndarray] = {}
        self._tasks: dict[type, Callable[[Any], Any]] = {
            LinesChunk: self._parse,
            RowsChunk: self._parse,
            Report: self._report,
            EntryRun: self._sort,
            RowsToWrite: self._write_rows,
            ColumnsToWrite: write_columns,
        }

    def warm_up(self) -> None:
        """Run every kernel once, on next to nothing."""
        self._numbered(LinesChunk(0, "", 1, b"1\t2\t3\n", Format(ord("\t"), (0, 1, 2))))
        partition_entries(np.zeros(1, ENTRY), 0, 1)

    def __call__(self, message: Any) -> Any:
        """Do what a message asks."""
        with disk_errors(Path(self._reading.spill)):
            return self._tasks[type(message)](message)

    def _parse(self, chunk: LinesChunk | RowsChunk) -> RatingsSpilled:
        known = self._lines.skipped
        entries = self._numbered(chunk)
        held = sum(_NAME_BYTES * len(table) + table.letters for table in self._tables.values())
        if held > self._reading.names_bytes:
            raise RequestError(
                f"the names of users and items do not fit in memory: {sum(map(len, self._tables.values()))} so far, "
                f"at {chunk.source}",
                "Raise --memory, or use fewer --workers.",
            )
        if self._spill is None:
            self._spill = (Path(self._reading.spill) / f"entries-{os.getpid()}").open("wb")
        offset = self._spill.tell()
        self._spill.write(entries.data)
        self._spill.flush()
        skipped = self._lines.skipped - known
        return RatingsSpilled(os.getpid(), offset, entries.size, skipped, self._lines.first_problem if skipped else "")

    def _numbered(self, chunk: LinesChunk | RowsChunk) -> np.ndarray:
        """ENTRY (N,), with the numbers of this worker for rows and columns."""
        found = self._lines.read(chunk)
        entries = np.empty(found.values.size, ENTRY)
        for side, name, names in zip(SIDES, ("row", "column"), (found.users, found.items), strict=True):
            ids = self._tables[side].add(names.joined, LINES, 1)[0]
            if names.places is not None:
                ids = ids[names.places]
            self._counts[side].add(ids, np.array([ids.size], np.uint32), len(self._tables[side]))
            entries[name] = ids
        entries["value"] = found.values
        return entries

    def _report(self, _: Report) -> dict[str, Words] | None:
        if self._spill is None:
            return None
        self._spill.close()
        folder, me = Path(self._reading.spill), os.getpid()
        words = {}
        for side in SIDES:
            terms, counts = folder / f"{side}-{me}", folder / f"{side}-counts-{me}"
            terms.write_bytes(self._tables[side].words())
            self._counts[side].write(counts, len(self._tables[side]))
            words[side] = Words(me, str(terms), str(counts), len(self._tables[side]))
        del self._tables, self._counts
        return words

    def _sort(self, run: EntryRun) -> np.ndarray:
        """Write the run; returns int64 (buckets+1,), where each bucket begins in it."""
        entries = []
        for path, offset, size, rows, columns in run.pieces:
            piece = np.fromfile(path, ENTRY, size, offset=offset)
            piece["row"], piece["column"] = self._map(rows)[piece["row"]], self._map(columns)[piece["column"]]
            entries.append(piece)
        sorted_, bounds = partition_entries(np.concatenate(entries), run.seed, run.buckets)
        Path(run.path).write_bytes(sorted_.data)
        return bounds

    def _map(self, path: str) -> np.ndarray:
        if path not in self._maps:
            self._maps[path] = np.memmap(path, np.uint32, "r")
        return self._maps[path]

    def _write_rows(self, block: RowsToWrite) -> dict[str, Any]:
        found = gathered(block.segments)
        entries = Entries(found["row"], found["column"], found["value"])
        entry, written = write_row_block(Path(block.root), block.number, entries, block.slice_bounds, block.seed)
        spill_columns(self._reading.spill, block.number, written)
        return entry


def load() -> None:
    """Have all kernels ready, whatever will be read."""
    nothing = RatingsReading("", -np.inf, np.inf, False, 0)
    prepare(RatingsWorker(nothing).warm_up)


def start(reading: RatingsReading) -> RatingsWorker:
    """The handler of `blocks.workers.Workers`."""
    load()
    return RatingsWorker(reading)
