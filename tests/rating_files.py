"""Reader of the matrix in a dataset of ratings."""

from __future__ import annotations

import numpy as np

from blocks.ratings.matrix import Matrix


def read_back(matrix: Matrix, *, by_column: bool = False) -> dict[tuple[str, str], float]:
    """Return all entries, keyed by the names of their row and column, from the blocks or from the slices."""
    rows, columns, found = matrix.row_names(), matrix.column_names(), {}
    blocks = [matrix.block(number) for number in range(matrix.block_count)]
    lines = np.concatenate([block.rows for block in blocks])
    units = [matrix.slice(number) for number in range(matrix.slice_count)] if by_column else blocks
    place = 0
    for unit in units:
        for begin, end in zip(unit.offsets[:-1].tolist(), unit.offsets[1:].tolist(), strict=True):
            for at in range(begin, end):
                row, column = (unit.rows[at], place) if by_column else (place, unit.columns[at])
                key = rows[lines[row]], columns[matrix.index.column_ids[column]]
                assert key not in found
                found[key] = float(unit.values[at])
            place += 1
    return found
