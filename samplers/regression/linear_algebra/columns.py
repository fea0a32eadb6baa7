"""Columns of a design matrix in memory, and the operations of solvers on a single column.

    SparseColumns       nonzero entries
    DenseColumns        all values
    IncompleteColumns   all values, some of them missing: these are replaced by the mean of their column

    dot(columns, j, vector)          return the inner product of column j and a vector
    dots(columns, j, vectors, found) write the inner products of column j and k vectors to found, (k,); vectors are
                                     (n, k) if columns are sparse, else (k, n)
    square(columns, j, weights)      return the squared norm of column j, weighted by row unless weights are (0,)
    add(columns, j, weight, vector)  vector += weight * column j; not for incomplete columns, which are gathered first
    ask(columns, chosen, i)          prefetch columns shortly after position i of chosen, if they are sparse: such
                                     columns are short and may be far apart

All functions are compiled for each kind of columns. Vectors are float64 (n,), with an element for each row (sample).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import reordered_inlined_kernel, reordered_kernel
from ooc.workers.intrinsics import prefetch
from samplers.regression.linear_algebra.type_dispatch import Implementations, by_kind

TOGETHER = 4  # minimum number of vectors for `dots` of sparse columns: the width of one SIMD instruction
_AHEAD = 8  # number of columns to prefetch ahead


class SparseColumns(NamedTuple):
    """The N nonzero entries of W columns."""

    offsets: np.ndarray  # int64 (W+1,), start of each column's entries
    rows: np.ndarray  # uint32 (N,), ascending within each column
    values: np.ndarray  # float32 or float64 (N,); (0,) if all are 1


class DenseColumns(NamedTuple):
    """All values of W columns."""

    values: np.ndarray  # float32 or float64 (W, n)


class ColumnsWithMissingValues(NamedTuple):
    """All values of W columns; missing values are stored as 0."""

    values: np.ndarray  # int8 or float32 (W, n)
    missing_offsets: np.ndarray  # int64 (W+1,), start of each column's missing values
    missing_rows: np.ndarray  # uint32 (M,)
    means: np.ndarray  # float64 (W,), values that replace missing values


Columns = SparseColumns | DenseColumns | ColumnsWithMissingValues


@reordered_kernel
def sum_of_squares(values):
    """Return the sum of squares."""
    total = 0.0
    for k in range(values.size):
        total += np.float64(values[k]) * np.float64(values[k])
    return total


def dot_sparse(columns, j, vector):
    rows = columns.rows[columns.offsets[j] : columns.offsets[j + 1]]
    half, even, odd = rows.size // 2, 0.0, 0.0  # two sums, since each addition waits for the previous one
    if columns.values.size == 0:
        for k in range(half):
            even += vector[rows[2 * k]]
            odd += vector[rows[2 * k + 1]]
        return even + odd + (vector[rows[rows.size - 1]] if rows.size & 1 else 0.0)
    values = columns.values[columns.offsets[j] : columns.offsets[j + 1]]
    for k in range(half):
        even += values[2 * k] * vector[rows[2 * k]]
        odd += values[2 * k + 1] * vector[rows[2 * k + 1]]
    if rows.size & 1:
        even += values[rows.size - 1] * vector[rows[rows.size - 1]]
    return even + odd


@reordered_inlined_kernel
def add_rows(length, columns, j, vectors, found):
    """Add the inner products of column j with the rows of `vectors`, `length` numbers each."""
    for k in range(columns.offsets[j], columns.offsets[j + 1]):
        value = np.float64(1.0) if columns.values.size == 0 else np.float64(columns.values[k])
        row = vectors[columns.rows[k]]
        for m in range(length):
            found[m] += value * row[m]


def dots_sparse(columns, j, vectors, found):
    found[:] = 0.0
    if found.size == TOGETHER:  # the compiler has a loop for these lengths
        add_rows(TOGETHER, columns, j, vectors, found)
    else:
        add_rows(found.size, columns, j, vectors, found)


def dots_all(columns, j, vectors, found):
    for m in range(len(vectors)):
        found[m] = dot(columns, j, vectors[m])


def square_sparse(columns, j, weights):
    rows = columns.rows[columns.offsets[j] : columns.offsets[j + 1]]
    total = 0.0
    if columns.values.size == 0:
        if weights.size == 0:
            return float(rows.size)
        for k in range(rows.size):
            total += weights[rows[k]]
        return total
    values = columns.values[columns.offsets[j] : columns.offsets[j + 1]]
    if weights.size == 0:
        return sum_of_squares(values)
    for k in range(rows.size):
        total += np.float64(values[k]) * values[k] * weights[rows[k]]
    return total


def add_sparse(columns, j, weight, vector):
    rows = columns.rows[columns.offsets[j] : columns.offsets[j + 1]]
    values = columns.values[columns.offsets[j] : columns.offsets[j + 1]]
    for k in range(rows.size):
        vector[rows[k]] += weight * values[k]


def ask_sparse(columns, chosen, i):
    if i + 2 * _AHEAD < chosen.size:
        prefetch(columns.offsets, chosen[i + 2 * _AHEAD])
        begin, end = columns.offsets[chosen[i + _AHEAD]], columns.offsets[chosen[i + _AHEAD] + 1]
        if begin < end:
            prefetch(columns.rows, begin)
            prefetch(columns.rows, end - 1)
            if columns.values.size:
                prefetch(columns.values, begin)
                prefetch(columns.values, end - 1)


def ask_nothing(columns, chosen, i):
    pass


def dot_dense(columns, j, vector):
    values, total = columns.values[j], 0.0
    for k in range(values.size):
        total += values[k] * vector[k]
    return total


def square_dense(columns, j, weights):
    values, total = columns.values[j], 0.0
    if weights.size == 0:
        return sum_of_squares(values)
    for k in range(values.size):
        total += np.float64(values[k]) * values[k] * weights[k]
    return total


def add_dense(columns, j, weight, vector):
    values = columns.values[j]
    for k in range(values.size):
        vector[k] += weight * values[k]


def dot_incomplete(columns, j, vector):
    values, total, missing = columns.values[j], 0.0, 0.0
    for k in range(values.size):
        total += values[k] * vector[k]
    rows = columns.missing_rows[columns.missing_offsets[j] : columns.missing_offsets[j + 1]]
    for k in range(rows.size):
        missing += vector[rows[k]]
    return total + columns.means[j] * missing


def square_incomplete(columns, j, weights):
    values, total, missing = columns.values[j], 0.0, 0.0
    rows = columns.missing_rows[columns.missing_offsets[j] : columns.missing_offsets[j + 1]]
    if weights.size == 0:
        return sum_of_squares(values) + columns.means[j] * columns.means[j] * rows.size
    for k in range(values.size):
        total += np.float64(values[k]) * values[k] * weights[k]
    for k in range(rows.size):
        missing += weights[rows[k]]
    return total + columns.means[j] * columns.means[j] * missing


# By default, the compiler would not inline them; a call takes as long as a short column.
_OPTIONS: Any = {"fastmath": True, "error_model": "numpy", "_nrt": False, "forceinline": True}
# Sums over the entries of a sparse column are not vectorized: for few entries, that takes half as long again.
_IN_ORDER: Any = _OPTIONS | {"fastmath": {"contract"}}

_OF_DENSE: Implementations = {DenseColumns: dot_dense, ColumnsWithMissingValues: dot_incomplete}
dot = by_kind("columns", ({SparseColumns: dot_sparse}, _IN_ORDER), (_OF_DENSE, _OPTIONS))
dots = by_kind(
    "columns", ({SparseColumns: dots_sparse, DenseColumns: dots_all, ColumnsWithMissingValues: dots_all}, _OPTIONS)
)
square = by_kind(
    "columns",
    ({SparseColumns: square_sparse, DenseColumns: square_dense, ColumnsWithMissingValues: square_incomplete}, _OPTIONS),
)
add = by_kind("columns", ({SparseColumns: add_sparse, DenseColumns: add_dense}, _IN_ORDER))
ask = by_kind(
    "columns", ({SparseColumns: ask_sparse, DenseColumns: ask_nothing, ColumnsWithMissingValues: ask_nothing}, _OPTIONS)
)


@reordered_kernel
def correlate(columns, chosen, vector, found):
    """Set found[i] to the inner product of column chosen[i] and a vector.

    chosen: int64 (m,).
    found: float64 (m,).
    """
    for i in range(chosen.size):
        ask(columns, chosen, i)
        found[i] = dot(columns, chosen[i], vector)


@reordered_kernel
def correlate_all(columns, chosen, vectors, sums, found, first):
    """Set found[:, first + i] to the inner products of column chosen[i] with the first k vectors.

    found: float64 (k, M).
    sums: float64 (c, K), working memory for c columns at a time and all vectors.
    """
    for begin in range(0, chosen.size, len(sums)):
        end = min(begin + len(sums), chosen.size)
        for i in range(begin, end):
            ask(columns, chosen, i)
            dots(columns, chosen[i], vectors, sums[i - begin])
        for m in range(len(found)):
            products = found[m, first + begin : first + end]
            for i in range(products.size):
                products[i] = sums[i, m]


@reordered_kernel
def squares(columns, chosen, weights, found):
    """Set found[i] to the squared norm of column chosen[i], weighted by row unless weights are (0,)."""
    for i in range(chosen.size):
        found[i] = square(columns, chosen[i], weights)


@reordered_kernel
def combine(columns, chosen, weights, vector):
    """Set vector to the sum of weights[j] * column j over the chosen j.

    weights: float64 (W,).
    """
    vector[:] = 0.0
    for i in range(chosen.size):
        add(columns, chosen[i], weights[chosen[i]], vector)


@reordered_kernel
def copy(source, target):
    for k in range(source.size):
        target[k] = source[k]


@reordered_kernel
def count_up(first, found):
    """Set found[i] to first + i.

    found: int64 (m,).
    """
    for i in range(found.size):
        found[i] = first + i


@reordered_kernel
def count_entries(offsets, chosen, found):
    """Set found[i] to the number of entries of column chosen[i].

    offsets: int64 (W+1,).
    found: int64 (m,).
    """
    for i in range(chosen.size):
        found[i] = offsets[chosen[i] + 1] - offsets[chosen[i]]


@reordered_kernel
def gather_sparse(columns, chosen, places, offsets, rows, values):
    """Copy the chosen columns to the positions `places`, int64 (m,), in the arrays of a SparseColumns with given
    offsets.
    """
    for i in range(chosen.size):
        ask(columns, chosen, i)
        begin, end = columns.offsets[chosen[i]], columns.offsets[chosen[i] + 1]
        first, last = offsets[places[i]], offsets[places[i] + 1]
        copy(columns.rows[begin:end], rows[first:last])
        if columns.values.size:
            copy(columns.values[begin:end], values[first:last])
        else:
            values[first:last] = 1.0


def empty_columns(sizes: np.ndarray, kind: Any) -> SparseColumns:
    """Return uninitialized columns with the given numbers of entries, int64 (W,)."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return SparseColumns(offsets, np.empty(offsets[-1], np.uint32), np.empty(offsets[-1], kind))


def read_only(columns: SparseColumns) -> SparseColumns:
    """Return views with the type of mapped (read-only) arrays, for which kernels are already compiled."""
    views = [array.view() for array in columns]
    for view in views:
        view.flags.writeable = False
    return SparseColumns(*views)


def gather_columns(columns: Columns, chosen: np.ndarray) -> SparseColumns | DenseColumns:
    """Return a copy of the chosen columns with missing values filled in.

    chosen: int64 (m,).
    """
    if isinstance(columns, SparseColumns):
        copied = empty_columns(columns.offsets[chosen + 1] - columns.offsets[chosen], columns.values.dtype)
        gather_sparse(columns, chosen, np.arange(chosen.size), *copied)
        return copied
    dense = np.empty((chosen.size, columns.values.shape[1]), kind_of_copy(columns, chosen))
    gather_dense(columns, chosen, dense)
    return DenseColumns(dense)


def kind_of_copy(columns: Columns, chosen: np.ndarray) -> np.dtype[Any]:
    """Return the dtype of a copy of the chosen columns."""
    if not isinstance(columns, ColumnsWithMissingValues):
        return columns.values.dtype
    missing = columns.missing_offsets[chosen] < columns.missing_offsets[chosen + 1]
    return np.dtype(np.float64 if missing.any() else np.float32)  # float64 keeps the means exact


def gather_dense(columns: Columns, chosen: np.ndarray, found: np.ndarray) -> None:
    """Copy the chosen dense or incomplete columns, with missing values filled in, to `found`, (m, n)."""
    found[:] = columns.values[chosen]
    if isinstance(columns, ColumnsWithMissingValues):
        for i, j in enumerate(chosen.tolist()):
            missing = columns.missing_rows[slice(*columns.missing_offsets[j : j + 2])]
            found[i, missing] = columns.means[j]


def entry_count(columns: Columns) -> int:
    """Return the number of entries, or cells."""
    return columns.rows.size if isinstance(columns, SparseColumns) else columns.values.size


def scale_rows(columns: SparseColumns | DenseColumns, factors: np.ndarray) -> SparseColumns | DenseColumns:
    """Return the columns with each row multiplied by its factor, float64 (n,)."""
    if isinstance(columns, DenseColumns):
        return DenseColumns(columns.values * factors)
    return columns._replace(values=columns.values * factors[columns.rows])


def dense_columns(columns: SparseColumns | DenseColumns, rows: int) -> np.ndarray:
    """Return all values as a dense array, float64 (W, n)."""
    if isinstance(columns, DenseColumns):
        return columns.values.astype(np.float64)
    values = np.zeros((columns.offsets.size - 1, rows))
    values[np.repeat(np.arange(len(values)), np.diff(columns.offsets)), columns.rows] = columns.values
    return values
