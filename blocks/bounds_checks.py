"""Validate numbers in files that kernels use as indices.

Kernels do not check bounds: a wrong index accesses memory outside the array. A checksum does not protect against a
malicious file, so each file is validated when it is first mapped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.errors import WorkFailed
from blocks.files import REMEDY

_RUNS = 1 << 16  # number of runs checked at a time, so that they stay in the cache


def require_valid(holds: bool | np.bool_, path: Path, what: str) -> None:
    """Raise WorkFailed, which says `what` is wrong with a file, unless `holds` is true."""
    if not holds:
        raise WorkFailed(f"{path} is damaged: {what}", REMEDY)


def require_offsets(path: Path, name: str, offsets: np.ndarray, items: int, entries: int) -> None:
    """Raise WorkFailed unless offsets, int64 (items + 1,), ascend from 0 to the number of entries."""
    require_valid(offsets.size == items + 1 > 0, path, f"{offsets.size} {name} for {items} items")
    ascending = offsets[0] == 0 and offsets[-1] == entries and (offsets[1:] >= offsets[:-1]).all()
    require_valid(ascending, path, f"its {name} do not ascend from 0 to {entries}")


def require_below(path: Path, name: str, numbers: np.ndarray, count: int) -> None:
    """Raise WorkFailed unless all numbers, of an unsigned dtype, are below `count`."""
    most = int(numbers.max(initial=0)) if numbers.size else -1
    require_valid(most < count, path, f"its {name} go up to {most}, but must be below {count}")


def require_runs(path: Path, blocks: np.ndarray, starts: np.ndarray, lengths: np.ndarray, cells: np.ndarray) -> None:
    """Raise WorkFailed unless all runs of tokens, start and length uint32 (R,), lie in the cells of their blocks.

    cells: int64 (B, 2), start and end of a slice's tokens in the word-major order of each block.
    """
    require_valid(
        blocks.size == starts.size == lengths.size,
        path,
        "its arrays of blocks, starts and lengths have different sizes",
    )
    require_below(path, "blocks", blocks, len(cells))
    for first in range(0, blocks.size, _RUNS):
        some = slice(first, first + _RUNS)
        begin, end = cells[blocks[some]].T
        from_ = starts[some].astype(np.int64)
        inside = (from_ >= begin) & (from_ + lengths[some] <= end)
        require_valid(inside.all(), path, "a run of tokens is outside its cell")


def require_cells(path: Path, cells: np.ndarray, blocks: int, slices: int, samples: int) -> None:
    """Raise WorkFailed unless cells, int64 (blocks * slices,), add up to `samples`."""
    require_valid(
        cells.size == blocks * slices, path, f"it has {cells.size} cells for {blocks} blocks and {slices} slices"
    )
    require_valid(
        int(cells.min(initial=0)) >= 0 and _sum(cells) == samples,
        path,
        f"the sizes of its cells do not sum to {samples}",
    )


def _sum(numbers: np.ndarray) -> int:
    """Return the sum of int64 numbers without overflow."""
    return int(numbers.sum()) if numbers.size * float(np.abs(numbers).max(initial=0)) < 2.0**62 else -1
