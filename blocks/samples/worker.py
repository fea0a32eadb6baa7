"""Worker of sample ingestion: parse chunks, sort runs by bucket, write blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.design.svmlight import read
from blocks.ingestion.messages import LineChunk, SortedRunOffsets, SortRowsTask, SpilledRows, WriteBucketsTask
from blocks.ingestion.worker import Arrays, BucketSortingWorker, SpillDtypes
from blocks.samples.samples import SampleBlock
from blocks.samples.writer import write_block
from blocks.shuffle import sample_buckets


class SampleRows(NamedTuple):
    """n samples with N entries; the samples of a chunk get their indices when they are sorted."""

    numbers: np.ndarray  # uint64 (n,), index of each sample in the original order
    labels: np.ndarray  # float64 (n,)
    lengths: np.ndarray  # int64 (n,), number of entries in each sample
    columns: np.ndarray  # uint32 (N,)
    values: np.ndarray  # float32 (N,)

    def chosen(self, rows: np.ndarray) -> SampleRows:
        """Return some samples in the given order.

        rows: int64 (k,).
        """
        lengths, begins = self.lengths[rows], np.cumsum(self.lengths) - self.lengths
        ends = np.cumsum(lengths)
        entries = np.repeat(begins[rows] - (ends - lengths), lengths) + np.arange(lengths.sum())
        return SampleRows(self.numbers[rows], self.labels[rows], lengths, self.columns[entries], self.values[entries])


class SamplesProperties(NamedTuple):
    """Properties of all samples.

    columns: largest column index plus 1.
    queries: whether any row has a qid.
    """

    columns: int
    queries: bool


class SamplesIngestWorker(BucketSortingWorker):
    """Ingestion worker for samples. A row has a label and, once sorted, an index; an entry has a column and a value."""

    parsed = SpillDtypes(("f8", "i8"), ("u4", "f4"))
    sorted = SpillDtypes(("u8", "f8", "i8"), ("u4", "f4"))

    def __init__(self, spill: str) -> None:
        super().__init__(spill)
        self._facts = SamplesProperties(1, queries=False)
        self.tasks |= {LineChunk: self._parse, SampleRows: lambda rows: self._leave(*rows[1:])}

    def _parse(self, chunk: LineChunk) -> SpilledRows:
        data = chunk.data if chunk.data.endswith(b"\n") else chunk.data + b"\n"
        found = read(data, chunk.source, chunk.line, chunk.form)
        lengths = np.bincount(found.entries["row"], minlength=found.records)
        self._facts = self._facts._replace(queries=self._facts.queries or found.queries)
        return self._leave(found.y, lengths, found.entries["column"], found.entries["value"])

    def _leave(self, labels: np.ndarray, lengths: np.ndarray, columns: np.ndarray, values: np.ndarray) -> SpilledRows:
        width = max(self._facts.columns, int(columns.max(initial=0)) + 1)
        self._facts = self._facts._replace(columns=width)
        return self.leave((labels, lengths, columns, values), labels.size, columns.size)

    def counted(self) -> SamplesProperties:
        """Return the properties of all samples."""
        return self._facts

    def by_bucket(self, arrays: list[np.ndarray], run: SortRowsTask) -> tuple[Arrays, SortedRunOffsets]:
        numbers = np.arange(run.first, run.first + arrays[0].size, dtype=np.uint64)
        bucket = sample_buckets(numbers, run.seed, run.buckets)
        rows = SampleRows(numbers, *arrays).chosen(np.argsort(bucket, kind="stable"))
        bounds = _cumulated(np.bincount(bucket, minlength=run.buckets))
        return rows, SortedRunOffsets(bounds, _cumulated(rows.lengths)[bounds])

    def write(self, arrays: list[np.ndarray], block: WriteBucketsTask) -> dict[str, Any]:
        order = np.random.default_rng([block.seed, block.number]).permutation(arrays[0].size)
        rows = SampleRows(*arrays).chosen(order)
        offsets = _cumulated(rows.lengths)
        shuffled = SampleBlock(rows.numbers, rows.labels, offsets, rows.columns, rows.values)
        return write_block(self.root, block.number, shuffled)


def _cumulated(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
