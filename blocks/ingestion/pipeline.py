"""Steps of every ingestion, which the main process runs on its workers.

    read      inputs are cut into chunks; workers parse them, assign ids to names, and spill rows
    sort      runs of spilled rows are sorted by the bucket of each row
    write     the buckets of a block are gathered from all runs, shuffled and written

Between these steps each kind of dataset orders its names, see `blocks.ingestion.name_merging`, and at the end it writes
the other files, see `blocks.ingestion.manifest`. The result does not depend on which worker does what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from blocks.append import DatasetTarget
from blocks.corpus.partition import blocks_of_buckets
from blocks.in_process import InProcessWorker
from blocks.ingestion.messages import (
    SortedRunOffsets,
    SortedRunSegment,
    SortRowsTask,
    SpilledRows,
    WordCountsRequest,
    WriteBucketsTask,
)
from blocks.progress_bar import Bar
from blocks.text_inputs import Progress
from blocks.workers import WorkerPool

RUN = 1 << 20  # approximate number of rows and entries in a run


Pool = WorkerPool | InProcessWorker


class IngestionPipeline:
    """The steps of an ingestion.

    bar: function that creates progress bars.
    """

    def __init__(self, pool: Pool, target: DatasetTarget, bar: Bar) -> None:
        self.pool, self.target, self._bar = pool, target, bar

    @contextmanager
    def reading(self, total: int | None, title: str = "reading") -> Iterator[Progress]:
        """Show the progress of reading; yield a function to be called with the number of bytes just read.

        total: bytes, None if unknown.
        """
        progress = self._bar(title, total or None, "B")
        yield progress.update
        progress.close()

    def parse(self, chunks: Iterable[Any]) -> list[Any]:
        """Parse all chunks; return the answers in input order."""
        return self.pool.map_numbered(chunks)

    def reports(self) -> list[Any]:
        """Return the counts of all workers."""
        answers = (self.pool.ask(worker, WordCountsRequest()) for worker in range(len(self.pool)))
        return [answer for answer in answers if answer is not None]

    def shuffle(
        self,
        pieces: Iterable[SpilledRows],
        buckets: int,
        seed: int,
        slice_bounds: np.ndarray | None = None,
        none_without: Literal["rows", "entries"] = "entries",
    ) -> list[dict[str, Any]]:
        """Sort rows by bucket and write the blocks.

        Returns their manifest entries.

        pieces: all rows in input order.
        slice_bounds: int64 (S+1,), first column of each slice, passed to workers.
        none_without: "rows" or "entries", which no block may lack if the dataset has any.
        """
        runs = list(_runs(pieces, self.target.first_document, seed, buckets))
        progress = self._bar("writing", len(runs) + buckets, "block")
        found: list[SortedRunOffsets] = self.pool.map_numbered(runs, lambda: progress.update(1))
        sizes = np.sum([np.diff(getattr(run, none_without)) for run in found], axis=0)
        messages = [
            WriteBucketsTask(
                self.target.first_block + number,
                [_segment(run, bounds, first, last) for run, bounds in enumerate(found)],
                slice_bounds,
                seed,
            )
            for number, (first, last) in enumerate(pairwise(blocks_of_buckets(sizes)))
        ]
        entries = self.pool.map_numbered(messages, lambda: progress.update(1))
        progress.close()
        return entries

    def write(self, what: str, messages: list[Any], unit: str) -> list[Any]:
        """Run another step on the workers; return their answers in the order of the messages."""
        progress = self._bar(what, len(messages), unit)
        answers = self.pool.map_numbered(messages, lambda: progress.update(1))
        progress.close()
        return answers


def answers_in_order(answers: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    """Yield the answers to messages that are numbered from 0 in numerical order, each as soon as possible.

    answers: messages with their answers, in any order.
    """
    waiting: dict[int, Any] = {}
    following = 0
    for message, answer in answers:
        waiting[message.number] = answer
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _runs(pieces: Iterable[SpilledRows], first: int, seed: int, buckets: int) -> Iterator[SortRowsTask]:
    """Yield runs of consecutive pieces with about `RUN` rows and entries.

    first: index of the first row.
    """
    together: list[SpilledRows] = []
    rows, entries, number = 0, 0, 0
    for piece in pieces:
        together.append(piece)
        rows, entries = rows + piece.rows, entries + piece.entries
        if rows + entries >= RUN:
            yield SortRowsTask(number, together, first, seed, buckets)
            together, first, rows, entries, number = [], first + rows, 0, 0, number + 1
    if together:
        yield SortRowsTask(number, together, first, seed, buckets)


def _segment(run: int, bounds: SortedRunOffsets, first: int, last: int) -> SortedRunSegment:
    """Return the positions of the buckets `first` to `last` (exclusive) in a run."""
    sizes = int(bounds.rows[-1]), int(bounds.entries[-1])
    rows, entries = (slice(int(starts[first]), int(starts[last])) for starts in bounds)
    return SortedRunSegment(run, sizes, (rows, entries))
