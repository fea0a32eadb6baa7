"""Parquet and Arrow files, and queries of SQLite databases, as the CSV that they would be, for all readers of CSV.

pyarrow, which reads the former, is an extra.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from blocks.errors import RequestError

_ARROW = 90 << 20  # bytes
_BATCH = 1 << 21  # bytes of a batch, as far as a file tells how large its rows are
_ROWS = 1 << 10  # of a batch, where it does not
_SQLITE = "SQLite"
_KINDS = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow IPC",
    b"\xff\xff\xff\xff": "Arrow IPC",
    b"SQLite format 3\0": _SQLITE,
}
_LEAST = 1 << 22  # bytes that a value of a database may have at least
_STREAM = b"\xff\xff\xff\xff"
_MOST_SCHEMA = 1 << 26  # bytes


def kind_of_table(path: str) -> str | None:
    """What a file that holds a table is called; None for other files, and for what can be read once only."""
    try:
        if not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            start = file.read(16)
    except OSError:  # whoever reads the file says so
        return None
    return next((kind for magic, kind in _KINDS.items() if start.startswith(magic)), None)


def arrow_bytes(paths: Iterable[str]) -> int:
    """Bytes of memory for pyarrow and what it holds while it reads, if any of the files needs it."""
    return _ARROW if any(kind_of_table(path) not in (None, _SQLITE) for path in paths) else 0


def rows_as_csv(
    path: str, kind: str, progress: Callable[[int], object], query: str | None = None, longest: int = _LEAST
) -> Iterator[bytes]:
    """A header, and the rows: commas between fields, quotes around text, nothing where a value is missing.

    Columns of lists, structures and bytes are left out. progress: called with bytes read. query: SQL, for a database.
    longest: bytes of a value of one. Raises RequestError if the file is damaged, the query fails, or pyarrow is needed
    but not installed.
    """
    if kind == _SQLITE:
        yield from _rows_of_query(path, query, longest)
        progress(Path(path).stat().st_size)
    elif query:
        raise RequestError(f"--query is for SQLite databases, but {path} is {kind}", "Leave it out.")
    else:
        yield from _rows_of_arrow(path, kind, progress)


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
                raise RequestError(f"{path} is a SQLite database; its tables: {there}", "Choose rows with --query.")
            rows = database.execute(query)
            if rows.description is None:
                raise RequestError("--query gives no rows", "Write a SELECT.")
            yield _csv_of([[column for column, *_ in rows.description]])
            while some := rows.fetchmany(_ROWS):
                _require_no_bytes(some, [column for column, *_ in rows.description])
                yield _csv_of(some)
    except sqlite3.Error as error:
        raise RequestError(f"{path}: {error}", "Correct --query; or see whether the file is whole.") from None


def _require_no_bytes(rows: Iterable[Sequence[object]], columns: Sequence[str]) -> None:
    for row in rows:
        if bytes in map(type, row):
            name = next(name for name, value in zip(columns, row, strict=True) if isinstance(value, bytes))
            raise RequestError(
                f"--query: the column {name!r} holds bytes", f"Select CAST({name} AS TEXT), or leave it out."
            )


def _csv_of(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _rows_of_arrow(path: str, kind: str, progress: Callable[[int], object]) -> Iterator[bytes]:
    arrow = _arrow()
    size = Path(path).stat().st_size
    try:
        with Path(path).open("rb") as file:
            schema, rows, batches = _opened(file, kind)
            kept = [number for number, field in enumerate(schema) if _is_plain(field.type)]
            names = [arrow.array([schema.names[number]]) for number in kept]
            yield _csv(arrow.RecordBatch.from_arrays(names, [str(number) for number in kept]))
            for batch in batches:
                batch.validate(full=True)  # pyarrow trusts offsets: others than these end the process
                columns = [_decoded(batch.column(number)) for number in kept]
                yield _csv(arrow.RecordBatch.from_arrays(columns, [str(number) for number in kept]))
                progress(size * batch.num_rows // max(rows, batch.num_rows))
    except (arrow.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:
        raise RequestError(
            f"{path} is truncated or damaged: {error}", "Get it again; nothing of it was kept."
        ) from None


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise RequestError(
            "Parquet and Arrow files need pyarrow", 'Install it with: pip install "ooc[parquet]"'
        ) from None
    pyarrow.set_cpu_count(1)
    return pyarrow


def _opened(file: Any, kind: str) -> tuple[Any, int, Iterator[Any]]:
    """The schema, how many rows there are (0 if that is not told), and the rows in batches."""
    arrow = _arrow()
    if kind == "Parquet":
        limits = {"thrift_string_size_limit": _MOST_SCHEMA, "thrift_container_size_limit": _MOST_SCHEMA}
        table = arrow.parquet.ParquetFile(
            file, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True, **limits
        )
        told = table.metadata
        size = sum(told.row_group(number).total_byte_size for number in range(told.num_row_groups))
        rows = max(min(_BATCH * told.num_rows // max(size, 1), 1 << 16), 1)
        return table.schema_arrow, told.num_rows, table.iter_batches(batch_size=rows, use_threads=False)
    start = file.read(len(_STREAM))
    file.seek(0)
    options = arrow.ipc.IpcReadOptions(use_threads=False)
    if start == _STREAM:
        stream = arrow.ipc.open_stream(file, options=options)
        return stream.schema, 0, _sliced(iter(stream))
    table = arrow.ipc.open_file(file, options=options)
    return table.schema, 0, _sliced(table.get_batch(number) for number in range(table.num_record_batches))


def _sliced(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for first in range(0, batch.num_rows, _ROWS):
            yield batch.slice(first, _ROWS)


def _is_plain(kind: Any) -> bool:
    """Whether CSV has a form for a type."""
    types = _arrow().types
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind))


def _decoded(column: Any) -> Any:
    """The values of a column, as a type that can be written."""
    arrow = _arrow()
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.types.is_float16(column.type):
        return column.cast(arrow.float32())
    if arrow.types.is_string_view(column.type):
        return column.cast(arrow.large_string())
    return column


def _csv(batch: Any) -> bytes:
    arrow, out = _arrow(), io.BytesIO()
    arrow.csv.write_csv(batch, out, arrow.csv.WriteOptions(include_header=False))
    return out.getvalue()
