"""The columns of a design matrix on disk as the solvers see them: blocks stay mapped, what is read of them is counted.

Pages of mapped files are the kernel's to drop, so they are not of the memory that a process holds: all that is, of the
columns, are those of a working set.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from blocks.design.design import Design
from blocks.design.weighted_moments import weighted_moments, weights_of
from blocks.errors import WorkFailed
from ooc.pages import ask_for_runs, say_order
from samplers.regression.columns import Columns, DenseColumns, SparseColumns, gather_sparse, read_only, room_for
from samplers.regression.features import BlockFeatures, Piece, block_columns
from samplers.regression.sparse_regression import Moments

_ASKED = 64_000_000  # bytes of columns that are asked for before they are read
_AHEAD = 8  # pieces for each thread, a block in all, by which all columns are asked for before they are read
_COPIES = 2  # of the columns that are gathered, held at a time: with those before; one more, row by row, if sparse


class DesignFeatures(BlockFeatures):
    """room: bytes that gathered columns may take. keeps: of a sparse design, columns that are gathered are kept until
    others are, and those that are asked for again, along a path most of them, not read again. scaled: the rows of what
    is gathered are to have factors, which takes another copy. Attributes: `bytes_read` and `samples`, entries or cells,
    so far."""

    def __init__(self, design: Design, threads: int, room: int, *, keeps: bool = False, scaled: bool = False) -> None:
        blocks = [block_columns(design, number, design.means) for number in range(design.block_count)]
        super().__init__([_with_offsets(block) for block in blocks], design.manifest["rows"], threads)
        self._room, self._keeps, self._streamed = room, keeps and not design.dense, True
        self._copies = _COPIES + (not design.dense) + scaled
        self._bytes = 1 if design.form == "int8" else 4 if design.dense or design.form == "ones" else 8
        self.bytes_read = self.samples = 0
        self._numbers, self._held = np.empty(0, np.int64), room_for(np.empty(0, np.int64), np.float32)

    def correlations(self, chosen: np.ndarray, vector: np.ndarray, found: np.ndarray | None = None) -> np.ndarray:
        self._announce(chosen)
        return super().correlations(chosen, vector, found)

    def several_correlations(self, chosen: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        self._announce(chosen)
        return super().several_correlations(chosen, vectors)

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        """Raises WorkFailed if there is no room for them."""
        check_room(chosen.size, 8 * self._copies * int(self._sizes(chosen).sum()), self._room)
        if self._keeps:
            return self._gather_sparse(chosen)
        self._announce(chosen)
        return super().gather(chosen)

    def _gather_sparse(self, chosen: np.ndarray) -> SparseColumns:
        copied, again = room_for(self._sizes(chosen), np.float32), np.isin(chosen, self._numbers, assume_unique=True)
        places, fresh = np.flatnonzero(again), np.flatnonzero(~again)
        gather_sparse(self._held, np.searchsorted(self._numbers, chosen[places]), places, *copied)
        self._announce(chosen[fresh])
        self._copy(chosen[fresh], fresh, copied)
        self._numbers, self._held = chosen, read_only(copied)
        return copied

    def _announce(self, chosen: np.ndarray) -> None:
        """Some columns are about to be read. If they are few, all are asked for, and nothing else is to be read: at the
        touch of one, the kernel would read megabytes after it, too, and most of a design for a hundredth of it."""
        entries = int(self._sizes(chosen).sum())
        self.samples += entries
        self.bytes_read += entries * self._bytes
        streamed = entries * self._bytes > _ASKED
        if streamed != self._streamed:
            for block in self._blocks:
                say_order(_arrays(block)[0], streamed=streamed)
            self._streamed = streamed
        if not streamed:
            for piece in self._pieces(chosen, 1):
                _ask_for(piece.block, piece.columns, piece.columns)

    def _ask_ahead(self, pieces: Sequence[Piece], number: int) -> None:
        if self._streamed and (following := number + _AHEAD * self.team.size) < len(pieces):
            block, columns, _ = pieces[following]
            _ask_for(block, columns[:1], columns[-1:])


def _with_offsets(block: Columns) -> Columns:
    """Where columns begin is held in memory, not mapped."""
    if not isinstance(block, SparseColumns):
        return block
    offsets = block.offsets.copy()
    offsets.flags.writeable = False  # as kernels know it
    return block._replace(offsets=offsets)


def _arrays(block: Columns) -> Sequence[np.ndarray]:
    """Those that are read of each column."""
    if not isinstance(block, SparseColumns):
        return (block.values,)
    return (block.rows, block.values) if block.values.size else (block.rows,)


def _ask_for(block: Columns, firsts: np.ndarray, lasts: np.ndarray) -> None:
    """Ask for some runs of columns, from the first, int64 (m,), to the last of each, int64 (m,)."""
    bounds = firsts, lasts + 1
    if isinstance(block, SparseColumns):
        bounds = block.offsets[firsts], block.offsets[lasts + 1]
    for array in _arrays(block):
        ask_for_runs(array, *bounds)


def check_room(columns: int, needed: int, room: int) -> None:
    """Raise WorkFailed unless there is room, in bytes, for some columns to be worked on."""
    if needed > room:
        raise WorkFailed(
            f"{columns:,} columns are worked on at a time, which takes {needed / 1e6:,.0f} MB,"
            f" but there are {room / 1e6:,.0f} MB for them",
            "Go on with more --memory by `ooc resume`, or choose larger values of lambda.",
        )


def design_moments(design: Design, weights: list[np.ndarray | None], threads: int) -> list[Moments]:
    """Those of the columns under several weights of the rows, float64 (n,) or None for 1 everywhere."""
    known = Moments(design.means, design.norms, design.deviations)
    of_rows = [some for some in weights if some is not None]
    if not of_rows:
        return [known] * len(weights)
    several = weights_of(np.stack(of_rows, axis=1))
    with ThreadPoolExecutor(threads) as pool:
        blocks = pool.map(lambda number: weighted_moments(design.block(number), several), range(design.block_count))
        found = np.concatenate(list(blocks), axis=2)  # (3, K, p)
    others = iter(range(len(of_rows)))
    return [known if some is None else Moments(*found[:, next(others)]) for some in weights]
