"""Values of document columns: how they are spelled until all are known, and the type of a column.

Columns of CSV files and databases have no types: a column whose values are all numbers, or all ISO dates, is one of
numbers or dates. Other inputs say what is a number; of their texts only ISO dates are recognised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import orjson

Kind = Literal["missing", "boolean", "integer", "number", "date", "time", "text"]
MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "null", "None"])  # in a column of numbers or dates

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")  # 007 is an identifier
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)


class Column(NamedTuple):
    """Values of a column as text, None for missing ones, and the narrowest type that all of them have."""

    values: list[str | None]
    kind: Kind


def column_of_strings(values: Iterable[str | None]) -> Column:
    """Return a column of a format without types, such as CSV."""
    listed = list(values)
    return Column(listed, joint_kind(map(_kind_of_string, listed)))


def column_of_values(values: Iterable[Any]) -> Column:
    """Return a column of Python values."""
    cells = [_cell(value) for value in values]
    return Column([text for text, _ in cells], joint_kind(kind for _, kind in cells))


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
    """Return spelled values as an array of pyarrow. kind: of the whole column; arrow: the module pyarrow."""
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


def arrow_type(kind: Kind, arrow: Any) -> Any:
    """Return the type of pyarrow for a type of columns."""
    return {
        "boolean": arrow.bool_(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "date": arrow.date32(),
        "time": arrow.timestamp("us"),
        "text": arrow.string(),
    }[kind]


def _utc(text: str) -> datetime:
    """Return an ISO time without a zone: that of UTC, if a zone is given."""
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _kind_of_string(text: str | None) -> Kind:
    if text is None or text in MISSING:
        return "missing"
    if _INTEGER.fullmatch(text):
        return "integer"
    return "number" if _NUMBER.fullmatch(text) else _kind_of_text(text)


def _kind_of_text(text: str) -> Kind:
    """Return whether a text is an ISO date or time, or just a text."""
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
    """Return the text and the type of a Python value."""
    if hasattr(value, "item") and not isinstance(value, str):  # numpy's
        value = value.item()
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
            found = value.isoformat(timespec="microseconds"), "time"
        case date():
            found = value.isoformat(), "date"
        case list() | dict() | tuple():
            found = orjson.dumps(value, default=str).decode(), "text"
        case _:
            found = str(value), "text"
    return found


def _number(value: int | float | Decimal) -> tuple[str | None, Kind]:
    if not isinstance(value, int):
        value = float(value)
        if value != value:  # noqa: PLR0124, NaN
            return None, "missing"
        if not value.is_integer() or abs(value) >= 1 << 53:
            return repr(value), "number"
        value = int(value)  # of a data frame's column that has missing numbers
    return repr(value), "integer" if abs(value) < 1 << 63 else "text"
