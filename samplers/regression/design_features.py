"""The columns of a design matrix on disk as the solvers see them: blocks stay mapped, what is read of them is counted.

Pages of mapped files are the kernel's to drop, so they are not of the memory that a process holds: all that is, of the
columns, are those of a working set.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from blocks.design.design import Design
from blocks.design.weighted_moments import weighted_moments, weights_of
from blocks.errors import WorkFailed
from samplers.regression.columns import DenseColumns, SparseColumns, gather_sparse, read_only, room_for
from samplers.regression.features import BlockFeatures, block_columns
from samplers.regression.sparse_regression import Moments

_COPIES = 2  # of the columns that are gathered, held at a time: with those before, or with what threads note of them


class DesignFeatures(BlockFeatures):
    """room: bytes that gathered columns may take. keeps: of a sparse design, columns that are gathered are kept until
    others are, and those that are asked for again, along a path most of them, not read again. scaled: the rows of what
    is gathered are to have factors, which takes another copy. Attributes: `bytes_read` and `samples`, entries or cells,
    so far."""

    def __init__(self, design: Design, threads: int, room: int, *, keeps: bool = False, scaled: bool = False) -> None:
        blocks = [block_columns(design, number, design.means) for number in range(design.block_count)]
        super().__init__(blocks, design.manifest["rows"], threads)
        self._room, self._sizes, self._keeps = room, _sizes(design), keeps
        self._copies = _COPIES + scaled
        self._bytes = 1 if design.form == "int8" else 4 if design.dense or design.form == "ones" else 8
        self.bytes_read = self.samples = 0
        self._numbers, self._held = np.empty(0, np.int64), room_for(np.empty(0, np.int64), np.float32)

    def correlations(self, chosen: np.ndarray, vector: np.ndarray) -> np.ndarray:
        self._count(chosen)
        return super().correlations(chosen, vector)

    def several_correlations(self, chosen: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        self._count(chosen)
        return super().several_correlations(chosen, vectors)

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        """Raises WorkFailed if there is no room for them."""
        check_room(chosen.size, 8 * self._copies * self._entries(chosen), self._room)
        if self._keeps and self._sizes is not None:
            return self._gather_sparse(chosen, self._sizes[chosen])
        self._count(chosen)
        return super().gather(chosen)

    def _gather_sparse(self, chosen: np.ndarray, sizes: np.ndarray) -> SparseColumns:
        copied, again = room_for(sizes, np.float32), np.isin(chosen, self._numbers, assume_unique=True)
        places, fresh = np.flatnonzero(again), np.flatnonzero(~again)
        gather_sparse(self._held, np.searchsorted(self._numbers, chosen[places]), places, *copied)
        for piece in self._pieces(chosen[fresh], 1):
            gather_sparse(piece.block, piece.columns, fresh[piece.place], *copied)
        self._count(chosen[fresh])
        self._numbers, self._held = chosen, read_only(copied)
        return copied

    def _entries(self, chosen: np.ndarray) -> int:
        """How many entries, or cells, some columns have."""
        return chosen.size * self.rows if self._sizes is None else int(self._sizes[chosen].sum())

    def _count(self, chosen: np.ndarray) -> None:
        """Some columns are read."""
        entries = self._entries(chosen)
        self.samples += entries
        self.bytes_read += entries * self._bytes


def check_room(columns: int, needed: int, room: int) -> None:
    """Raise WorkFailed unless there is room, in bytes, for some columns to be worked on."""
    if needed > room:
        raise WorkFailed(
            f"{columns:,} columns are worked on at a time, which takes {needed / 1e6:,.0f} MB,"
            f" but there are {room / 1e6:,.0f} MB for them",
            "Go on with more --memory by `ooc resume`, or choose larger values of lambda.",
        )


def _sizes(design: Design) -> np.ndarray | None:
    """int64 (p,), the entries of each column; None if all have as many as there are rows."""
    if design.dense:
        return None
    sizes = [np.diff(design.block(number).offsets) for number in range(design.block_count)]  # type: ignore[union-attr]
    return np.concatenate(sizes)


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
