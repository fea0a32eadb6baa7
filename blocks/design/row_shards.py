"""Split a design matrix by rows into shards, one for each rank of a ring.

A shard is a design matrix of a range of rows and all columns, in the same blocks. The manifest entry "shard" is
described in `blocks.shards.whole_dataset`; whole.h5 has y and the column moments of the whole matrix.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.append import DatasetTarget
from blocks.arrays import write_arrays
from blocks.bounds_checks import require_valid
from blocks.design.design import DenseDesignBlock, Design, SparseDesignBlock
from blocks.design.moments import block_moments
from blocks.design.writer import MOMENTS, finish_design, write_block, write_index
from blocks.errors import RequestError
from blocks.progress_bar import Bar
from blocks.stored_dataset import write_lines


def row_bounds(rows: int, shards: int) -> np.ndarray:
    """Return the first row of each shard, followed by the number of rows, int64 (N+1,)."""
    return np.arange(shards + 1) * rows // shards


class DesignRowShard(Design):
    """A shard of a design matrix with the interface of the whole matrix.

    `rows`, `y`, `means`, `norms` and `deviations` describe the whole matrix. Blocks have the rows from `own.start`
    to `own.stop` (exclusive), numbered from 0.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        whole = self.of_whole()
        if whole is None:
            raise RequestError(
                f"{self.path} is a whole dataset; expected a shard", "Split the dataset with `ooc shard`."
            )
        self.rows = self.manifest["shard"]["whole"]["rows"]
        self.own = slice(*row_bounds(self.rows, self.shards)[self.shard : self.shard + 2].tolist())
        file = self.path / self.manifest["shard"]["index"]["file"]
        sizes = {whole[name].size for name in MOMENTS}
        require_valid(
            sizes == {self.columns}, file, f"its means, norms and deviations do not match {self.columns} columns"
        )
        require_valid(
            whole["y"].size == (self.rows if self.manifest["labels"] else 0), file, f"y does not have {self.rows} rows"
        )
        require_valid(
            self.own.stop - self.own.start == self.manifest["rows"], file, f"its number of rows is not {self.rows}"
        )
        self.means, self.norms, self.deviations = (whole[name] for name in MOMENTS)
        self.y = whole["y"] if self.manifest["labels"] else None


def shard_or_whole(path: str | Path) -> Design:
    """Open the shard of a rank, or a whole design for a ring of one rank."""
    design = Design(path)
    return DesignRowShard(path) if "shard" in design.manifest else design


def split_design(whole: Design, targets: Sequence[DatasetTarget], bar: Bar) -> None:
    """Write the shards of a design to their target directories.

    Raises RequestError if there are too few rows.
    """
    bounds = row_bounds(whole.rows, len(targets))
    if np.diff(bounds).min() == 0:
        raise RequestError(f"{whole.rows} rows cannot be split into {len(targets)} shards", "Reduce --shards.")
    entries: list[list[dict[str, Any]]] = [[] for _ in targets]
    progress = bar("splitting", whole.block_count, "block")
    for number in range(whole.block_count):
        block = whole.block(number)
        for shard, target in enumerate(targets):
            part = block_rows(block, int(bounds[shard]), int(bounds[shard + 1]))
            np.stack(block_moments(part, int(np.diff(bounds)[shard]))).tofile(_moments_file(target, number))
            entries[shard].append(write_block(target.root, number, part))
        progress.update(1)
    progress.close()
    for shard in range(len(targets)):
        _finish(whole, targets, shard, bounds, entries[shard])


def _moments_file(target: DatasetTarget, number: int) -> Path:
    return target.spill / f"moments-{number}"


def _finish(
    whole: Design, targets: Sequence[DatasetTarget], number: int, bounds: np.ndarray, blocks: list[dict[str, Any]]
) -> None:
    target, y = targets[number], np.empty(0) if whole.y is None else whole.y
    own = slice(bounds[number], bounds[number + 1])
    of_blocks = [_moments_file(target, block) for block in range(whole.block_count)]
    index = write_index(target.root, y[own], whole.columns, of_blocks, whole.block_bounds, whole.offsets)
    shutil.rmtree(target.spill)
    known = {name: getattr(whole, name) for name in MOMENTS}
    told = {"identity": whole.identity, "rows": whole.rows, "entries": whole.entries}
    names = whole.column_names()
    finish_design(
        target.root,
        rows=int(own.stop - own.start),
        labels=whole.y is not None,
        form=whole.form,
        first_column=whole.manifest["first_column"],
        index=index,
        blocks=blocks,
        texts={} if names is None else {"columns": write_lines(target.root, "columns.txt", names)},
        made=whole.manifest["made"],
        shard={
            "number": number,
            "shards": len(targets),
            "whole": told,
            "index": write_arrays(target.root, "whole.h5", {"y": y, **known}),
        },
    )


def block_rows(
    block: SparseDesignBlock | DenseDesignBlock, first: int, last: int
) -> SparseDesignBlock | DenseDesignBlock:
    """Return the rows from `first` to `last` (exclusive) of a block, as a block."""
    if isinstance(block, SparseDesignBlock):
        kept = _within(block.rows, first, last)
        rows = (block.rows[kept] - first).astype(np.uint32)
        values = block.values[kept] if block.values.size else np.empty(0, np.float32)
        return SparseDesignBlock(_offsets(block.offsets, kept), rows, values)
    kept = _within(block.missing_rows, first, last)
    rows = (block.missing_rows[kept] - first).astype(np.uint32)
    return DenseDesignBlock(
        np.ascontiguousarray(block.values[:, first:last]), _offsets(block.missing_offsets, kept), rows
    )


def _within(rows: np.ndarray, first: int, last: int) -> np.ndarray:
    return (rows >= first) & (rows < last)


def _offsets(offsets: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the start of each column if only some entries are kept, int64 (W+1,)."""
    return np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[offsets]
