"""Ids of users and items (rows and columns): allowed types, and matching of ids of different types.

Ids are integers, strings, times, or floats. All ids of a column have one type; an array of objects has the type of its
elements. Whole floats become integers. None and NaN are not ids.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from blocks.errors import RequestError

_NUMERAL = re.compile(r"[+-]?\d{1,20}")  # 64-bit integers have no more digits
_KINDS = {"i": "whole numbers", "u": "whole numbers", "f": "numbers", "U": "texts", "M": "times"}
_MISSING = ("NoneType", "NAType", "NaTType")  # types of None, and of pandas' NA and NaT


def read_ids(column: Any, what: str) -> np.ndarray:
    """Return the ids of a column: int64, uint64, float64, str or datetime64 (n,).

    what: noun for messages, such as "users".
    """
    ids = np.asarray(column, None if hasattr(column, "dtype") else object)  # for a list, so that 1 does not become "1"
    if ids.ndim != 1:
        raise RequestError(f"{what} must be one-dimensional, got an array with {ids.ndim} dimensions")
    if ids.dtype.kind == "O":
        ids = _of_objects(ids.tolist(), what)
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    if ids.dtype.kind in "fM":
        _refuse_missing(np.isnan(ids) if ids.dtype.kind == "f" else np.isnat(ids), ids, what)
    if ids.dtype.kind == "f":
        return _whole(ids, what) if (ids == np.floor(ids)).all() else ids.astype(np.float64)
    if ids.dtype.kind in "bi":
        return ids.astype(np.int64)
    if ids.dtype.kind not in _KINDS:
        raise RequestError(f"{what} must be whole numbers or strings, got dtype {ids.dtype}")
    return ids.astype(np.uint64) if ids.dtype.kind == "u" and ids.size and ids.max() >= 1 << 63 else _signed(ids)


def _signed(ids: np.ndarray) -> np.ndarray:
    return ids.astype(np.int64) if ids.dtype.kind == "u" else ids


def _of_objects(ids: list[Any], what: str) -> np.ndarray:
    """Return objects as an array of their common type; objects that are neither numbers nor strings become strings."""
    _refuse_missing([_is_missing(x) for x in ids], ids, what)
    kinds = [_kind_of(x) for x in ids]
    if len(set(kinds)) > 1 and set(kinds) != {"int", "float"}:
        other = next(place for place, kind in enumerate(kinds) if kind != kinds[0])
        raise RequestError(
            f"{what}: row 0 has {ids[0]!r} of type {kinds[0]}, row {other} has {ids[other]!r} of type {kinds[other]}",
            "Use ids of one type: 7 and '7' are different ids.",
        )
    if not ids or kinds[0] not in ("int", "float"):
        return np.array([x.decode() if isinstance(x, bytes) else str(x) for x in ids], str)
    if "float" in kinds:
        return np.array(ids, np.float64)
    least, most = min(ids), max(ids)
    if least < -(1 << 63) or most >= 1 << (64 if least >= 0 else 63):
        raise RequestError(
            f"{what}: ids from {least} to {most} do not fit into 64 bits", "Convert these ids to strings."
        )
    return np.array(ids, np.uint64 if most >= 1 << 63 else np.int64)


def _kind_of(value: Any) -> str:
    if isinstance(value, int | np.integer | np.bool_):
        return "int"
    return "float" if isinstance(value, float | np.floating) else type(value).__name__.removesuffix("_")


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in _MISSING or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _refuse_missing(missing: Any, ids: Any, what: str) -> None:
    places = np.flatnonzero(missing)
    if places.size:
        raise RequestError(
            f"{what}: row {places[0]} (counted from 0) has {ids[places[0]]} instead of an id, like {places.size:,} of"
            f" {len(ids):,} rows",
            "Remove these rows.",
        )


def _whole(ids: np.ndarray, what: str) -> np.ndarray:
    """Return whole floats as int64."""
    digits = np.finfo(ids.dtype).nmant + 1
    if ids.size and np.abs(ids).max() > 2.0**digits:
        place = int(np.argmax(np.abs(ids)))
        raise RequestError(
            f"{what}: row {place} has {ids[place]:.17g}, but ids above 2**{digits} are not exact in {ids.dtype}",
            "Use integers or strings as ids.",
        )
    return ids.astype(np.int64)


def places_among(names: np.ndarray, wanted: Any, what: str) -> np.ndarray:
    """Return the index of each wanted id among the ids seen in training, int64 (n,), or -1.

    Raises RequestError if the ids have another type than in training, and the meaning is not clear.
    """
    ids = _as_kind_of(names, read_ids(wanted, what), what)
    if not names.size:
        return np.full(ids.size, -1)
    ids, there = _of_type(names.dtype, ids)
    order = np.argsort(names, kind="stable")
    places = order[np.minimum(np.searchsorted(names, ids, sorter=order), names.size - 1)]
    return np.where(there & (names[places] == ids), places, -1)


def _as_kind_of(names: np.ndarray, ids: np.ndarray, what: str) -> np.ndarray:
    """Convert ids to the type of the ids seen in training."""
    of_training, given = (_KINDS[array.dtype.kind] for array in (names, ids))
    if of_training == given or not ids.size:
        return ids
    if (of_training, given) == ("whole numbers", "texts"):
        return _numbers_of(ids, what)
    if (of_training, given) == ("texts", "whole numbers"):
        _refuse_padded(names, what)
        return ids.astype(str)
    if (of_training, given) == ("numbers", "whole numbers"):
        return ids.astype(np.float64)
    row = int(np.argmax(ids != np.floor(ids))) if given == "numbers" else 0
    raise RequestError(
        f"{what}: row {row} has {ids[row].item()!r}: got {given}, but fit had {of_training}",
        f"Use {what} of the same type as in fit.",
    )


def _numbers_of(ids: np.ndarray, what: str) -> np.ndarray:
    """Return integers for strings in Python's notation: "17", but not "017" or "17.0"."""
    texts = ids.tolist()
    for row, text in enumerate(texts):
        if not (_NUMERAL.fullmatch(text) and str(int(text)) == text):
            raise RequestError(
                f"{what}: row {row} has {text!r}, but fit had whole numbers",
                f"Convert {what} to integers.",
            )
    return read_ids(np.array([int(text) for text in texts], object), what)


def _refuse_padded(names: np.ndarray, what: str) -> None:
    """Raise RequestError if strings seen in training are numerals in another notation than Python's."""
    for name in names.tolist():
        if _NUMERAL.fullmatch(name) and str(int(name)) != name:
            raise RequestError(
                f"{what} are numbers, but fit had strings such as {name!r}",
                f"Convert {what} to strings.",
            )


def _of_type(dtype: np.dtype, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ids converted to a 64-bit type, and which of them this type represents: compared as float64, different
    large integers would be equal.
    """
    if dtype.kind not in "iu" or dtype == ids.dtype:
        return ids, np.ones(ids.size, bool)
    there = ids >= 0 if dtype.kind == "u" else ids <= np.uint64(np.iinfo(np.int64).max)
    return np.where(there, ids, ids.dtype.type(0)).astype(dtype), there
