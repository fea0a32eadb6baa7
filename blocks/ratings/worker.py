"""Worker process of ratings ingestion: parse chunks, assign ids to names, write blocks and slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.compiler import compile_kernels
from blocks.errors import RequestError
from blocks.ingestion.messages import LineChunk, SortedRunOffsets, SortRowsTask, SpilledRows, WriteBucketsTask
from blocks.ingestion.name_merging import WorkerNameFiles, leave_names
from blocks.ingestion.word_counter import WordCounter
from blocks.ingestion.word_table import LINES, WordTable
from blocks.ingestion.worker import Arrays, BucketSortingWorker, SpillDtypes
from blocks.ratings.formats import RatingsFormat
from blocks.ratings.hold_out import HoldOutRule, entry_hashes
from blocks.ratings.input_chunks import TableRatingsChunk
from blocks.ratings.matrix_writer import Entries, last_duplicates, write_row_block
from blocks.ratings.rating_parser import RatingFields, RatingsParser
from blocks.ratings.transposition import ENTRY, TIMED_ENTRY, WriteColumnsTask, spill_columns, write_columns
from blocks.shuffle import partition_entries

SIDES = ("rows", "columns")  # kinds of names: users and items
_NAME_BYTES = 170  # memory for each name besides its letters: dictionary entry, string header, id, counts


class RatingsReaderSettings(NamedTuple):
    """Settings of all workers.

    spill: spill directory.
    names_bytes: memory of a worker for names.
    hold_out, held: which ratings to hold out, and the spill directory of their dataset, if any.
    """

    spill: str
    low: float
    high: float
    skip: bool
    names_bytes: int
    hold_out: HoldOutRule | None = None
    held: str = ""


class ParsedRatings(NamedTuple):
    """Result of parsing a chunk.

    first_times: see `ParsedTimes.first_of_each_kind`.
    """

    piece: SpilledRows
    skipped: int
    first_problem: str
    first_times: dict[str, str]


class RatingsIngestWorker(BucketSortingWorker):
    """Ingestion worker for ratings. An entry is a rating with its row and column: first the ids of user and item, after
    sorting the row's place and the column's rank. Also handles `WriteColumnsTask`.
    """

    parsed = sorted = SpillDtypes((), (ENTRY,))

    def __init__(self, reading: RatingsReaderSettings) -> None:
        super().__init__(reading.spill)
        self._names_bytes, self._hold_out, self._held = reading.names_bytes, reading.hold_out, Path(reading.held)
        self._lines = RatingsParser(reading.low, reading.high, skip=reading.skip)
        self._tables = {side: WordTable() for side in SIDES}
        self._counts = {side: WordCounter() for side in SIDES}
        self.tasks |= {LineChunk: self._parse, TableRatingsChunk: self._parse, WriteColumnsTask: write_columns}

    def warm_up(self) -> None:
        """Run every kernel once on tiny input, to compile it."""
        line = LineChunk(0, "", 1, b"1\t2\t3\n", RatingsFormat(ord("\t"), (0, 1, 2)))
        self._numbered(self._lines.read(line))
        partition_entries(np.zeros(1, self.parsed.entries[0]), 0, 1)

    def _parse(self, chunk: LineChunk | TableRatingsChunk) -> ParsedRatings:
        known = self._lines.skipped
        fields = self._lines.read(chunk)
        entries = self._numbered(fields)
        held = sum(_NAME_BYTES * len(table) + table.letters for table in self._tables.values())
        if held > self._names_bytes:
            raise RequestError(
                f"the names of users and items do not fit in memory: {sum(map(len, self._tables.values()))} so far, "
                f"at {chunk.source}",
                "Increase --memory, or reduce --workers.",
            )
        skipped = self._lines.skipped - known
        piece = self.leave([entries], 0, entries.size)
        where = f"{chunk.source}, {'line' if isinstance(chunk, LineChunk) else 'row'}"
        first_times = fields.times.first_of_each_kind(where) if fields.times else {}
        return ParsedRatings(piece, skipped, self._lines.first_problem if skipped else "", first_times)

    def _numbered(self, found: RatingFields) -> np.ndarray:
        """Number this worker's users and items; return the entries, (N,), with these numbers as rows and columns."""
        entries = np.empty(found.values.size, self.parsed.entries[0])
        for side, name, names in zip(SIDES, ("row", "column"), (found.users, found.items), strict=True):
            ids = self._tables[side].add(names.joined, LINES, 1)[0]
            if names.places is not None:
                ids = ids[names.places]
            self._counts[side].add(ids, np.array([ids.size], np.uint32), len(self._tables[side]))
            entries[name] = ids
        entries["value"] = found.values
        if found.times is not None:
            entries["time"] = found.times.values
        return entries

    def counted(self) -> dict[str, WorkerNameFiles]:
        """Return the names of users and items."""
        counted = {
            side: leave_names(self.spill, side, table, self._counts[side], len(table))
            for side, table in self._tables.items()
        }
        del self._tables, self._counts
        return counted

    def placed(self, arrays: Arrays, worker: int) -> Arrays:
        (entries,) = arrays
        for side, name in zip(SIDES, ("row", "column"), strict=True):
            entries[name] = self.places(side, worker)[entries[name]]
        return arrays

    def by_bucket(self, arrays: list[np.ndarray], run: SortRowsTask) -> tuple[Arrays, SortedRunOffsets]:
        sorted_, bounds = partition_entries(arrays[0], run.seed, run.buckets)
        return [sorted_], SortedRunOffsets(np.zeros_like(bounds), bounds)

    def write(self, arrays: list[np.ndarray], block: WriteBucketsTask) -> dict[str, Any]:
        (found,) = arrays
        entries = Entries(found["row"], found["column"], found["value"])
        if self._hold_out is None:
            return _publish(self.spill, entries, block)
        kept = last_duplicates(entries)
        entries = Entries(*(array[kept] for array in entries))
        keys = found["time"][kept] if self._hold_out.last else entry_hashes(self.spill, entries)
        held, duplicates = self._hold_out.held(entries, keys), found.size - kept.size
        return {
            "duplicates": duplicates,
            "train": _publish(self.spill, Entries(*(array[~held] for array in entries)), block),
            "held": _publish(self._held, Entries(*(array[held] for array in entries)), block) if held.any() else None,
        }


class TimedRatingsIngestWorker(RatingsIngestWorker):
    """Worker for ratings with times."""

    parsed = sorted = SpillDtypes((), (TIMED_ENTRY,))


def _publish(spill: Path, entries: Entries, block: WriteBucketsTask) -> dict[str, Any]:
    """Write a block to the dataset with this spill directory.

    Returns its manifest entry.
    """
    assert block.slice_bounds is not None
    entry, written = write_row_block(spill.parent, block.number, entries, block.slice_bounds, block.seed)
    spill_columns(spill, entry["file"], written)
    return entry


def load() -> None:
    """Compile all kernels that any input may need."""
    nothing = RatingsReaderSettings("", -np.inf, np.inf, False, 0)

    def warm_up() -> None:
        for kind in (RatingsIngestWorker, TimedRatingsIngestWorker):
            kind(nothing).warm_up()

    compile_kernels(warm_up)


def start(reading: RatingsReaderSettings) -> RatingsIngestWorker:
    """Return the message handler for `blocks.workers.WorkerPool`."""
    load()
    return (TimedRatingsIngestWorker if reading.hold_out and reading.hold_out.last else RatingsIngestWorker)(reading)
