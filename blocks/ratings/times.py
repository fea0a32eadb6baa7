"""Read the times of ratings: numbers such as Unix time, or dates and times in ISO 8601."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from blocks.arrow_tables import column_numbers, column_texts, pyarrow_module
from blocks.errors import RequestError
from blocks.plain_numbers import plain_number


class ParsedTimes(NamedTuple):
    """Times as numbers, float64 (n,), NaN if missing or not a time, and whether each was written as a date, bool
    (n,).

    A number stays as it is. A date, or date and time, becomes seconds since 1970; UTC if it has no time zone.

    places: int64 (n,), the line or row of each time in the input.
    """

    values: np.ndarray
    dates: np.ndarray
    places: np.ndarray

    def only(self, kept: np.ndarray) -> ParsedTimes:
        """Return the times for which `kept`, bool (n,), is true."""
        return ParsedTimes(*(array[kept] for array in self))

    def first_of_each_kind(self, where: str) -> dict[str, str]:
        """Return the place of the first number and of the first date, those that exist.

        where: text before a place.
        """
        kinds = (("number", ~self.dates), ("date", self.dates))
        return {name: f"{where} {self.places[kind.argmax()]}" for name, kind in kinds if kind.any()}


def require_one_kind(first: Iterable[dict[str, str]]) -> None:
    """Raise RequestError if some times are numbers and others dates, as these cannot be compared.

    first: `ParsedTimes.first_of_each_kind` of each part of the input, in order.
    """
    places: dict[str, str] = {}
    for each in first:
        places = each | places
    if len(places) > 1:
        raise RequestError(
            f"{places['date']}: the time is a date, but {places['number']} has a number, such as a year or Unix time",
            "Write all times as dates, such as 2015-09-30, or all as numbers.",
        )


def parse_times(times: Sequence[str], places: np.ndarray) -> ParsedTimes:
    """Parse numbers and dates.

    places: int64 (n,), the line or row of each time.
    """
    parsed = [_parsed(time) for time in times]
    return ParsedTimes(
        np.array([value for value, _ in parsed], np.float64), np.array([date for _, date in parsed], bool), places
    )


def _parsed(text: str) -> tuple[float, bool]:
    if (number := plain_number(text)) is not None:
        return number, False
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return np.nan, False
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp(), True


def column_times(column: Any, first_row: int) -> ParsedTimes:
    """Parse a column of a Parquet or Arrow table.

    first_row: row number of its first value.
    """
    rows = first_row + np.arange(len(column))
    arrow = pyarrow_module()
    types, kind = arrow.types, column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return parse_times([text.strip() for text in column_texts(column)], rows)
    dates = np.zeros(len(column), bool)
    if types.is_temporal(kind) and not types.is_time(kind) and not types.is_duration(kind):
        column = column.cast(arrow.timestamp("us"), safe=False).cast(arrow.int64()).cast(arrow.float64())
        return ParsedTimes(column.to_numpy(zero_copy_only=False) / 1e6, ~dates, rows)
    return ParsedTimes(column_numbers(column).astype(np.float64), dates, rows)
