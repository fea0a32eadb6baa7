"""Interface of the columns of a design matrix for the solvers, and its implementation for columns mapped or in memory.

Work on many columns is divided among threads by column, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from blocks.design.design import DenseDesignBlock, Design
from samplers.regression.linear_algebra.columns import (
    TOGETHER,
    Columns,
    ColumnsWithMissingValues,
    DenseColumns,
    SparseColumns,
    correlate,
    correlate_all,
    count_entries,
    count_up,
    empty_columns,
    entry_count,
    gather_dense,
    gather_sparse,
    kind_of_copy,
    squares,
)
from samplers.regression.linear_algebra.contiguous import BLOCK
from samplers.regression.threads.thread_pool import ALONE, ThreadPool

_PIECES = 12  # pieces of a block's columns per thread, since sparse columns differ in length
# minimum number of entries, or cells, of a piece: smaller pieces take longer to hand over than to process
_LEAST = 1 << 16


class FeatureColumns(Protocol):
    """p columns of n rows.

    chosen: int64 (m,), ascending. Results are float64 (m,).
    """

    rows: int
    count: int
    entries: int  # number of entries in all columns (cells, for dense columns)
    pool: ThreadPool  # threads that work on the columns
    every: np.ndarray  # int64 (p,), the indices of all columns
    sparse: bool
    offsets: np.ndarray | None  # float64 (p,), offsets of the columns, or None

    def correlations(self, chosen: np.ndarray, vector: np.ndarray, found: np.ndarray | None = None) -> np.ndarray:
        """Return the inner products of the chosen columns with a vector, float64 (n,), in `found` if given."""

    def several_correlations(self, chosen: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the inner products of m columns with k vectors, float64 (k, n), after one pass: float64 (k, m)."""

    def squares(self, chosen: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return the squared norms of the chosen columns.

        weights: float64 (n,) or None.
        """

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        """Return a copy of the chosen columns."""


class BlockColumns(NamedTuple):
    """The chosen columns of one block."""

    block: Columns
    columns: np.ndarray  # int64, indices of the columns in the block
    place: slice  # positions of the columns among all chosen ones


class BlockFeatures:
    """`FeatureColumns` stored in consecutive blocks of columns."""

    def __init__(
        self, blocks: Sequence[Columns], rows: int, pool: ThreadPool = ALONE, offsets: np.ndarray | None = None
    ) -> None:
        self._blocks, self.rows, self.pool, self.offsets = blocks, rows, pool, offsets
        self.sparse = isinstance(blocks[0], SparseColumns)
        sizes = [len(block[0]) - isinstance(block, SparseColumns) for block in blocks]
        self._bounds = np.concatenate([[0], np.cumsum(sizes)])
        self.count, self.entries = int(self._bounds[-1]), sum(entry_count(block) for block in blocks)
        self.every = np.empty(self.count, np.int64)
        pool.share(self.count, lambda begin, end: count_up(begin, self.every[begin:end]))

    def correlations(self, chosen: np.ndarray, vector: np.ndarray, found: np.ndarray | None = None) -> np.ndarray:
        found = np.empty(chosen.size) if found is None else found
        self._each_piece(chosen, lambda piece: correlate(*piece[:2], vector, found[piece.place]))
        return found

    def several_correlations(self, chosen: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        found, many = np.empty((len(vectors), chosen.size)), max(len(vectors), TOGETHER)
        if self.sparse:
            rows = np.zeros((self.rows, many))
            rows[:, : len(vectors)] = vectors.T
            vectors = rows

        def look(piece: BlockColumns) -> None:
            correlate_all(piece.block, piece.columns, vectors, np.empty((BLOCK, many)), found, piece.place.start)

        self._each_piece(chosen, look)
        return found

    def squares(self, chosen: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        found, weights = np.empty(chosen.size), np.empty(0) if weights is None else weights
        self._each_piece(chosen, lambda piece: squares(*piece[:2], weights, found[piece.place]))
        return found

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        first = self._blocks[0]
        if isinstance(first, SparseColumns):
            copied = empty_columns(self._sizes(chosen), first.values.dtype)
            self._copy(chosen, np.arange(chosen.size), copied)
            return copied
        kinds = [kind_of_copy(first, chosen[:0]), *(kind_of_copy(*piece[:2]) for piece in self._pieces(chosen, 1))]
        found = np.empty((chosen.size, self.rows), np.result_type(*kinds))
        self._each_piece(chosen, lambda piece: gather_dense(*piece[:2], found[piece.place]))
        return DenseColumns(found)

    def _copy(self, chosen: np.ndarray, places: np.ndarray, copied: SparseColumns) -> None:
        """Copy the chosen columns to the positions `places`, int64 (m,), in `copied`."""
        self._each_piece(chosen, lambda piece: gather_sparse(*piece[:2], places[piece.place], *copied))

    def _sizes(self, chosen: np.ndarray) -> np.ndarray:
        """Return the number of entries, or cells, of each chosen column; int64."""
        sizes = np.full(chosen.size, self.rows)
        for piece in self._pieces(chosen, 1):
            if isinstance(piece.block, SparseColumns):
                count_entries(piece.block.offsets, piece.columns, sizes[piece.place])
        return sizes

    def _each_piece(self, chosen: np.ndarray, look: Callable[[BlockColumns], object]) -> None:
        """Call look(piece) for each piece of the chosen columns, after reading the piece."""
        pool, pieces = self._shared_out(chosen)
        pool.each(pieces, look)

    def _shared_out(self, chosen: np.ndarray) -> tuple[ThreadPool, list[BlockColumns]]:
        """Return the thread pool for the chosen columns, and the pieces of columns, each for one thread."""
        worth = chosen.size * self.entries // max(self.count * _LEAST, 1)
        pool = self.pool if worth > 1 else ALONE
        each = -(-worth // pool.size) * pool.size  # a multiple of the pool size, so that all threads have equal work
        return pool, list(self._pieces(chosen, min(max(each, 1), pool.size * _PIECES)))

    def _pieces(self, chosen: np.ndarray, each: int) -> Iterator[BlockColumns]:
        """Yield the chosen columns of each block in pieces."""
        ends = np.searchsorted(chosen, self._bounds).tolist()
        for block, before, (first, last) in zip(self._blocks, self._bounds, pairwise(ends), strict=False):
            cuts = range(first, last, max(-(-(last - first) // each), 1))
            for begin, end in pairwise([*cuts, last]):
                columns = chosen[begin:end] - before if before else chosen[begin:end]
                yield BlockColumns(block, columns, slice(begin, end))


class MatrixFeatures(BlockFeatures):
    """Columns of a matrix in memory."""

    def __init__(self, columns: Columns, rows: int, pool: ThreadPool) -> None:
        super().__init__([columns], rows, pool)
        self.columns = columns


def block_columns(design: Design, number: int, means: np.ndarray) -> Columns:
    """Return the columns of a block of a design matrix on disk, which stays mapped.

    means: float64 (p,), values that replace missing entries.
    """
    block = design.block(number)
    if not isinstance(block, DenseDesignBlock):
        return SparseColumns(*block)
    if block.values.dtype == np.float32 and not block.missing_rows.size:
        return DenseColumns(block.values)
    return ColumnsWithMissingValues(*block, means[slice(*design.block_bounds[number : number + 2])])


def features_of_matrix(matrix: Any, threads: int = 1) -> MatrixFeatures:
    """Return the columns of a matrix in memory: a float32, float64 or int8 array, not copied if its columns are
    contiguous, or a scipy CSC matrix.
    """
    pool = ThreadPool(threads)
    if not isinstance(matrix, np.ndarray):
        return MatrixFeatures(_sparse(matrix, pool), matrix.shape[0], pool)
    values = np.ascontiguousarray(matrix.T)
    block: Columns = DenseColumns(values)
    if values.dtype == np.int8:
        none = np.zeros(len(values) + 1, np.int64)
        block = ColumnsWithMissingValues(values, none, np.empty(0, np.uint32), np.zeros(len(values)))
    return MatrixFeatures(block, matrix.shape[0], pool)


def _sparse(matrix: Any, pool: ThreadPool) -> SparseColumns:
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    values = matrix.data if matrix.dtype in (np.float32, np.float64) else matrix.data.astype(np.float64)
    rows = matrix.indices.view(np.uint32) if matrix.indices.itemsize == 4 else matrix.indices.astype(np.uint32)
    offsets = np.empty(matrix.indptr.size, np.int64)
    pool.share(offsets.size, lambda begin, end: np.copyto(offsets[begin:end], matrix.indptr[begin:end]))
    return SparseColumns(offsets, rows, values)
