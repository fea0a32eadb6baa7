"""Transpose dense rows to dense columns out of core: each chunk of rows is written, transposed, to a file (a panel)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.design.design import DenseDesignBlock, SparseDesignBlock


class DenseSpillFile(NamedTuple):
    """A file of cells by column, for `rows` rows and the columns from `first` to `last` (exclusive).

    dtype: dtype name.
    """

    path: str
    rows: int
    dtype: str
    first: int
    last: int


def write_panel(path: Path, cells: np.ndarray, first: int) -> DenseSpillFile:
    """Write the cells (R, p) of some rows, transposed, to a file.

    first: first column.
    """
    path.write_bytes(np.ascontiguousarray(cells.T).data)
    return DenseSpillFile(str(path), len(cells), str(cells.dtype), first, first + cells.shape[1])


def panel_dtype(panels: Sequence[DenseSpillFile]) -> np.dtype[Any]:
    """Return the dtype for the values of panels: float32 if it represents them all."""
    return np.dtype(np.float64 if any(panel.dtype == "float64" for panel in panels) else np.float32)


def gather_panels(panels: Sequence[DenseSpillFile], first: int, last: int, rows: int, dtype: Any) -> np.ndarray:
    """Return the columns from `first` to `last` (exclusive), (last - first, rows), collected from all panels."""
    values = np.empty((last - first, rows), dtype)
    filled = np.zeros(last - first, np.int64)
    for panel in panels:
        begin, end = max(first, panel.first), min(last, panel.last)
        if begin >= end:
            continue
        column = panel.rows * np.dtype(panel.dtype).itemsize
        offset = column * (begin - panel.first)
        found = np.fromfile(panel.path, panel.dtype, panel.rows * (end - begin), offset=offset)
        narrow = found if values.dtype == np.float64 else found.astype(np.float32, copy=False)  # values may be int8
        span, place = slice(begin - first, end - first), int(filled[begin - first])
        values[span, place : place + panel.rows] = narrow.reshape(end - begin, panel.rows)
        filled[span] += panel.rows
    return values


def sparse_entries(values: np.ndarray) -> SparseDesignBlock:
    """Return the entries of columns (W, n) that are nonzero in float32."""
    columns, rows = np.nonzero(values.astype(np.float32, copy=False))
    offsets = np.searchsorted(columns, np.arange(len(values) + 1))
    return SparseDesignBlock(offsets.astype(np.int64), rows.astype(np.uint32), values[columns, rows])


def join_blocks(blocks: Sequence[SparseDesignBlock | DenseDesignBlock]) -> SparseDesignBlock | DenseDesignBlock:
    """Concatenate the columns of blocks without missing values."""
    if len(blocks) == 1:
        return blocks[0]
    if isinstance(blocks[0], DenseDesignBlock):
        return complete_block(np.concatenate([block.values for block in blocks]))
    sizes = np.concatenate([[0], *(np.diff(block[0]) for block in blocks)])
    rows, values = (np.concatenate([block[place] for block in blocks]) for place in (1, 2))
    return SparseDesignBlock(np.cumsum(sizes, dtype=np.int64), rows, values)


def complete_block(values: np.ndarray) -> DenseDesignBlock:
    """Return columns (W, n) as a block without missing values."""
    return DenseDesignBlock(values, np.zeros(len(values) + 1, np.int64), np.empty(0, np.uint32))
