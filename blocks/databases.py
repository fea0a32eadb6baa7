"""Query SQLite databases and return the rows as CSV, for all readers of CSV."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from blocks.arrow_tables import first_bytes
from blocks.errors import RequestError

_MAGIC = b"SQLite format 3\0"
_ROWS = 1 << 10  # number of rows fetched at a time


def is_database(path: str) -> bool:
    """Return whether a file is a SQLite database."""
    return first_bytes(path).startswith(_MAGIC)


def rows_as_csv(path: str, query: str | None, progress: Callable[[int], object], longest: int) -> Iterator[bytes]:
    """Yield the header and rows as CSV: comma-separated, text quoted, missing values empty.

    query: SQL query.
    progress: function called with the size of the file in bytes.
    longest: maximum number of bytes in a value.
    Raises RequestError if the query fails, or is missing (the message lists the tables).
    """
    yield from _rows_of_query(path, query, longest)
    progress(Path(path).stat().st_size)


def _rows_of_query(path: str, query: str | None, longest: int) -> Iterator[bytes]:
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
            if query is None:
                tables = database.execute(
                    "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name"
                )
                there = ", ".join(name for (name,) in tables) or "none"
                raise RequestError(f"{path} is a SQLite database with the tables {there}", "Select rows with --query.")
            rows = database.execute(query)
            if rows.description is None:
                raise RequestError("--query returns no rows", "Write a SELECT statement.")
            yield _csv_of([[column for column, *_ in rows.description]])
            while some := rows.fetchmany(_ROWS):
                _require_no_bytes(some, [column for column, *_ in rows.description])
                yield _csv_of(some)
    except sqlite3.Error as error:
        raise RequestError(f"{path}: {error}", "Correct --query; or check that the file is complete.") from None


def _require_no_bytes(rows: Iterable[Sequence[object]], columns: Sequence[str]) -> None:
    for row in rows:
        if bytes in map(type, row):
            name = next(name for name, value in zip(columns, row, strict=True) if isinstance(value, bytes))
            raise RequestError(
                f"--query: the column {name!r} contains bytes; expected text or numbers",
                f"Select CAST({name} AS TEXT), or omit the column.",
            )


def _csv_of(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")
