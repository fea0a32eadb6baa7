"""Mean, norm and standard deviation of each column of a block, in float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.design.design import DenseDesignBlock, SparseDesignBlock


class BlockMoments(NamedTuple):
    """Moments of the columns of a block, float64 (W,) each. See `blocks.design.design.DesignIndex`."""

    means: np.ndarray
    norms: np.ndarray
    deviations: np.ndarray


def block_moments(block: SparseDesignBlock | DenseDesignBlock, rows: int) -> BlockMoments:
    """Return the moments of all columns of a block with `rows` rows."""
    if isinstance(block, SparseDesignBlock):
        return BlockMoments(*sparse_moments(block.offsets, block.values, rows))
    return BlockMoments(*dense_moments(*block))


@kernel
def sparse_moments(offsets, values, rows):
    """Return means, norms and deviations of the columns of a SparseDesignBlock."""
    width = offsets.size - 1
    means, norms, deviations = np.empty(width), np.empty(width), np.empty(width)
    ones = np.ones(rows if values.size == 0 else 0, np.float32)
    for column in range(width):
        begin, end = offsets[column], offsets[column + 1]
        found = ones[: end - begin] if values.size == 0 else values[begin:end]
        means[column], norms[column], deviations[column] = of_column(found, rows - found.size, 0)
    return means, norms, deviations


@kernel
def dense_moments(values, missing_offsets, missing_rows):
    """Return means, norms and deviations of the columns of a DenseDesignBlock; a missing value counts as the mean."""
    width = len(values)
    means, norms, deviations = np.empty(width), np.empty(width), np.empty(width)
    for column in range(width):
        missing = missing_rows[missing_offsets[column] : missing_offsets[column + 1]]
        found = values[column] if missing.size == 0 else without(values[column], missing)
        means[column], norms[column], deviations[column] = of_column(found, 0, missing.size)
    return means, norms, deviations


@kernel
def without(values, rows):
    """Return the values, (n,), except those at `rows`, uint32, ascending."""
    kept = np.empty(values.size - rows.size, values.dtype)
    following, found = 0, 0
    for row in range(values.size):
        if following < rows.size and rows[following] == row:
            following += 1
        else:
            kept[found] = values[row]
            found += 1
    return kept


@kernel
def of_column(values, zeros, missing):
    """Return the mean, norm and standard deviation of a column.

    values: stored values.
    zeros: number of zeros besides them.
    missing: number of missing values.
    """
    known = values.size + zeros
    total, squares = 0.0, 0.0
    constant = zeros == 0 or values.size == 0
    for value in values:
        total += np.float64(value)
        squares += np.float64(value) * np.float64(value)
        constant &= value == values[0]
    mean = total / known if known else 0.0
    if constant:  # exact, since columns may be divided by the deviation
        mean = np.float64(values[0]) if values.size else 0.0
    spread = zeros * mean * mean
    for value in values:
        spread += (np.float64(value) - mean) ** 2
    norm = math.sqrt(squares + missing * mean * mean)
    return mean, norm, math.sqrt(spread / (known + missing))
