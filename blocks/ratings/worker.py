"""Worker process of ratings ingestion: parse chunks, assign ids to names, write blocks and slices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.compiler import prepare
from blocks.errors import RequestError
from blocks.ingestion.counts import WordCounter
from blocks.ingestion.messages import BucketsToWrite, LinesChunk, PieceRun, SortedRun, SpilledPiece
from blocks.ingestion.names import WorkerNames, leave_names
from blocks.ingestion.word_table import LINES, WordTable
from blocks.ingestion.worker import Arrays, SortingWorker, SpillForm
from blocks.ratings.chunks import RowsChunk
from blocks.ratings.formats import RatingsFormat
from blocks.ratings.reader import Reader
from blocks.ratings.transposition import ENTRY, ColumnsToWrite, spill_columns, write_columns
from blocks.ratings.writer import Entries, write_row_block
from blocks.shuffle import partition_entries

SIDES = ("rows", "columns")  # kinds of names: users and items
_NAME_BYTES = 170  # memory for each name besides its letters: dictionary entry, string header, id, counts


class RatingsReading(NamedTuple):
    """Settings of all workers. spill: spill directory. names_bytes: memory of a worker for names."""

    spill: str
    low: float
    high: float
    skip: bool
    names_bytes: int


class ParsedRatings(NamedTuple):
    """Result of parsing a chunk."""

    piece: SpilledPiece
    skipped: int
    first_problem: str


class RatingsWorker(SortingWorker):
    """Ingestion worker for ratings. An entry is a rating with its row and column: first the ids of user and item, after
    sorting the row's place and the column's rank. Also handles `ColumnsToWrite`.
    """

    parsed = sorted = SpillForm((), (ENTRY,))

    def __init__(self, reading: RatingsReading) -> None:
        super().__init__(reading.spill)
        self._names_bytes = reading.names_bytes
        self._lines = Reader(reading.low, reading.high, skip=reading.skip)
        self._tables = {side: WordTable() for side in SIDES}
        self._counts = {side: WordCounter() for side in SIDES}
        self.tasks |= {LinesChunk: self._parse, RowsChunk: self._parse, ColumnsToWrite: write_columns}

    def warm_up(self) -> None:
        """Run every kernel once on tiny input, to compile it."""
        self._numbered(LinesChunk(0, "", 1, b"1\t2\t3\n", RatingsFormat(ord("\t"), (0, 1, 2))))
        partition_entries(np.zeros(1, ENTRY), 0, 1)

    def _parse(self, chunk: LinesChunk | RowsChunk) -> ParsedRatings:
        known = self._lines.skipped
        entries = self._numbered(chunk)
        held = sum(_NAME_BYTES * len(table) + table.letters for table in self._tables.values())
        if held > self._names_bytes:
            raise RequestError(
                f"the names of users and items do not fit in memory: {sum(map(len, self._tables.values()))} so far, "
                f"at {chunk.source}",
                "Give a larger --memory, or fewer --workers.",
            )
        skipped = self._lines.skipped - known
        piece = self.leave([entries], 0, entries.size)
        return ParsedRatings(piece, skipped, self._lines.first_problem if skipped else "")

    def _numbered(self, chunk: LinesChunk | RowsChunk) -> np.ndarray:
        """Return ENTRY (N,) with this worker's ids for rows and columns."""
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

    def counted(self) -> dict[str, WorkerNames]:
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

    def by_bucket(self, arrays: list[np.ndarray], run: PieceRun) -> tuple[Arrays, SortedRun]:
        sorted_, bounds = partition_entries(arrays[0], run.seed, run.buckets)
        return [sorted_], SortedRun(np.zeros_like(bounds), bounds)

    def write(self, arrays: list[np.ndarray], block: BucketsToWrite) -> dict[str, Any]:
        (found,) = arrays
        assert block.slice_bounds is not None
        entries = Entries(found["row"], found["column"], found["value"])
        entry, written = write_row_block(self.root, block.number, entries, block.slice_bounds, block.seed)
        spill_columns(self.spill, block.number, written)
        return entry


def load() -> None:
    """Compile all kernels that any input may need."""
    nothing = RatingsReading("", -np.inf, np.inf, False, 0)
    prepare(RatingsWorker(nothing).warm_up)


def start(reading: RatingsReading) -> RatingsWorker:
    """Return the message handler for `blocks.workers.Workers`."""
    load()
    return RatingsWorker(reading)
