"""Read columns of mapped blocks in advance, in one of two ways.

Many columns: a thread touches all pages between the first and the last column, so that the operating system reads ahead
in large requests, which cost far less than many small ones. Few columns: only their pages are requested, without
touching them; otherwise the operating system would read ahead after each of them, and could read most of a design for a
hundredth of its columns.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from blocks.compiled import reordered_kernel
from ooc.workers.madvise import advise_order, read_ahead_runs
from samplers.regression.data.features import BlockColumns
from samplers.regression.linear_algebra.columns import Columns, SparseColumns

_AHEAD = 64_000_000  # bytes to read ahead
_SLOWER = 2  # minimum ratio of the time per byte in small pages to that in large ones
_TOUCHED = 1 << 16  # bytes that a kernel with small pages maps per page fault


class ReadAhead:
    """Reads columns of blocks, `bytes` bytes in total, ahead of their use."""

    def __init__(self, blocks: Sequence[Columns], size: int) -> None:
        self._blocks, self._size = blocks, size
        self._streams(streamed=False)
        self._reader = ThreadPoolExecutor(1)

    def begin(self, pieces: Sequence[BlockColumns], sizes: np.ndarray) -> Callable[[int], None]:
        """Start to read the pieces in order; returns a function to call with the index of each piece before its use.

        sizes: int64 (m,), size of each piece in bytes.
        """
        pages = mmap.PAGESIZE * len(arrays_of(self._blocks[0])) * sum(piece.columns.size for piece in pieces)
        streamed = _SLOWER * (pages + int(sizes.sum())) > self._size
        if streamed != self._streamed:
            self._streams(streamed=streamed)
        ends = np.cumsum(sizes)
        until = np.searchsorted(ends, ends + _AHEAD, "right").tolist()

        def ask(number: int) -> None:
            following = pieces[until[number - 1] if number else 0 : until[number]]
            if streamed:
                self._reader.submit(_touch, following)
            else:
                _ask_for(following)

        return ask

    def _streams(self, *, streamed: bool) -> None:
        self._streamed = streamed
        for block in self._blocks:
            advise_order(arrays_of(block)[0], streamed=streamed)


def arrays_of(block: Columns) -> Sequence[np.ndarray]:
    """Return the arrays of a block that are read for each column."""
    if not isinstance(block, SparseColumns):
        return (block.values,)
    return (block.rows, block.values) if block.values.size else (block.rows,)


def _places(block: Columns, columns: np.ndarray) -> np.ndarray:
    """Return the start of the columns in these arrays."""
    return block.offsets[columns] if isinstance(block, SparseColumns) else columns


def _ask_for(pieces: Sequence[BlockColumns]) -> None:
    for block, columns, _ in pieces:
        begins, ends = _places(block, columns), _places(block, columns + 1)
        for array in arrays_of(block):
            read_ahead_runs(array, begins, ends)


def _touch(pieces: Sequence[BlockColumns]) -> None:
    for block, columns, _ in pieces:
        begin, end = _places(block, np.array([columns[0], columns[-1] + 1])).tolist()
        for array in arrays_of(block):
            touch(array[begin:end].reshape(-1).view(np.uint8))


@reordered_kernel
def touch(contents):
    """Touch all pages of a byte array, uint8 (N,)."""
    total = 0
    for k in range(0, contents.size, _TOUCHED):
        total += contents[k]
    return total
