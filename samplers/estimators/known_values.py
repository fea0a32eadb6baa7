"""Known values of a matrix passed to a factorization: tables with missing values, or columns of ratings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import LARGEST
from blocks.ratings.matrix_writer import Entries
from samplers.estimators.feature_tables import CsrRows, FeatureTable, Names, read_table
from samplers.estimators.rating_ids import read_ids


class KnownMatrixValues(NamedTuple):
    """N known values of a matrix.

    rows, columns: names in ascending order, or 0, 1, ... if there are no names.
    """

    entries: Entries  # in any order
    rows: np.ndarray
    columns: np.ndarray
    names: Names  # column names of a data frame


def is_columns(X: Any) -> bool:
    """Return whether X is a tuple of rows, columns and (unless all are 1) values."""
    return isinstance(X, tuple) and len(X) in (2, 3)


def read_known(X: Any, *, counts: bool) -> KnownMatrixValues:
    """Return the known values of X: the entries of a sparse matrix, the values of an array or data frame that are not
    NaN, or columns of ratings.

    counts: values are counts of events, at least 0, where 0 means unknown.
    Raises RequestError if X is invalid.
    """
    if is_columns(X):
        rows, columns, values = rating_triples(X)
        if counts:
            _check_counts(values)
        (row_names, rows), (column_names, columns) = (
            np.unique(names, return_inverse=True) for names in (rows, columns)
        )
        return KnownMatrixValues(_entries(rows, columns, values), row_names, column_names, None)
    table = read_table(X, missing=True)
    offsets, columns, values = known_rows(table, counts=counts)
    rows = np.repeat(np.arange(table.rows), np.diff(offsets))
    numbers = np.arange(table.rows), np.arange(table.columns)
    return KnownMatrixValues(_entries(rows, columns, values), *numbers, table.names)


def rating_triples(X: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row names, column names and values, all (N,)."""
    rows, columns = read_ids(X[0], "users"), read_ids(X[1], "items")
    values = _numbers(X[2]) if len(X) == 3 else np.ones(rows.size)
    if not rows.shape == columns.shape == values.shape:
        raise RequestError(
            f"X: its three columns must have the same length, got {rows.size}, {columns.size} and {values.size}"
        )
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise RequestError(
            f"X contains NaN or infinity (inf): the value in row {row} (counted from 0) is {values[row]}"
        )
    if (place := _too_large(values)) >= 0:
        raise _not_held(f"X[2]: row {place}", values[place])
    return rows, columns, values


def known_rows(table: FeatureTable, *, counts: bool) -> CsrRows:
    """Return the known values of a table by row."""
    if isinstance(table.values, CsrRows):
        rows, (_, columns, values) = np.repeat(np.arange(table.rows), np.diff(table.values.offsets)), table.values
    else:
        rows, columns = np.indices(table.values.shape).reshape(2, -1)
        values = table.values.reshape(-1)
    known = ~np.isnan(values)
    if (place := _too_large(values)) >= 0:
        raise _not_held(f"X: row {rows[place]}, column {columns[place]}", values[place])
    if counts:
        _check_counts(values[known])
        known &= values != 0
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows[known], minlength=table.rows))))
    return CsrRows(offsets, columns[known], values[known])


def _too_large(values: np.ndarray) -> int:
    """Return the index of the first value that float32 cannot represent, or -1."""
    large = np.abs(values) > LARGEST
    return int(np.argmax(large)) if large.any() else -1


def _not_held(where: str, value: float) -> RequestError:
    return RequestError(
        f"{where} has the value {value:g}; the maximum is {LARGEST:.3g}", "Divide all values by a constant."
    )


def _check_counts(values: np.ndarray) -> None:
    if values.size and values.min() < 0:
        raise RequestError(f"Negative values in data passed to an implicit factorization: {values.min():g}")


def _numbers(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"X[2], the values, must be numbers: {error}") from None


def _entries(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> Entries:
    return Entries(rows.astype(np.uint32), columns.astype(np.uint32), values.astype(np.float32))
