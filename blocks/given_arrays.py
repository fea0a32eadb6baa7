"""Check arrays passed by a caller: convert lists, and name the invalid argument in errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.errors import RequestError

_CSR = "From a scipy.sparse array m: m = m.tocsr(); m.sum_duplicates(); then give m.indptr, m.indices and m.data."


def integers(name: str, given: Any) -> np.ndarray:
    """Return nonnegative integers (n,).

    Raises RequestError for anything else.
    """
    array = _one_dimensional(name, given)
    if array.dtype.kind not in "iu":
        if array.size:
            raise RequestError(f"{name} must be integers, got dtype {array.dtype}", f"Pass {name}.astype(int).")
        return array.astype(np.int64)
    if array.dtype.kind == "i" and array.size and (least := int(array.min())) < 0:
        raise RequestError(f"{name} must be at least 0, got {least} at index {int(array.argmin())}")
    return array


def finite_floats(name: str, given: Any) -> np.ndarray:
    """Return finite numbers (n,).

    Raises RequestError for anything else.
    """
    array = _one_dimensional(name, given)
    if array.dtype.kind not in "fiub":
        raise RequestError(f"{name} must be numbers, got dtype {array.dtype}")
    if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
        place = int(finite.argmin())
        raise RequestError(f"{name} must be finite, got {array[place]} at index {place}")
    return array


def python_times(array: Any) -> Any:
    """Truncate the times of a NumPy array or scalar to microseconds, as in Python; other values are unchanged."""
    if array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as"):
        return array.astype("datetime64[us]")
    return array


def require_unmasked(name: str, given: Any) -> None:
    """Raise RequestError if a NumPy masked array has masked values, which would become ordinary numbers."""
    if np.ma.is_masked(given):
        raise RequestError(
            f"{name} has masked values",
            f"Fill in missing values, for example with {name}.filled(value), or remove them.",
        )


def _one_dimensional(name: str, given: Any) -> np.ndarray:
    if hasattr(given, "tocsr"):
        raise RequestError(f"{name} must be an array of numbers, got a {type(given).__name__}", _CSR)
    require_unmasked(name, given)
    try:
        array = np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise RequestError(f"{name} must be one-dimensional: {error}") from error
    if array.ndim != 1:
        raise RequestError(f"{name} must be one-dimensional, got shape {array.shape}")
    return array


def require_ascending(name: str, offsets: np.ndarray, columns: np.ndarray) -> None:
    """Raise RequestError unless columns ascend within each row.

    offsets: (n+1,), start of each row.
    """
    wrong = columns[1:] <= columns[:-1]
    begins = offsets[(offsets > 0) & (offsets < columns.size)]
    wrong[begins - 1] = False
    if wrong.any():
        place = int(wrong.argmax())
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        what = f"{name} must ascend within each row; in row {row}, {columns[place + 1]} follows {columns[place]}"
        raise RequestError(what, _CSR)
