"""Check tables of numbers passed to estimators: arrays, sparse matrices and data frames."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.arrow_frames import from_arrow
from blocks.errors import RequestError

Names = Sequence[str] | None  # column names, if any
_TABLES = "an array, a sparse matrix or a data frame"


class CsrRows(NamedTuple):
    """The N entries of n rows in CSR form: ascending columns, no duplicates."""

    offsets: np.ndarray  # int64 (n+1,)
    columns: np.ndarray  # integers (N,)
    values: np.ndarray  # (N,)


class FeatureTable(NamedTuple):
    """n rows of p columns.

    values: an array (n, p), or sparse rows.
    """

    rows: int
    columns: int
    values: np.ndarray | CsrRows
    names: Names


def read_table(X: Any, *, missing: bool = False) -> FeatureTable:
    """Return the table in an object; all numbers are finite, or NaN if `missing` is allowed.

    X: a scipy sparse matrix or array, a data frame, a pyarrow table, or anything that `numpy.asarray` accepts.
    Raises RequestError, or TypeError for elements that are not numbers.
    """
    X = from_arrow(X)
    if hasattr(X, "tocsr"):
        table = _of_sparse(X)
    else:
        _require_table(X)
        names = _names_of(X)
        table = _of_array(X.to_numpy() if hasattr(X, "to_numpy") else X, names)
    values = table.values.values if isinstance(table.values, CsrRows) else table.values
    unusable = np.isinf(values) if missing else ~np.isfinite(values)
    if unusable.any():
        raise RequestError(
            f"Input X contains {_first_unusable(values[unusable])}.", "Fill in missing values, or remove their rows."
        )
    return table


def _require_table(X: Any) -> None:
    """Raise RequestError for an object that cannot be a table."""
    if X is None or isinstance(X, str | bytes | Mapping | Set | Iterator):
        shown = "None" if X is None else f"the {type(X).__name__} {reprlib.repr(X)}"
        raise RequestError(f"X must be a table of numbers, got {shown}", f"Pass {_TABLES}.")


def is_path(X: Any) -> bool:
    """Return whether X is the path of a dataset."""
    return isinstance(X, str | Path)


def dataset_path(X: str | Path, others: str = _TABLES) -> str | Path:
    """Return the path of a dataset.

    Raises RequestError for a string that is not such a path.

    others: alternatives, for the message.
    """
    if isinstance(X, str) and not (X and os.path.exists(X)):  # noqa: PTH110, which fails for a string that is too long
        raise RequestError(
            f"X is the string {reprlib.repr(X)}, but no dataset exists at this path",
            f"Pass {others}, or the path of a dataset made by `ooc ingest`.",
        )
    return X


def _of_sparse(X: Any) -> FeatureTable:
    _check_shape(X.shape)
    _check_kind(X.dtype)
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    values = rows.data if rows.data.dtype.kind in "iufb" else rows.data.astype(np.float64)
    return FeatureTable(X.shape[0], X.shape[1], CsrRows(rows.indptr.astype(np.int64), rows.indices, values), None)


def _of_array(X: Any, names: Names) -> FeatureTable:
    array = np.asarray(X)
    _check_kind(array.dtype)
    if array.dtype.kind not in "iufb":
        array = _numbers(array, names)
    _check_shape(array.shape)
    return FeatureTable(array.shape[0], array.shape[1], array, names)


def _numbers(array: np.ndarray, names: Names) -> np.ndarray:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        place, error = _first_no_number(array)
    where = " of ".join(f"{axis} {number}" for axis, number in zip(("row", "column"), place, strict=False))
    if names is not None:
        where = f"row {place[0]} of column {names[place[1]]!r}"
    if isinstance(error, TypeError):
        raise TypeError(f"X, {where} (counted from 0): {error}")
    raise RequestError(
        f"X must contain numbers, got the string {reprlib.repr(str(array[place]))} in {where} (counted from 0)",
        "Drop strings, or encode them as numbers first.",
    )


def _first_no_number(array: np.ndarray) -> tuple[tuple[int, ...], Exception]:
    """Return the position of the first element that is not a number, and Python's error."""
    for place, value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError) as error:
            return place, error
    raise AssertionError("all elements are numbers")


def _names_of(X: Any) -> Names:
    """Return the column names of a data frame, if all are strings."""
    if not hasattr(X, "columns") or not hasattr(X, "to_numpy"):
        return None
    names = list(X.columns)
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        raise TypeError("Feature names are only supported if all input features have string names")
    return names if names and all(strings) else None


def _check_kind(dtype: np.dtype) -> None:
    if dtype.kind == "c":
        raise RequestError("Complex data not supported: X has complex numbers")


def _check_shape(shape: tuple[int, ...]) -> None:
    if shape == (0,):
        raise RequestError("X is empty; expected at least one row", f"Pass {_TABLES}.")
    if len(shape) != 2:
        raise RequestError(
            f"Expected 2D array, got {f'{len(shape)}D' if shape else 'scalar'} array instead.",
            "Reshape your data: array.reshape(1, -1) is one row, array.reshape(-1, 1) one column.",
        )
    for number, what in zip(shape, ("sample", "feature"), strict=True):
        if number == 0:
            raise RequestError(f"Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required.")


def _first_unusable(values: np.ndarray) -> str:
    return "NaN" if np.isnan(values[0]) else "infinity (inf)"


def products(table: FeatureTable, coefficients: np.ndarray) -> np.ndarray:
    """Return the scores X B', float64 (n, K), of coefficients B, float64 (K, p)."""
    if not isinstance(table.values, CsrRows):
        return table.values.astype(np.float64, copy=False) @ coefficients.T
    offsets, columns, values = table.values
    rows = np.repeat(np.arange(table.rows), np.diff(offsets))
    found = [np.bincount(rows, values * weights[columns], table.rows) for weights in coefficients]
    return np.stack(found, axis=1)
