"""Check the target y, sample weights, penalty factors and class weights."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from blocks.errors import RequestError


def read_target(y: Any, rows: int) -> np.ndarray:
    """Return a column of `rows` values.

    Raises RequestError for anything else.
    """
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
    """Return the target of a regression, float64 (n,); raises RequestError."""
    column = read_target(y, rows)
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError):
        raise RequestError("y of a regression must be numbers, got class names") from None
    _require_finite(numbers)
    return numbers


def read_weights(weights: Any, rows: int) -> np.ndarray | None:
    """Return the sample weights, float64 (n,), or None; raises RequestError."""
    if isinstance(weights, Real):
        weights = [weights] * rows
    found = _read_each("sample_weight", "row", weights, rows)
    if found is not None and not found.any():
        raise RequestError("Sample weights must contain at least one non-zero number.")
    return found


def read_factors(factors: Any, columns: int) -> np.ndarray | None:
    """Return penalty_factor, float64 (p,), or None; raises RequestError."""
    found = _read_each("penalty_factor", "column", factors, columns)
    if found is not None and not found.any():
        raise RequestError(
            "penalty_factor is 0 for all columns; at least one must be positive",
            "For a fit without a penalty, use another estimator, such as scikit-learn's LinearRegression.",
        )
    return found


def class_weights(chosen: Any, classes: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Return the weight of each row given by class_weight, float64 (n,), or None; raises RequestError.

    chosen: None; "balanced", for n / (number of classes * number of rows of the class); or weights by class, where
        missing classes have weight 1.
    labels: class index of each row, int64 (n,).
    """
    if chosen is None:
        return None
    if isinstance(chosen, str) and chosen == "balanced":
        return (labels.size / (classes.size * np.bincount(labels, minlength=classes.size)))[labels]
    if not isinstance(chosen, Mapping):
        raise RequestError(f"class_weight must be None, 'balanced' or a dict of weights by class, got {chosen!r}")
    if unknown := set(chosen) - set(classes.tolist()):
        raise RequestError(f"class_weight has {unknown.pop()!r}, which is not a class of y: {classes.tolist()}")
    weights = [chosen.get(each, 1.0) for each in classes.tolist()]
    found = _read_each("class_weight", "class", weights, classes.size)
    assert found is not None
    return found[labels]


def _read_each(name: str, of: str, given: Any, count: int) -> np.ndarray | None:
    """Return nonnegative numbers for each row, column or class, float64 (count,), or None."""
    if given is None:
        return None
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{name} must be numbers: {error}", f"Pass one number for each {of}.") from None
    if found.shape != (count,):
        raise RequestError(f"{name} must have shape ({count},), a number for each {of}, got {found.shape}")
    if (wrong := ~(np.isfinite(found) & (found >= 0))).any():
        place = int(wrong.argmax())
        raise RequestError(
            f"{name} must be finite and at least 0, got {found[place]:g} in {of} {place} (counted from 0)"
        )
    return found


def _require_finite(y: np.ndarray) -> None:
    if not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity or a value too large for dtype('float64')"
        raise RequestError(f"Input y contains {what}.")


def _conversion() -> type[Warning]:
    exceptions = sys.modules.get("sklearn.exceptions")
    return exceptions.DataConversionWarning if exceptions else UserWarning
