"""Offsets of columns whose values are far from 0 and close together, such as times in seconds since 1970.

float32 has 24 significant bits and rounds 1,700,000,123.4 to a multiple of 128. For such a column a design stores the
differences from a number, the offset, with a relative error of 6e-8.
"""

from __future__ import annotations

import math

import numpy as np

from blocks.design.dense_spill import complete_block
from blocks.design.design import DenseDesignBlock, SparseDesignBlock

_FAR = 100.0  # times the mean deviation from the median: below this, float32 rounds by < 1e-5 of that deviation
_ROUNDING = 1e-15  # relative to the median: only the last digits differ, and are equal in float32
_READ = 1e-15  # relative error of a value parsed from text
_LOOKED_AT = 1001  # number of evenly spaced values of a column whose median is taken


def offset_of(values: np.ndarray) -> float:
    """Return the offset of a column, float64 (n,); 0 if float32 represents its values, or they are not far from 0.

    The parser may be off by a few units in the last place for numbers of 17 digits, see
    `blocks.number_fields.parse_number`. The offset has few binary digits, so that differences of integers are integers.
    """
    if (np.abs(values - values.astype(np.float32)) <= _READ * np.abs(values)).all():
        return 0.0
    median = float(np.median(values[:: max(values.size // _LOOKED_AT, 1)]))
    spread = float(np.abs(values - median).mean())
    if abs(median) <= _FAR * spread or 0 < spread <= _ROUNDING * abs(median):
        return 0.0
    step = 2.0 ** math.floor(math.log2(spread)) if spread else 0.0
    return round(median / step) * step if step else median


def differences(
    columns: np.ndarray | SparseDesignBlock, rows: int, given: np.ndarray | None
) -> tuple[SparseDesignBlock | DenseDesignBlock, np.ndarray]:
    """Return the block of differences and the offsets, float64 (W,).

    columns: (W, n), or a block with float32 or float64 values.
    given: float64 (W,), prescribed offsets where nonzero.
    """
    if isinstance(columns, SparseDesignBlock):
        return sparse_differences(columns, rows, given)
    return dense_differences(columns, given)


def dense_differences(values: np.ndarray, given: np.ndarray | None) -> tuple[DenseDesignBlock, np.ndarray]:
    """Subtract offsets from dense columns (W, n), in place. See `differences`."""
    offsets = np.zeros(len(values)) if given is None else given.copy()
    for column in np.flatnonzero(offsets == 0).tolist() if values.dtype == np.float64 else ():
        offsets[column] = offset_of(values[column])
    if offsets.any():
        values -= offsets[:, None]
    return complete_block(values.astype(np.float32, copy=False)), offsets


def sparse_differences(
    block: SparseDesignBlock, rows: int, given: np.ndarray | None
) -> tuple[SparseDesignBlock, np.ndarray]:
    """Subtract offsets from sparse columns. See `differences`.

    A column with an offset has an entry for each value that differs from it.
    """
    sizes = np.diff(block.offsets)
    offsets = np.zeros(sizes.size) if given is None else given.copy()
    dense = (offsets == 0) & (sizes > rows // 2) & (block.values.dtype == np.float64)  # else the median is 0
    for column in np.flatnonzero(dense).tolist():
        offsets[column] = offset_of(_values_of(block, column, rows))
    pieces, begin, values = [], 0, block.values.astype(np.float32)
    for column in np.flatnonzero(offsets).tolist():
        first, last = block.offsets[column : column + 2].tolist()
        differences = (_values_of(block, column, rows) - offsets[column]).astype(np.float32)
        found = np.flatnonzero(differences)
        sizes[column] = found.size
        pieces += [(block.rows[begin:first], values[begin:first]), (found.astype(np.uint32), differences[found])]
        begin = last
    pieces.append((block.rows[begin:], values[begin:]))
    ends = np.concatenate(([0], np.cumsum(sizes)))
    return SparseDesignBlock(ends, *(np.concatenate(some) for some in zip(*pieces, strict=True))), offsets


def _values_of(block: SparseDesignBlock, column: int, rows: int) -> np.ndarray:
    """Return all values of a column, float64 (n,)."""
    values, span = np.zeros(rows), slice(*block.offsets[column : column + 2])
    values[block.rows[span]] = block.values[span]
    return values
