"""Columns of a design matrix on disk for the solvers: blocks stay memory-mapped, and reads are counted.

The kernel can drop pages of mapped files, so they do not count as memory of the process; only the columns of a working
set do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from blocks.design.design import Design
from blocks.errors import WorkFailed
from ooc.workers.madvise import read_ahead
from samplers.regression.data.features import BlockColumns, BlockFeatures, block_columns
from samplers.regression.data.read_ahead import ReadAhead, arrays_of
from samplers.regression.linear_algebra.columns import (
    Columns,
    DenseColumns,
    SparseColumns,
    empty_columns,
    entry_count,
    gather_sparse,
    read_only,
)
from samplers.regression.solver.solver_limit import SolverLimit, SolverLimitReached
from samplers.regression.threads.thread_pool import ThreadPool

_LONG = 0.5  # fraction of all entries: after a larger pass, the next pass starts with the columns that were read last
_COPIES = 2  # copies of the gathered columns held at a time, including the previous ones; one more by row, if sparse


class DesignFeatures(BlockFeatures):
    """Columns of a design matrix on disk.

    room: bytes for gathered columns.
    keeps: keep gathered sparse columns until others are gathered, and read only the missing columns then; along a path
        most columns stay the same.
    scaled: whether the rows of gathered columns will be scaled, which needs another copy.
    limit: passes over columns raise SolverLimitReached at this limit. Attributes: `bytes_read` and `samples`, the
        number of bytes and of entries (or cells) read so far.
    """

    def __init__(
        self,
        design: Design,
        threads: int,
        room: int,
        limit: SolverLimit | None = None,
        *,
        keeps: bool = False,
        scaled: bool = False,
    ) -> None:
        self._limit = limit or SolverLimit()
        blocks = [block_columns(design, number, design.means) for number in range(design.block_count)]
        self._size = sum(_entry_bytes(block) * entry_count(block) for block in blocks)
        self._read_ahead = ReadAhead(blocks, self._size)
        super().__init__(_with_offsets(blocks), design.manifest["rows"], ThreadPool(threads), design.offsets)
        self._room, self._keeps = room, keeps and not design.dense
        self._backwards = True  # verifying the checksums has read the design to its end
        self._copies = _COPIES + (not design.dense) + scaled
        self.bytes_read = self.samples = 0
        nothing = np.empty(0, np.int64)
        self._numbers, self._held = nothing, read_only(empty_columns(nothing, np.float32))

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        """Return a copy of the chosen columns.

        Raises WorkFailed if the columns do not fit.
        """
        check_room(chosen.size, 8 * self._copies * int(self._sizes(chosen).sum()), self._room)
        if self._keeps:
            return self._gather_sparse(chosen)
        return super().gather(chosen)

    def _gather_sparse(self, chosen: np.ndarray) -> SparseColumns:
        copied, again = (
            empty_columns(self._sizes(chosen), np.float32),
            np.isin(chosen, self._numbers, assume_unique=True),
        )
        places, fresh = np.flatnonzero(again), np.flatnonzero(~again)
        gather_sparse(self._held, np.searchsorted(self._numbers, chosen[places]), places, *copied)
        self._copy(chosen[fresh], fresh, copied)
        self._numbers, self._held = chosen, read_only(copied)
        return copied

    def _each_piece(self, chosen: np.ndarray, look: Callable[[BlockColumns], object]) -> None:
        pool, pieces = self._shared_out(chosen)
        sizes = self._counted(chosen, pieces)
        if self._backwards:
            pieces, sizes = pieces[::-1], sizes[::-1]
        self._backwards ^= bool(sizes.sum() > _LONG * self._size)
        ask = self._read_ahead.begin(pieces, sizes)

        def work(number: int) -> None:
            if self._limit.reached:
                raise SolverLimitReached
            ask(number)
            look(pieces[number])

        pool.each(range(len(pieces)), work)

    def _counted(self, chosen: np.ndarray, pieces: Sequence[BlockColumns]) -> np.ndarray:
        """Count the bytes of the pieces that contain the chosen columns, before they are read."""
        if not pieces:
            return np.empty(0, np.int64)
        sizes = np.add.reduceat(self._sizes(chosen), [piece.place.start for piece in pieces])
        self.samples += int(sizes.sum())
        sizes *= [_entry_bytes(piece.block) for piece in pieces]
        self.bytes_read += int(sizes.sum())
        return sizes


def _entry_bytes(block: Columns) -> int:
    """Return the size in bytes of an entry, or of a cell, of a block."""
    return sum(array.itemsize for array in arrays_of(block))


def _with_offsets(blocks: Sequence[Columns]) -> Sequence[Columns]:
    """Return the blocks, all sparse or all dense, with column offsets in memory instead of mapped."""
    sparse = [block for block in blocks if isinstance(block, SparseColumns)]
    for block in sparse:
        read_ahead(block.offsets)
    return [read_only(block._replace(offsets=block.offsets.copy())) for block in sparse] or blocks


def check_room(columns: int, needed: int, room: int) -> None:
    """Raise WorkFailed if a working set of columns does not fit in `room` bytes."""
    if needed > room:
        raise WorkFailed(
            f"the working set of {columns:,} columns takes {needed / 1e6:,.0f} MB, but --memory leaves"
            f" {room / 1e6:,.0f} MB for it",
            "Continue with `ooc resume` and a larger --memory, or choose a larger lambda.",
        )
