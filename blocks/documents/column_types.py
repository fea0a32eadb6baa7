"""Values of document columns as text, and the inference of column types.

Columns of CSV files and databases are untyped: a column becomes numeric if all values are numbers, and a date column if
all are ISO dates. Other inputs are typed; only ISO dates are inferred from their strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from blocks.documents.document_table import arrow_type
from blocks.errors import RequestError
from blocks.given_arrays import python_times

Kind = Literal["missing", "boolean", "integer", "number", "date", "time", "text"]
MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "null", "None"])  # in a column of numbers or dates

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")  # 007 is an identifier
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)


class DocumentColumn(NamedTuple):
    """Values of a column as text, None for missing values, and the narrowest type that fits all of them."""

    values: list[str | None]
    kind: Kind


def column_of_strings(values: Iterable[str | None]) -> DocumentColumn:
    """Return a column of an untyped format, such as CSV."""
    listed = list(values)
    return DocumentColumn(listed, joint_kind(map(_kind_of_string, listed)))


def column_of_values(values: Iterable[Any]) -> DocumentColumn:
    """Return a column of Python values."""
    cells = [_cell(value) for value in values]
    return DocumentColumn([text for text, _ in cells], joint_kind(kind for _, kind in cells))


def joint_kind(kinds: Iterable[Kind]) -> Kind:
    """Return the narrowest type that holds values of all given types."""
    found: Kind = "missing"
    for kind in kinds:
        if kind in (found, "missing"):
            continue
        if found == "missing":
            found = kind
        elif {found, kind} == {"integer", "number"}:
            found = "number"
        elif {found, kind} == {"date", "time"}:
            found = "time"
        else:
            return "text"
    return found


def arrow_array(values: Sequence[str | None], kind: Kind, arrow: Any) -> Any:
    """Convert values given as text to a pyarrow array.

    kind: type of the whole column;
    arrow: the module pyarrow.
    """
    if kind == "text":
        return arrow.array(values, arrow.string())
    convert: dict[Kind, Callable[[str], Any]] = {
        "boolean": "true".__eq__,
        "integer": int,
        "number": float,
        "date": date.fromisoformat,
        "time": _utc,
    }
    made = [None if value is None or value in MISSING else convert[kind](value) for value in values]
    return arrow.array(made, arrow_type(kind, arrow))


def unicode_text(text: str) -> str:
    """Replace each lone surrogate, which JSON and file names can contain, by "?"."""
    return text.encode("utf-8", "replace").decode()


def _utc(text: str) -> datetime:
    """Return an ISO time without its time zone, converted to UTC if it has one."""
    return _in_utc(datetime.fromisoformat(text))


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time


def _kind_of_string(text: str | None) -> Kind:
    if text is None or text in MISSING:
        return "missing"
    if _INTEGER.fullmatch(text):
        return "integer" if abs(int(text)) < 1 << 63 else "text"
    return "number" if _NUMBER.fullmatch(text) else _kind_of_text(text)


def _kind_of_text(text: str) -> Kind:
    """Return the type of a string: date, time or text."""
    if not ("0" <= text[:1] <= "9" and len(text) <= 40):
        return "missing" if text in MISSING else "text"
    kind: Kind = "date" if _DATE.fullmatch(text) else "time" if _TIME.fullmatch(text) else "text"
    if kind != "text":
        try:
            _utc(text)
        except (ValueError, OverflowError):
            return "text"
    return kind


def _cell(value: Any) -> tuple[str | None, Kind]:
    """Return a Python value as text, and its type."""
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, str):
        value = python_times(value).tolist()
    found: tuple[str | None, Kind]
    match value:
        case str():
            found = str(value), _kind_of_text(value)
        case bool():
            found = str(value).lower(), "boolean"
        case int() | float() | Decimal():
            found = _number(value)
        case _ if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' missing values
            found = None, "missing"
        case datetime():
            found = _time(value)
        case date():
            found = value.isoformat(), "date"
        case list() | dict() | tuple():
            found = _nested(value), "text"
        case bytes():
            found = value.decode("utf-8", "replace"), "text"
        case _:
            found = str(value), "text"
    return found


def _time(value: datetime) -> tuple[str, Kind]:
    try:
        return _in_utc(value).isoformat(timespec="microseconds"), "time"
    except OverflowError:  # year 1 or 9999, which UTC moves out of the calendar
        return value.isoformat(), "text"


def _nested(value: Any) -> str:
    """Return a nested value as JSON."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:  # a lone surrogate, an integer of more than 64 bits, or hundreds of levels
        pass
    try:
        return json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
    except RecursionError:
        raise RequestError(
            "a value of a document is nested too deeply to be stored as JSON", "Omit its column from --keep."
        ) from None


def _number(value: int | float | Decimal) -> tuple[str | None, Kind]:
    if isinstance(value, Decimal) and value.is_finite() and abs(value) < 1 << 64 and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, Decimal) and value.is_nan():
        return None, "missing"
    if not isinstance(value, int):
        value = float(value)
        if value != value:  # noqa: PLR0124, NaN
            return None, "missing"
        if not value.is_integer() or abs(value) >= 1 << 53:
            return repr(value), "number"
        value = int(value)  # of a data frame's column that has missing numbers
    return repr(value), "integer" if abs(value) < 1 << 63 else "text"
