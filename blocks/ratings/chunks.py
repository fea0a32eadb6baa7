"""Cut inputs of ratings into chunks for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocks.arrow_tables import ArrowTable, arrow_table, distinct, numbers_of, trimmed_lines
from blocks.ingestion.messages import LinesChunk
from blocks.ratings.formats import SIDES, FormatOptions, RatingsFormat, columns_of, detect, last_section
from blocks.ratings.times import column_times
from blocks.sources import Opening, Source, whole_line

BLANKS = " \t\r"  # stripped from names


@dataclass
class RowsChunk:
    """Rows of a Parquet or Arrow file. row: index of the first row.

    users, items: distinct names from `trimmed_lines`, and uint32 (N,), the index of each rating's name. values: (N,),
    NaN if missing. times: float64 (N,), NaN if missing; None if times are not read.
    """

    number: int
    source: str
    row: int
    users: tuple[bytes | list[str], np.ndarray] = field(repr=False)
    items: tuple[bytes | list[str], np.ndarray] = field(repr=False)
    values: np.ndarray = field(repr=False)
    times: np.ndarray | None = field(default=None, repr=False)


class RatingsInput:
    """An input of ratings.

    Attributes: `name` for messages; `entries`, number of entries in its header, if any; range of its chunks. Raises
    RequestError if the format cannot be determined.
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


def _lines(source: Source, form: RatingsFormat, numbers: Iterator[int]) -> Iterator[LinesChunk]:
    section = b""
    for line, data in source.chunks(whole_line):
        yield LinesChunk(next(numbers), source.name, line - bool(section), section + data, form)
        if form.sections:
            section = last_section(data) or section


def _rows(table: ArrowTable, columns: dict[str, str], numbers: Iterator[int]) -> Iterator[RowsChunk]:
    user, item, rating, time = map(columns.get, (*SIDES, "time"))
    assert user and item
    table.require_numbers([rating] if rating else [], "Name another with --rating-column.")
    wanted = [name for name in (user, item, rating, time) if name]
    for batch in table.batches(list(dict.fromkeys(wanted)), coded=[user, item]):
        of = dict(zip(dict.fromkeys(wanted), batch.columns, strict=True))
        users, items = _names(of[user]), _names(of[item])
        values = numbers_of(of[rating]).astype(np.float64) if rating else np.ones(users[1].size)
        times = column_times(of[time]) if time else None
        yield RowsChunk(next(numbers), table.name, batch.first + 1, users, items, values, times)


def _names(column: Any) -> tuple[bytes | list[str], np.ndarray]:
    names, places = distinct(column)
    return trimmed_lines(names, BLANKS), places
