"""Detect tables with one row per rating (user, item, rating), passed where columns should be items."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from blocks.arrow_frames import from_arrow
from blocks.errors import RequestError

_USER = re.compile(r"user|customer|client|visitor|member|viewer|reader|listener|uid", re.IGNORECASE)
_ITEM = re.compile(r"item|movie|film|product|song|track|artist|book|article|video|iid", re.IGNORECASE)
_SCALE = 10  # maximum number of distinct values in a column of ratings, if they are integers


class _RatingColumns(NamedTuple):
    """The columns of a table, and the Python expressions for them."""

    arrays: list[np.ndarray]
    names: list[Any]
    spelled: list[str]


def refuse_triples(X: Any, y: Any, call: str, *, pairs: bool = False) -> None:
    """Raise RequestError if the rows of a table are ratings.

    They are taken for ratings if the first two columns are named like users and items, or contain strings, or more
    distinct integers than a rating scale has.

    y: the ratings, if the table only has users and items.
    call: name of the called method.
    pairs: whether tables without ratings count, too.
    """
    columns = _columns(X)
    if columns is None or not (_are_named(columns) or _are_ids(columns, pairs=pairs or y is not None)):
        return
    spelled = columns.spelled[: 2 if call == "predict" else 3]
    if len(spelled) == 2 and y is not None:
        spelled.append("y")
    raise RequestError(
        f"X looks like rows of user and item, but {call} expects a row for each user and a column for each item",
        f"Pass the columns as a tuple: {call}(({', '.join(spelled)})). If the columns of X are items, pass "
        "scipy.sparse.csr_array(X).",
    )


def _columns(X: Any) -> _RatingColumns | None:
    """Return the columns of an array or data frame that has two to five columns; None for others."""
    if hasattr(X, "tocsr") or isinstance(X, tuple):
        return None
    X = from_arrow(X)
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        names = list(X.columns)
        if 2 <= len(names) <= 5 and len(set(names)) == len(names):
            return _RatingColumns([np.asarray(X[name]) for name in names], names, [f"X[{name!r}]" for name in names])
        return None
    array = np.asarray(X)
    if array.ndim != 2 or not 2 <= array.shape[1] <= 5:
        return None
    numbers = range(array.shape[1])
    return _RatingColumns([array[:, k] for k in numbers], [""] * len(numbers), [f"X[:, {k}]" for k in numbers])


def _are_named(columns: _RatingColumns) -> bool:
    user, item = map(str, columns.names[:2])
    return bool(_USER.search(user) and _ITEM.search(item))


def _are_ids(columns: _RatingColumns, *, pairs: bool) -> bool:
    """Return whether the first two columns are ids, for a table of three columns, or of two if pairs are allowed."""
    if len(columns.arrays) != 3 and not (len(columns.arrays) == 2 and pairs):
        return False
    first, second, *ratings = columns.arrays
    if any(_is_number(each) is None for each in ratings):
        return False
    if any(_is_text(each) for each in (first, second)):
        return True
    return _are_whole(first) and _are_whole(second) and max(map(_distinct, (first, second))) > _SCALE


def _is_text(column: np.ndarray) -> bool:
    return column.dtype.kind in "US" or (column.dtype.kind == "O" and _is_number(column) is None)


def _is_number(column: np.ndarray) -> np.ndarray | None:
    """Return the column as float64, or None."""
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _are_whole(column: np.ndarray) -> bool:
    numbers = _is_number(column)
    return numbers is not None and bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())


def _distinct(column: np.ndarray) -> int:
    return np.unique(column.astype(np.float64)).size
