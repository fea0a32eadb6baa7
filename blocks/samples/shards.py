"""Split a sample set into shards, one for each rank of a ring.

A shard is a range of the stored samples, and a sample set itself. Its manifest entry "shard" is described in
`blocks.shards.whole_dataset`, with an additional field `first`, the number of samples before the shard; whole.h5 has
`numbers`. The index has the labels of the whole sample set.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from blocks.append import DatasetTarget
from blocks.arrays import write_arrays
from blocks.design.row_shards import row_bounds
from blocks.errors import RequestError
from blocks.progress_bar import Bar
from blocks.samples.samples import SampleBlock, Samples
from blocks.samples.writer import finish_samples, write_block


def split_samples(whole: Samples, targets: Sequence[DatasetTarget], bar: Bar) -> None:
    """Write the shards of a sample set to their target directories.

    Raises RequestError if there are too few samples.
    """
    bounds = row_bounds(whole.rows, len(targets))
    if np.diff(bounds).min() == 0:
        raise RequestError(f"{whole.rows} samples cannot be split into {len(targets)} shards", "Reduce --shards.")
    numbers = np.concatenate([whole.block(number).rows for number in range(whole.block_count)])
    progress = bar("splitting", len(targets), "shard")
    for shard, (first, last) in enumerate(pairwise(bounds.tolist())):
        sample_numbers = np.sort(numbers[first:last])
        blocks = [
            write_block(
                targets[shard].root, number, part._replace(rows=np.searchsorted(sample_numbers, part.rows).astype("u8"))
            )
            for number, part in enumerate(_run(whole, first, last))
        ]
        shutil.rmtree(targets[shard].spill)
        told: dict[str, Any] = {
            "number": shard,
            "shards": len(targets),
            "first": first,
            "whole": {"identity": whole.identity, "rows": whole.rows, "entries": whole.entries},
            "index": write_arrays(targets[shard].root, "whole.h5", {"numbers": sample_numbers}),
        }
        labels, made = whole.index.labels, whole.manifest["made"]
        finish_samples(targets[shard].root, blocks, labels, whole.columns, made, shard=told)
        progress.update(1)
    progress.close()


def _run(whole: Samples, first: int, last: int) -> Iterator[SampleBlock]:
    """Yield the samples from `first` to `last` (exclusive) of the whole, block by block."""
    for number, (begin, end) in enumerate(pairwise(whole.index.block_bounds.tolist())):
        if begin < last and first < end:
            yield _rows_of(whole.block(number), max(first - begin, 0), min(last, end) - begin)


def _rows_of(block: SampleBlock, first: int, last: int) -> SampleBlock:
    """Return the samples from `first` to `last` (exclusive) of a block."""
    entries = slice(block.offsets[first], block.offsets[last])
    return SampleBlock(
        block.rows[first:last],
        block.labels[first:last],
        block.offsets[first : last + 1] - block.offsets[first],
        block.columns[entries],
        block.values[entries],
    )
