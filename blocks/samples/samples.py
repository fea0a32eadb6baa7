"""Labelled samples, row by row, for algorithms that process one after the other: `ooc ingest svmlight --by-rows`.

    manifest.json     counts, the table of blocks, checksums, how it was made: the commit point
    index.h5          rows of each block, entries of each block, how many samples have each label
    blocks/00000.h5   a run of samples, shuffled

A column goes by its number, from 0 on. There are no slices.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.ratings.matrix import PART_ENTRIES
from blocks.store import Store


class SampleBlock(NamedTuple):
    """The N entries of D samples; `offsets` are called as in a corpus."""

    rows: np.ndarray  # uint64 (D,), number of each sample in the original order
    labels: np.ndarray  # float64 (D,)
    offsets: np.ndarray  # int64 (D+1,), where the entries of each begin
    columns: np.ndarray  # uint32 (N,), ascending within a sample
    values: np.ndarray  # float32 (N,)


class SampleIndex(NamedTuple):
    """The grid of B blocks, and L labels."""

    block_bounds: np.ndarray  # int64 (B+1,), first sample of each block
    cells: np.ndarray  # int64 (B, 1), entries of each block
    labels: np.ndarray  # float64 (L,), those that occur, ascending; (0,) if there are more than `MOST_LABELS`


MOST_LABELS = 1 << 16


class Samples(Store):
    """Samples opened for reading.

    Attributes besides those of every store: `rows`, `columns` and `entries`, their numbers; `index`.
    """

    kind = "sample set"
    counted = "rows"
    unit = "entries"
    rate = "samples_per_s"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.rows: int = self.manifest["rows"]
        self.columns: int = self.manifest["columns"]
        self.entries: int = self.manifest["entries"]
        self.samples, self.part_size = self.rows, PART_ENTRIES
        arrays = self.map(self.manifest["index"])
        self.index = SampleIndex(arrays["block_bounds"], arrays["cells"].reshape(-1, 1), arrays["labels"])

    def block(self, number: int) -> SampleBlock:
        """Map the samples of a block."""
        return SampleBlock(**self.map(self.manifest["blocks"][number], streamed=True))
