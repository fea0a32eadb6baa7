"""Make the slices of a matrix from its blocks, out of core.

Workers spill the entries of each block by column, then read the columns of a slice from all blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocks.ratings.matrix import MatrixRowBlock
from blocks.ratings.matrix_writer import Entries, column_order, write_column_slice

if TYPE_CHECKING:
    from blocks.ingestion.pipeline import IngestionPipeline

ENTRY = np.dtype([("row", "u4"), ("column", "u4"), ("value", "f4")])
TIMED_ENTRY = np.dtype([("row", "u4"), ("column", "u4"), ("value", "f4"), ("time", "f8")], align=True)


@dataclass
class WriteColumnsTask:
    """A slice to write.

    segments: for each block, the spill file, first and last entry, and its first row.
    """

    root: str
    number: int
    segments: list[tuple[str, int, int, int]] = field(repr=False)
    first: int
    last: int


def spill_columns(spill: str | Path, file_name: str, block: MatrixRowBlock) -> None:
    """Spill the entries of a block by column, for `write_columns`.

    file_name: file of the block.
    """
    by_column = np.empty(block.values.size, ENTRY)
    by_column["row"], by_column["column"], by_column["value"] = column_order(block)
    _columns_file(spill, Path(file_name).stem).write_bytes(by_column.data)


def write_columns(slice_: WriteColumnsTask) -> tuple[dict[str, Any], np.ndarray]:
    """Write a slice, in a worker.

    Returns the manifest entry and int64 (W,), the number of entries in each column.
    """
    parts = []
    for path, first, last, place in slice_.segments:
        found = np.fromfile(path, ENTRY, last - first, offset=ENTRY.itemsize * first)
        parts.append(Entries(found["row"] + np.uint32(place), found["column"], found["value"]))
    file_name = f"slices/{slice_.number:05}.h5"
    entry = write_column_slice(Path(slice_.root), file_name, parts, slice_.first, slice_.last)
    columns = np.concatenate([part.columns for part in parts]).astype(np.int64) - slice_.first
    return entry, np.bincount(columns, minlength=slice_.last - slice_.first)


def write_slices(
    pipeline: IngestionPipeline, blocks: list[dict[str, Any]], slice_bounds: np.ndarray
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Write all slices with workers that handle `WriteColumnsTask`, after the columns of all blocks were spilled.

    Returns the manifest entries of the slices, and int64 (C,), the number of entries in each column, by rank.
    """
    target = pipeline.target
    (target.root / "slices").mkdir()
    places = np.concatenate(([0], np.cumsum([block["rows"] for block in blocks]))).tolist()
    starts = [np.concatenate(([0], np.cumsum(block["cells"]))).tolist() for block in blocks]
    messages = [
        WriteColumnsTask(
            str(target.root),
            number,
            [
                (
                    str(_columns_file(target.spill, Path(block["file"]).stem)),
                    starts[at][number],
                    starts[at][number + 1],
                    places[at],
                )
                for at, block in enumerate(blocks)
            ],
            int(first),
            int(last),
        )
        for number, (first, last) in enumerate(pairwise(slice_bounds))
    ]
    entries, counts = zip(*pipeline.write("transposing", messages, "slice"), strict=True)
    return list(entries), np.concatenate(counts)


def _columns_file(spill: str | Path, block: str) -> Path:
    return Path(spill) / f"columns-{block}"
