"""Columns of a design matrix split by rows over the ranks of a ring, with the interface of the whole matrix.

Results for each rank's rows are summed over the ring in rank order. Every rank makes the same calls and gets the same
results. So the solver, which runs on every rank with y and the other row data of the whole dataset, finds the same
solution on all ranks, equal to that of one machine except for rounding. Gathered columns have the rows of all ranks.
"""

from __future__ import annotations

import numpy as np

from blocks.design.row_shards import DesignRowShard
from ooc.ring.ring import Ring
from samplers.regression.data.design_features import DesignFeatures, check_room
from samplers.regression.linear_algebra.columns import (
    DenseColumns,
    SparseColumns,
    empty_columns,
    gather_sparse,
    read_only,
)

_NOTHING = np.empty(0, np.int64), read_only(empty_columns(np.empty(0, np.int64), np.float32))
_COPIES = 4  # copies of the gathered columns held at a time: with the rank's own rows, or by row and with factors


class RingFeatures:
    """`FeatureColumns` of a design, given this rank's shard.

    See DesignFeatures for the parameters, which count the rank's own rows.

    keeps: columns that are kept, with all rows, are not sent again.
    """

    def __init__(self, shard: DesignRowShard, ring: Ring, threads: int, room: int, *, keeps: bool = False) -> None:
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
        """Return a copy of the chosen columns.

        Raises WorkFailed if the columns do not fit.
        """
        if self._keeps:
            return self._gather_anew(chosen)
        own = self._own.gather(chosen)
        return self._gather_sparse(own) if isinstance(own, SparseColumns) else self._gather_dense(own)

    def _gather_anew(self, chosen: np.ndarray) -> SparseColumns:
        """Read and send only the columns that are not kept."""
        again = np.isin(chosen, self._numbers, assume_unique=True)
        places, fresh = np.flatnonzero(again), np.flatnonzero(~again)
        if not places.size:
            self._numbers, self._held = _NOTHING
        kept, sizes = np.searchsorted(self._numbers, chosen[places]), np.empty(chosen.size, np.int64)
        read = read_only(self._gather_sparse(self._own.gather(chosen[fresh])))  # type: ignore[arg-type]
        sizes[places], sizes[fresh] = np.diff(self._held.offsets)[kept], np.diff(read.offsets)
        check_room(chosen.size, 8 * self._copies * int(sizes.sum()), self._room)
        copied = empty_columns(sizes, np.float32)
        gather_sparse(self._held, kept, places, *copied)
        gather_sparse(read, np.arange(fresh.size), fresh, *copied)
        self._numbers, self._held = chosen, read_only(copied)
        return copied

    def _gather_sparse(self, own: SparseColumns) -> SparseColumns:
        """Return the sparse columns of all ranks.

        A row index and its float32 value are sent as one number, to which the other ranks add 0.
        """
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
        # column means, which replace missing values
        precise = self._sum(np.array([own.values.dtype == np.float64], np.int64))[0]
        return DenseColumns(self._sum(whole) if precise else self._sum(whole).astype(np.float32))

    def _sum(self, array: np.ndarray) -> np.ndarray:
        self._ring.all_reduce(array)
        return array
