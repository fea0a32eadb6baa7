"""Worker process of every ingestion.

Large data go through files in the spill directory, each written by one worker; answers contain only small facts.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from blocks.files import disk_errors
from blocks.ingestion.messages import (
    NOBODY,
    SortedRunOffsets,
    SortRowsTask,
    SpilledRows,
    WordCountsRequest,
    WriteBucketsTask,
    spill_file,
)
from blocks.ingestion.name_merging import places_file

Arrays = Sequence[np.ndarray]


class SpillDtypes(NamedTuple):
    """Dtypes of arrays that are spilled together: first the arrays with an element per row, then per entry."""

    rows: tuple[Any, ...]
    entries: tuple[Any, ...]

    def write(self, file: IO[bytes], arrays: Arrays) -> None:
        """Append arrays to a file."""
        for array, dtype in zip(arrays, (*self.rows, *self.entries), strict=True):
            file.write(np.ascontiguousarray(array, dtype).data)

    def read(self, path: Path, at: int, sizes: tuple[int, int], parts: tuple[slice, slice]) -> Iterator[np.ndarray]:
        """Read rows and entries that were written from byte `at` on.

        sizes: numbers of rows and entries.
        """
        with path.open("rb") as file:
            for dtypes, size, part in zip(self, sizes, parts, strict=True):
                for dtype in map(np.dtype, dtypes):
                    file.seek(at + dtype.itemsize * part.start)
                    yield np.fromfile(file, dtype, part.stop - part.start)
                    at += dtype.itemsize * size


class MessageHandler:
    """Handles messages.

    spill: spill directory, inside the dataset directory. tasks: handler method for each type of message; subclasses add
        the chunks and blocks of their kind of dataset.
    """

    def __init__(self, spill: str) -> None:
        self.spill, self.root = Path(spill), Path(spill).parent
        self.tasks: dict[type, Callable[[Any], Any]] = {}

    def __call__(self, message: Any) -> Any:
        """Handle a message."""
        with disk_errors(self.spill):
            return self.tasks[type(message)](message)


class BucketSortingWorker(MessageHandler, ABC):
    """Spills parsed rows to a file, sorts runs of them by bucket, and writes the buckets of a block.

    parsed: form of rows in input order.
    sorted: form of rows sorted by bucket.
    """

    parsed: ClassVar[SpillDtypes]
    sorted: ClassVar[SpillDtypes]

    def __init__(self, spill: str) -> None:
        super().__init__(spill)
        self._has_spilled = False
        self._places: dict[tuple[str, int], np.ndarray] = {}
        self.tasks |= {WordCountsRequest: self._report, SortRowsTask: self._sort, WriteBucketsTask: self._write}

    @abstractmethod
    def counted(self) -> Any:
        """Return the counts over all chunks, and free them."""

    @abstractmethod
    def by_bucket(self, arrays: list[np.ndarray], run: SortRowsTask) -> tuple[Arrays, SortedRunOffsets]:
        """Sort the rows of a run by bucket, converting arrays from the form `parsed` to `sorted`."""

    @abstractmethod
    def write(self, arrays: list[np.ndarray], block: WriteBucketsTask) -> dict[str, Any]:
        """Shuffle and publish the rows of a block, in the form `sorted`.

        Returns its manifest entry.
        """

    def placed(self, arrays: Arrays, worker: int) -> Arrays:
        """Replace a worker's ids in parsed arrays by final positions."""
        return arrays

    def leave(self, arrays: Arrays, rows: int, entries: int, tail: bytes = b"") -> SpilledRows:
        """Append rows, in the form `parsed`, to the spill file.

        tail: bytes to write after them.
        """
        self._has_spilled = True
        with spill_file(self.spill, os.getpid()).open("ab") as file:
            offset = file.tell()
            self.parsed.write(file, arrays)
            file.write(tail)
        return SpilledRows(os.getpid(), offset, rows, entries)

    def places(self, kind: str, worker: int) -> np.ndarray:
        """Return the final position of each of a worker's names, uint32. See `write_places`."""
        if (kind, worker) not in self._places:
            self._places[kind, worker] = np.memmap(places_file(self.spill, kind, worker), np.uint32, "r")
        return self._places[kind, worker]

    def _report(self, _: WordCountsRequest) -> Any:
        return self.counted() if self._has_spilled else None

    def _sort(self, run: SortRowsTask) -> SortedRunOffsets:
        arrays, bounds = self.by_bucket(_joined(map(self._piece, run.pieces)), run)
        with self._run_file(run.number).open("wb") as file:
            self.sorted.write(file, arrays)
        return bounds

    def _piece(self, piece: SpilledRows) -> Arrays:
        if piece.worker == NOBODY:
            empty = [np.zeros(piece.rows, dtype) for dtype in self.parsed.rows]
            return [*empty, *(np.empty(0, dtype) for dtype in self.parsed.entries)]
        sizes = piece.rows, piece.entries
        arrays = list(self.parsed.read(spill_file(self.spill, piece.worker), piece.offset, sizes, _all(sizes)))
        return self.placed(arrays, piece.worker) if piece.entries else arrays

    def _write(self, block: WriteBucketsTask) -> dict[str, Any]:
        segments = (
            list(self.sorted.read(self._run_file(segment.run), 0, segment.sizes, segment.parts))
            for segment in block.segments
        )
        return self.write(_joined(segments), block)

    def _run_file(self, number: int) -> Path:
        return self.spill / f"run-{number}"


def _all(sizes: tuple[int, int]) -> tuple[slice, slice]:
    return slice(0, sizes[0]), slice(0, sizes[1])


def _joined(pieces: Iterator[Arrays]) -> list[np.ndarray]:
    """Concatenate the arrays of pieces."""
    columns = list(map(list, zip(*pieces, strict=True)))
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]
