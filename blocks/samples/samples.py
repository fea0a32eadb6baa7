"""Labelled samples by row, for algorithms that process one sample after another: `ooc ingest svmlight --by-rows`.

    manifest.json     counts, table of blocks, checksums, how it was made: the commit point
    index.h5          rows of each block, entries of each block, number of samples of each label
    blocks/00000.h5   a range of shuffled samples

Columns are numbered from 0. There are no slices.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

import numpy as np

from blocks.arrays import Float32, Float64, Int64, Uint32, Uint64
from blocks.bounds_checks import require_below, require_cells, require_offsets, require_valid
from blocks.ratings.matrix import PART_ENTRIES
from blocks.schemas import ArrayFileEntry, Count, DatasetManifest, FileEntry, ShardEntry
from blocks.stored_dataset import StoredDataset

if TYPE_CHECKING:
    from blocks.samples.incremental_writer import SamplesWriter


class SampleBlock(NamedTuple):
    """The N entries of D samples; `offsets` are named as in a corpus."""

    rows: Uint64  # (D,), index of each sample in the original order
    labels: Float64  # (D,)
    offsets: Int64  # (D+1,), start of each sample's entries
    columns: Uint32  # (N,), ascending within a sample
    values: Float32  # (N,)


class SampleIndex(NamedTuple):
    """The grid of B blocks, and L labels."""

    block_bounds: Int64  # (B+1,), first sample of each block
    cells: Int64  # (B, 1), number of entries in each block
    labels: Float64  # (L,), distinct labels, ascending; (0,) if there are more than `MOST_LABELS`


class WholeSamplesFile(NamedTuple):
    """Data about the whole sample set in a shard. See `blocks.samples.shards`."""

    numbers: Uint64  # (D,)


class SamplesCounts(TypedDict):
    """Counts of the whole sample set to which a shard belongs."""

    identity: str
    rows: Count
    entries: Count


class SamplesShardEntry(ShardEntry):
    """The "shard" entry of a shard's manifest."""

    first: Count
    whole: SamplesCounts


class SamplesBlockEntry(ArrayFileEntry):
    """Manifest entry for a block."""

    rows: Count
    entries: Count


class SamplesManifest(DatasetManifest):
    """Manifest of a sample set."""

    texts: dict[str, FileEntry]
    rows: Count
    columns: Count
    entries: Count
    blocks: list[SamplesBlockEntry]
    slices: list[ArrayFileEntry]
    shard: NotRequired[SamplesShardEntry]


MOST_LABELS = 1 << 16


class Samples(StoredDataset):
    """A sample set opened for reading.

    Attributes, in addition to those of `StoredDataset`: `rows`, `columns` and `entries`, the size of the matrix;
    `index`.
    """

    kind = "sample set"
    counted = "rows"
    unit = "entries"
    rate = "samples_per_s"
    holds = SamplesManifest
    whole_holds = WholeSamplesFile

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.rows: int = self.manifest["rows"]
        self.columns: int = self.manifest["columns"]
        self.entries: int = self.manifest["entries"]
        self.samples, self.part_size = self.rows, PART_ENTRIES
        file = self.path / self.manifest["index"]["file"]
        index = SampleIndex(**self.map(self.manifest["index"], SampleIndex))
        require_offsets(file, "block_bounds", index.block_bounds, self.block_count, self.rows)
        require_cells(file, index.cells, self.block_count, 1, self.entries)
        self.index = index._replace(cells=index.cells.reshape(-1, 1))

    @staticmethod
    def create(
        path: str | Path,
        *,
        columns: int | None = None,
        target: str | None = None,
        seed: int = 0,
        block_entries: int = 1 << 20,
        overwrite: bool = False,
    ) -> AbstractContextManager[SamplesWriter]:
        """Write new labelled samples row by row, in memory that does not grow with the number of samples.

        Use it in a ``with`` block: the samples appear at `path` when the block ends, unless the block raises. The files
        are byte for byte what `ooc ingest svmlight --by-rows` writes for the same samples, except for the record of
        the input.

        Parameters
        ----------
        path : str or Path
            Directory of the samples, which must not exist.
        columns : int, optional
            Number of columns; by default the largest index plus 1.
        target : str, optional
            The column of data frames and pyarrow tables that holds y.
        seed : int
            Seed for shuffling the samples into blocks.
        block_entries : int
            Approximate number of entries in a block.
        overwrite : bool
            Replace an existing dataset at `path`.

        Returns
        -------
        context manager of SamplesWriter
            Its method ``add(X, y)`` adds samples.

        Raises
        ------
        RequestError
            If `path` exists, or no samples were added.
        """
        from blocks.samples.incremental_writer import create_samples  # which reads samples

        options = {"seed": seed, "block_entries": block_entries}
        return create_samples(str(path), columns, target, options, overwrite=overwrite)

    @property
    def slice_bounds(self) -> np.ndarray:
        """Return the bounds of the only slice, which contains all columns, int64 (2,)."""
        return np.array([0, self.columns])

    def block(self, number: int) -> SampleBlock:
        """Memory-map the samples of a block."""
        return self.mapped("blocks", number, SampleBlock, self._check_block, streamed=True)

    def _check_block(self, number: int, path: Path, block: SampleBlock) -> None:
        rows, entries = int(np.diff(self.index.block_bounds)[number]), int(self.index.cells[number, 0])
        require_valid(block.rows.size == block.labels.size == rows, path, f"it does not have {rows} samples")
        require_offsets(path, "offsets", block.offsets, rows, entries)
        require_valid(block.columns.size == block.values.size == entries, path, f"it does not have {entries} entries")
        require_below(path, "rows", block.rows, self.rows)
        require_below(path, "columns", block.columns, self.columns)
