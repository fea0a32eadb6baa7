"""Columns plus a constant: a stored offset, or a shift that centres columns far from 0, to keep the digits of sums."""

from __future__ import annotations

import numpy as np

from samplers.regression.data.features import BlockFeatures, FeatureColumns, MatrixFeatures
from samplers.regression.linear_algebra.columns import (
    DenseColumns,
    SparseColumns,
    empty_columns,
    gather_columns,
    gather_sparse,
)
from samplers.regression.linear_algebra.vectors import inner_product, inner_products


class ShiftedFeatures:
    """`FeatureColumns` plus a shift for each column, float64 (p,). The underlying features are not changed."""

    offsets: np.ndarray | None = None

    def __init__(self, features: FeatureColumns, shifts: np.ndarray) -> None:
        self._features, self._shifts, self._ones = features, shifts, np.ones(features.rows)
        self.rows, self.count, self.entries = features.rows, features.count, features.entries
        self.pool, self.every, self.sparse = features.pool, features.every, features.sparse

    def correlations(self, chosen: np.ndarray, vector: np.ndarray, found: np.ndarray | None = None) -> np.ndarray:
        found = self._features.correlations(chosen, vector, found)
        found += inner_product(vector, self._ones) * self._shifts[chosen]
        return found

    def several_correlations(self, chosen: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        found = self._features.several_correlations(chosen, vectors)
        found += inner_products(vectors, self._ones)[:, None] * self._shifts[chosen]
        return found

    def squares(self, chosen: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        found, shifts = self._features.squares(chosen, weights), self._shifts[chosen]
        of_rows = self._ones if weights is None else weights
        along = self._features.correlations(chosen, of_rows)
        return found + shifts * (2 * along + shifts * inner_product(of_rows, self._ones))

    def gather(self, chosen: np.ndarray) -> SparseColumns | DenseColumns:
        return plus(self._features.gather(chosen), self._shifts[chosen], self.rows)


def shifted(features: FeatureColumns, shifts: np.ndarray) -> FeatureColumns:
    """Return the columns plus one shift per column, float64 (p,).

    A matrix in memory is copied and shifted before anything is summed; for mapped columns the sums are corrected
    instead.
    """
    if not isinstance(features, MatrixFeatures):
        return ShiftedFeatures(features, shifts)
    columns = features.columns
    if not isinstance(columns, SparseColumns | DenseColumns):
        columns = gather_columns(columns, features.every)
    return BlockFeatures([plus(columns, shifts, features.rows)], features.rows, features.pool)


def plus(columns: SparseColumns | DenseColumns, numbers: np.ndarray, rows: int) -> SparseColumns | DenseColumns:
    """Return a float64 copy of the columns plus one shift per column, float64 (W,). Sparse columns get entries in all
    rows unless the shift is 0.
    """
    if isinstance(columns, DenseColumns):
        return DenseColumns(columns.values + numbers[:, None])
    copied = empty_columns(np.where(numbers != 0, rows, np.diff(columns.offsets)), np.float64)
    same = np.flatnonzero(numbers == 0)
    gather_sparse(columns, same, same, *copied)
    for j in np.flatnonzero(numbers).tolist():
        span, whole = slice(*columns.offsets[j : j + 2]), slice(*copied.offsets[j : j + 2])
        copied.rows[whole], copied.values[whole] = np.arange(rows), numbers[j]
        copied.values[whole][columns.rows[span]] += columns.values[span] if columns.values.size else 1.0
    return copied
