"""The columns of a design matrix of which each rank of a ring has some rows, as the solvers see them: whole.

What comes of each rank's rows is added up over the ring, in the order of ranks. Every rank asks for the same and hears
the same, so that the same solver at all of them, which has y and what else there is of rows in whole, comes to the same
solutions; those of one machine but for the order of sums. Columns that are gathered come from all ranks.
"""

from __future__ import annotations

import numpy as np

from blocks.design.row_shards import RowShard
from ooc.ring.ring import Ring
from samplers.regression.data.design_features import DesignFeatures, check_room
from samplers.regression.linear_algebra.columns import DenseColumns, SparseColumns, gather_sparse, read_only, room_for

_NOTHING = np.empty(0, np.int64), read_only(room_for(np.empty(0, np.int64), np.float32))
_COPIES = 4  # of the columns that are gathered, held at a time: with a rank's own, or row by row and with factors


class RingFeatures:
    """`Features` of a design whose shard this rank has. The others are as of DesignFeatures, which counts own rows.

    keeps: as there; what is kept, of all rows, need not travel again, either.
    """

    def __init__(self, shard: RowShard, ring: Ring, threads: int, room: int, *, keeps: bool = False) -> None:
        self.rows, self.count = shard.rows, shard.columns
        self._own_rows, self._ring, self._room = shard.own, ring, room
        self._own = DesignFeatures(shard, threads, room)
        self.entries = int(self._sum(np.array([self._own.entries], np.int64))[0])
        self.pool, self.every = self._own.pool, self._own.every
        self.sparse, self.offsets = self._own.sparse, self._own.offsets
        self._keeps = keeps and not shard.dense
        self._copies = _COPIES + self._keeps
        self._numbers, self._held = _NOTHING

    @property
    def bytes_read(self) -> int:
        return self._own.bytes_read

    @property
    def samples(self) -> int:
        return self._own.samples

    def correlations(self, chosen: np.ndarray, vector: np.ndarray, found: np.ndarray | None = None) -> np.ndarray:
        return self._sum(self._own.correlations(chosen, vector[self._own_rows], found))

    def several_correlations(self, chosen: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return self._sum(self._own.several_correlations(chosen, vectors[:, self._own_rows]))

    def squares(self, chosen: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        return self._sum(self._own.squares(chosen, None if weights is None else weights[self._own_rows]))

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        """Raises WorkFailed if there is no room for them."""
        if self._keeps:
            return self._gather_anew(chosen)
        own = self._own.gather(chosen)
        return self._gather_sparse(own) if isinstance(own, SparseColumns) else self._gather_dense(own)

    def _gather_anew(self, chosen: np.ndarray) -> SparseColumns:
        """Only those that are not kept are read and travel."""
        again = np.isin(chosen, self._numbers, assume_unique=True)
        places, fresh = np.flatnonzero(again), np.flatnonzero(~again)
        if not places.size:
            self._numbers, self._held = _NOTHING
        kept, sizes = np.searchsorted(self._numbers, chosen[places]), np.empty(chosen.size, np.int64)
        read = read_only(self._gather_sparse(self._own.gather(chosen[fresh])))  # type: ignore[arg-type]
        sizes[places], sizes[fresh] = np.diff(self._held.offsets)[kept], np.diff(read.offsets)
        check_room(chosen.size, 8 * self._copies * int(sizes.sum()), self._room)
        copied = room_for(sizes, np.float32)
        gather_sparse(self._held, kept, places, *copied)
        gather_sparse(read, np.arange(fresh.size), fresh, *copied)
        self._numbers, self._held = chosen, read_only(copied)
        return copied

    def _gather_sparse(self, own: SparseColumns) -> SparseColumns:
        """A row and its value, float32, travel as one number; other ranks add 0 to it."""
        sizes = np.zeros((self._ring.ranks, own.offsets.size - 1), np.int64)
        sizes[self._ring.rank] = np.diff(own.offsets)
        self._sum(sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes.sum(axis=0))])
        check_room(offsets.size - 1, 8 * self._copies * int(offsets[-1]), self._room)
        begins = offsets[:-1] + sizes[: self._ring.rank].sum(axis=0) - own.offsets[:-1]
        places = np.repeat(begins, sizes[self._ring.rank]) + np.arange(own.rows.size)
        entries = np.zeros((offsets[-1], 2), np.uint32)
        entries[places, 0] = own.rows + np.uint32(self._own_rows.start)
        entries[places, 1] = own.values.view(np.uint32)
        self._sum(entries.view(np.int64))
        return SparseColumns(offsets, entries[:, 0].copy(), entries[:, 1].copy().view(np.float32))

    def _gather_dense(self, own: DenseColumns) -> DenseColumns:
        check_room(len(own.values), 8 * self._copies * len(own.values) * self.rows, self._room)
        whole = np.zeros((len(own.values), self.rows))
        whole[:, self._own_rows] = own.values
        precise = self._sum(np.array([own.values.dtype == np.float64], np.int64))[0]  # means of missing values
        return DenseColumns(self._sum(whole) if precise else self._sum(whole).astype(np.float32))

    def _sum(self, array: np.ndarray) -> np.ndarray:
        self._ring.all_reduce(array)
        return array
