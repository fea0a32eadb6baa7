"""Read the times of ratings: numbers such as Unix time, or dates and times in ISO 8601."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from blocks.arrow_tables import column_numbers, column_texts, pyarrow_module
from blocks.plain_numbers import plain_number


def parse_times(times: Sequence[str]) -> np.ndarray:
    """Return times as numbers, float64 (n,); NaN for text that is not a time.

    A number stays as it is. A date, or date and time, becomes seconds since 1970; UTC if it has no time zone.
    """
    return np.array([_parsed(time) for time in times], np.float64)


def _parsed(text: str) -> float:
    if (number := plain_number(text)) is not None:
        return number
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def column_times(column: Any) -> np.ndarray:
    """Return a column of a Parquet or Arrow table as `parse_times`; NaN for missing values."""
    arrow = pyarrow_module()
    types, kind = arrow.types, column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return parse_times([text.strip() for text in column_texts(column)])
    if types.is_temporal(kind) and not types.is_time(kind) and not types.is_duration(kind):
        column = column.cast(arrow.timestamp("us"), safe=False).cast(arrow.int64()).cast(arrow.float64())
        return column.to_numpy(zero_copy_only=False) / 1e6
    return column_numbers(column).astype(np.float64)
