"""From inputs of ratings to chunks, which workers read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocks.arrow_tables import ArrowTable, arrow_table, distinct, numbers_of, trimmed_lines
from blocks.ingestion.messages import LinesChunk
from blocks.ratings.formats import SIDES, Format, FormatOptions, columns_of, detect, last_section
from blocks.sources import Opening, Source, whole_line

BLANKS = " \t\r"  # around a name


@dataclass
class RowsChunk:
    """Some rows of a Parquet or Arrow file, the first of number `row`.

    users, items: the different names, as `trimmed_lines` gives them, and uint32 (N,), which of them each rating has.
    values: (N,), NaN where none is.
    """

    number: int
    source: str
    row: int
    users: tuple[bytes | list[str], np.ndarray] = field(repr=False)
    items: tuple[bytes | list[str], np.ndarray] = field(repr=False)
    values: np.ndarray = field(repr=False)


class Input:
    """An input of ratings. `name` is what messages call it, `entries` how many its header tells of, if it has one.

    numbers: of its chunks. Raises RequestError if it is unclear how the ratings are written.
    """

    def __init__(
        self,
        path: str,
        options: FormatOptions,
        opening: Opening,
        numbers: Iterator[int],
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.name, self.entries = path, None
        self.chunks: Iterator[LinesChunk | RowsChunk]
        if table := arrow_table(path, progress, opening.query):
            self.chunks = _rows(table, columns_of(table.columns, options, table.name), numbers)
            return
        source = Source(path, progress, **opening._asdict(), databases=True)
        form = detect(source, options)
        self.name, self.entries = source.name, form.sizes[2] if any(form.sizes) else None
        self.chunks = _lines(source, form, numbers)


def _lines(source: Source, form: Format, numbers: Iterator[int]) -> Iterator[LinesChunk]:
    section = b""
    for line, data in source.chunks(whole_line):
        yield LinesChunk(next(numbers), source.name, line - bool(section), section + data, form)
        if form.sections:
            section = last_section(data) or section


def _rows(table: ArrowTable, columns: dict[str, str], numbers: Iterator[int]) -> Iterator[RowsChunk]:
    user, item, rating = map(columns.get, SIDES)
    assert user and item
    table.require_numbers([rating] if rating else [], "Name another with --rating-column.")
    for batch in table.batches([user, item, rating] if rating else [user, item], coded=[user, item]):
        users, items = map(_names, batch.columns[:2])
        values = numbers_of(batch.columns[2]).astype(np.float64) if rating else np.ones(users[1].size)
        yield RowsChunk(next(numbers), table.name, batch.first + 1, users, items, values)


def _names(column: Any) -> tuple[bytes | list[str], np.ndarray]:
    names, places = distinct(column)
    return trimmed_lines(names, BLANKS), places
