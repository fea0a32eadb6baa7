"""What users say of the rows of a table: the target y, and weights."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from blocks.errors import RequestError


def read_target(y: Any, rows: int) -> np.ndarray:
    """A column (n,), for so many rows; raises RequestError if it is something else."""
    if y is None:
        raise RequestError(f"y must have a value for each of the {rows} rows of X, got None")
    column = np.asarray(y)
    if column.ndim == 2 and column.shape[1] == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected", _conversion(), stacklevel=4)
        column = column[:, 0]
    if column.ndim != 1:
        raise RequestError(f"y should be a 1d array, got an array of shape {column.shape} instead.")
    if column.size != rows:
        raise RequestError(f"X has {rows} rows and y {column.size} values: inconsistent numbers of samples")
    if column.dtype.kind == "c":
        raise RequestError("Complex data not supported: y has complex numbers")
    if column.dtype.kind == "f":
        _require_finite(column)
    return column


def read_numbers(y: Any, rows: int) -> np.ndarray:
    """The target of a regression, float64 (n,); raises RequestError."""
    column = read_target(y, rows)
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError):
        raise RequestError("y of a regression must be numbers, got names of classes") from None
    _require_finite(numbers)
    return numbers


def read_weights(weights: Any, rows: int) -> np.ndarray | None:
    """sample_weight, float64 (n,), for so many rows, or None; raises RequestError."""
    if weights is None:
        return None
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"sample_weight must be numbers: {error}", "Give one number for each row.") from None
    if found.ndim == 0:
        found = np.full(rows, float(found))
    if found.shape != (rows,):
        raise RequestError(f"sample_weight must have shape ({rows},) for the {rows} rows of X, got {found.shape}")
    if (wrong := ~(np.isfinite(found) & (found >= 0))).any():
        row = int(wrong.argmax())
        raise RequestError(
            f"sample_weight must be finite and at least 0, got {found[row]:g} in row {row} (counted from 0)"
        )
    if not found.any():
        raise RequestError("Sample weights must contain at least one non-zero number.")
    return found


def _require_finite(y: np.ndarray) -> None:
    if not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity or a value too large for dtype('float64')"
        raise RequestError(f"Input y contains {what}.")


def _conversion() -> type[Warning]:
    exceptions = sys.modules.get("sklearn.exceptions")
    return exceptions.DataConversionWarning if exceptions else UserWarning
