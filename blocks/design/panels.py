"""From dense rows to dense columns, out of core: each chunk of rows is left, transposed, in a file, a panel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.design.design import DenseBlock, SparseBlock


class Panel(NamedTuple):
    """A file of cells, column by column, of so many rows; dtype: a name."""

    path: str
    rows: int
    dtype: str


def write_panel(path: Path, cells: np.ndarray) -> Panel:
    """Leave the cells (R, p) of some rows."""
    path.write_bytes(np.ascontiguousarray(cells.T).data)
    return Panel(str(path), len(cells), str(cells.dtype))


def gather(panels: Sequence[Panel], first: int, last: int, dtype: str) -> np.ndarray:
    """The columns from `first` to `last` (exclusive) of all panels, one after the other: (last - first, n)."""
    values = np.empty((last - first, sum(panel.rows for panel in panels)), dtype)
    place = 0
    for panel in panels:
        column = panel.rows * np.dtype(panel.dtype).itemsize
        found = np.fromfile(panel.path, panel.dtype, panel.rows * (last - first), offset=column * first)
        values[:, place : place + panel.rows] = found.reshape(last - first, panel.rows)
        place += panel.rows
    return values


def sparse(values: np.ndarray) -> SparseBlock:
    """The entries other than zero of some columns (W, n)."""
    columns, rows = np.nonzero(values)
    offsets = np.searchsorted(columns, np.arange(len(values) + 1))
    return SparseBlock(offsets.astype(np.int64), rows.astype(np.uint32), values[columns, rows].astype(np.float32))


def complete(values: np.ndarray) -> DenseBlock:
    """Columns (W, n) of which no value is missing."""
    return DenseBlock(values, np.zeros(len(values) + 1, np.int64), np.empty(0, np.uint32))
