"""Unit of the ratings during training: 1, or a power of four near their size if that is far from 1.

Factors are float32 (up to 3e38), and intermediate values are as large as the fourth power of a rating. So ratings of
1e9 are trained in a unit s = 4^14: as ratings / s, with biases b / s and factors w / sqrt(s). The objective of
`samplers.factorization.program` divided by s^2 is then that of the scaled ratings, with the penalty lambda / s for
factors and lambda for biases. Scaling by powers of four and their roots changes no digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import PART_ENTRIES, MatrixRowBlock, WholeMatrixStatistics
from blocks.stored_dataset import range_parts

ORDINARY = 1 / 32, 1024.0  # sizes of ratings for which the unit is 1
_MOST_POWER = 63  # float32 holds 4^63 and 4^-63


def rating_size(values: WholeMatrixStatistics, mean: float) -> float:
    """Return the root mean square of ratings minus a mean."""
    return math.hypot(values.deviation, values.mean - mean)


def rating_unit(size: float) -> float:
    """Return the unit for ratings of a size; in this unit, the size is from 1 to 4."""
    if size == 0 or ORDINARY[0] <= size <= ORDINARY[1]:
        return 1.0
    power = (math.frexp(size)[1] - 1) // 2
    return 4.0 ** max(min(power, _MOST_POWER), -_MOST_POWER)


def check_unit(unit: float) -> None:
    """Raise RequestError unless a unit is a possible result of `rating_unit`."""
    if unit != 1 and not (0 < unit < math.inf and unit == rating_unit(unit)):
        raise RequestError(f"unit must be 1 or a power of 4, got {unit:g}", "Train a new run.")


def in_unit(values: np.ndarray, unit: float) -> np.ndarray:
    """Return values, float32 (n,), in a unit: unchanged if the unit is 1, else a read-only copy."""
    if unit == 1:
        return values
    scaled = values * np.float32(1 / unit)
    scaled.setflags(write=False)
    return scaled


def entries_in_unit(
    offsets: np.ndarray, others: np.ndarray, values: np.ndarray, unit: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of some rows or columns, see `Job.entries`, with values in a unit; copies only the values."""
    if unit == 1:
        return offsets, others, values
    span, moved = slice(int(offsets[0]), int(offsets[-1])), offsets - offsets[0]
    moved.setflags(write=False)
    return moved, others[span], in_unit(values[span], unit)


def rows_in_unit(block: MatrixRowBlock, unit: float) -> Iterator[MatrixRowBlock]:
    """Yield the rows of a block with values in a unit: all at once if the unit is 1, else some at a time."""
    bounds = [0, block.rows.size] if unit == 1 else range_parts(block.offsets, PART_ENTRIES).tolist()
    for first, last in pairwise(bounds):
        entries = entries_in_unit(block.offsets[first : last + 1], block.columns, block.values, unit)
        yield MatrixRowBlock(block.rows[first:last], *entries)
