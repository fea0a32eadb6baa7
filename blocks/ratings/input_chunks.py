"""Cut inputs of ratings into chunks for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocks.arrow_tables import ArrowTable, arrow_table, column_numbers, distinct_texts, trimmed_lines
from blocks.ingestion.messages import LineChunk
from blocks.ratings.formats import (
    SIDES,
    RatingsFormat,
    RatingsFormatOptions,
    detect_format,
    last_section,
    rating_columns,
)
from blocks.ratings.times import ParsedTimes, column_times
from blocks.text_inputs import InputOpenOptions, TextInput, last_line_end

BLANKS = " \t\r"  # stripped from names


@dataclass
class TableRatingsChunk:
    """Rows of a Parquet or Arrow file.

    row: index of the first row.

    users, items: distinct names from `trimmed_lines`, and uint32 (N,), the index of each rating's name.
    values: (N,), NaN if missing.
    times: N times; None if they are not read.
    """

    number: int
    source: str
    row: int
    users: tuple[bytes | list[str], np.ndarray] = field(repr=False)
    items: tuple[bytes | list[str], np.ndarray] = field(repr=False)
    values: np.ndarray = field(repr=False)
    times: ParsedTimes | None = field(default=None, repr=False)


class RatingsInput:
    """An input of ratings.

    Attributes: `name` for messages; `entries`, number of entries in its header, if any; range of its chunks.
    Raises RequestError if the format cannot be determined.
    """

    def __init__(
        self,
        path: str,
        options: RatingsFormatOptions,
        opening: InputOpenOptions,
        numbers: Iterator[int],
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.name, self.entries = path, None
        self.chunks: Iterator[LineChunk | TableRatingsChunk]
        if table := arrow_table(path, progress, opening.query):
            self.chunks = _rows(table, rating_columns(table.columns, options, table.name), numbers)
            return
        source = TextInput(path, progress, **opening._asdict(), databases=True)
        form = detect_format(source, options)
        self.name, self.entries = source.name, form.sizes[2] if any(form.sizes) else None
        self.chunks = _lines(source, form, numbers)


def _lines(source: TextInput, form: RatingsFormat, numbers: Iterator[int]) -> Iterator[LineChunk]:
    section = b""
    for line, data in source.chunks(last_line_end):
        yield LineChunk(next(numbers), source.name, line - bool(section), section + data, form)
        if form.sections:
            section = last_section(data) or section


def _rows(table: ArrowTable, columns: dict[str, str], numbers: Iterator[int]) -> Iterator[TableRatingsChunk]:
    user, item, rating, time = map(columns.get, (*SIDES, "time"))
    assert user and item
    table.require_numbers([rating] if rating else [], "Name another with --rating-column.")
    wanted = [name for name in (user, item, rating, time) if name]
    for batch in table.batches(list(dict.fromkeys(wanted)), coded=[user, item]):
        of = dict(zip(dict.fromkeys(wanted), batch.columns, strict=True))
        users, items = _names(of[user]), _names(of[item])
        values = column_numbers(of[rating]).astype(np.float64) if rating else np.ones(users[1].size)
        times = column_times(of[time], batch.first + 1) if time else None
        yield TableRatingsChunk(next(numbers), table.name, batch.first + 1, users, items, values, times)


def _names(column: Any) -> tuple[bytes | list[str], np.ndarray]:
    names, places = distinct_texts(column)
    return trimmed_lines(names, BLANKS), places
