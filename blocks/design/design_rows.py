"""Parsed rows of a design matrix, and facts about their values that are needed to write columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.transposition import ENTRY

LARGEST = float(np.finfo(np.float32).max)  # maximum absolute value
MOST_ROWS = 1 << 32
MOST_COLUMNS = (1 << 32) - 1
WIDE_ENTRY = np.dtype([("row", "u4"), ("column", "u4"), ("value", "f8")])


class SparseDesignRows(NamedTuple):
    """Nonzero entries of some rows, in any order.

    records: number of rows or lines of entries.
    queries: whether the lines had query ids.
    """

    entries: np.ndarray  # WIDE_ENTRY (N,)
    records: int
    y: np.ndarray  # float64 (records,), or (0,)
    queries: bool = False


class DenseDesignRows(NamedTuple):
    """All cells of some rows."""

    cells: np.ndarray  # (R, p), float64 or a dtype of at most 32 bits
    y: np.ndarray  # float64 (R,), or (0,)


class ValueProperties(NamedTuple):
    """Properties of the values that determine the form of the blocks (see `blocks.design.design.FORMS`).

    ones: all entries are 1.
    small: all entries are integers that fit in int8.
    """

    entries: int
    ones: bool
    small: bool


def value_properties(values: np.ndarray) -> ValueProperties:
    """Return the properties of the float32 values of some rows, with or without zeros."""
    values = values.astype(np.float32) if values.dtype == np.float64 else values
    entries = int(np.count_nonzero(values))
    ones = entries == int(np.count_nonzero(values == 1))
    small = ones or bool(((values >= -127) & (values <= 127) & (np.rint(values) == values)).all())
    return ValueProperties(entries, ones, small)


def fits_float32(values: np.ndarray) -> np.ndarray:
    """Return the mask of values that are finite in float32.

    values: floats of any size.
    """
    if values.dtype.itemsize <= 4:  # float16, where LARGEST is infinite, and float32
        return np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.abs(values) <= LARGEST


def checked_values(values: np.ndarray, name: str, place: object) -> np.ndarray:
    """Return values as float32 or float64; 8-bit values are returned unchanged.

    place: function from an index into the flattened values to a position for messages.
    Raises RequestError for a value beyond float32.
    """
    if values.dtype.itemsize == 1:
        return values.astype(np.int8) if values.dtype == np.bool_ else values
    if not (good := fits_float32(values)).all():
        at = int(np.argmin(good.reshape(-1)))
        raise not_finite_error(f"{name}, {place(at)}", values.reshape(-1)[at])  # type: ignore[operator]
    return values if values.dtype == np.float32 else values.astype(np.float64, copy=False)


def narrow_values(values: np.ndarray) -> np.ndarray:
    """Return float64 values as float32 if the conversion changes none of them."""
    if values.dtype != np.float64:
        return values
    narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow, values) else values


def narrow_entries(entries: np.ndarray) -> np.ndarray:
    """Return WIDE_ENTRY (N,) as ENTRY (N,) if float32 represents all values."""
    values = narrow_values(entries["value"])
    if values.dtype == np.float64:
        return entries
    narrow = np.empty(entries.size, ENTRY)
    narrow["row"], narrow["column"], narrow["value"] = entries["row"], entries["column"], values
    return narrow


def not_finite_error(where: str, value: object) -> RequestError:
    """Return the error for a value that is NaN, infinite or beyond float32."""
    return RequestError(
        f"{where}: {value} is not a finite float32 number", "Fill in missing values, or remove their rows."
    )
