"""Read Parquet and Arrow files, a few columns at a time, in batches of rows, with pyarrow (an optional extra)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.plain_numbers import plain_number

MEMORY = 90 << 20  # bytes for pyarrow and its buffers while reading
_STREAM = b"\xff\xff\xff\xff"
_MAGIC = (b"PAR1", b"ARROW1", _STREAM)
_ROOM = 48 << 20  # maximum bytes of column data that pyarrow holds while reading
_PAGES = 1 << 21  # usual size in bytes of a page and a dictionary of a column
_BATCH = 1 << 21  # bytes of a batch, if the file states the size of its rows
_MOST_ROWS = 1 << 17  # maximum number of rows in a batch
_BUFFER = 1 << 16  # bytes of the read buffer of each Parquet column
_MOST_SCHEMA = 1 << 26  # maximum size in bytes


def is_arrow(path: str) -> bool:
    """Return whether a file is Parquet, Arrow IPC or Feather."""
    return any(first_bytes(path).startswith(magic) for magic in _MAGIC)


def arrow_table(path: str, progress: Callable[[int], object], query: str | None) -> ArrowTable | None:
    """Open a Parquet or Arrow file; return None for other files.

    Raises RequestError if a query is given.
    """
    if not is_arrow(path):
        return None
    if query:
        raise RequestError(f"--query is only for SQLite databases, and {path} is not one", "Omit --query.")
    return ArrowTable(path, progress)


def first_bytes(path: str) -> bytes:
    """Return the first bytes of a file; empty for files that can be read only once."""
    try:
        if not Path(path).is_file():
            return b""
        with Path(path).open("rb") as file:
            return file.read(16)
    except OSError:  # the error is reported when the file is opened
        return b""


def arrow_bytes(paths: Iterable[str]) -> int:
    """Return the memory in bytes that pyarrow and its buffers need; 0 if no file needs pyarrow."""
    return MEMORY if any(map(is_arrow, paths)) else 0


class TableRowBatch(NamedTuple):
    """A batch of rows.

    first: index of the first row, from 0.
    columns: the requested columns, for the functions below.
    """

    first: int
    columns: list[Any]

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0])


class ArrowTable:
    """A Parquet or Arrow file.

    Attributes: `name` for messages; `columns`, names of the readable columns (not lists, structs or binary).

    progress: function called with the number of bytes just read.
    Raises RequestError if the file is damaged or pyarrow is not installed.
    """

    def __init__(self, path: str, progress: Callable[[int], object] = lambda _: None) -> None:
        self.name, self._progress = path, progress
        with self._opened() as file:
            fields = [(field.name, field.type) for field in file.schema]
        self.columns = [name for name, kind in fields if _is_plain(kind)]
        self._types = dict(fields)
        self._places = {name: place for place, (name, _) in enumerate(fields)}
        if twice := [name for name, count in Counter(name for name, _ in fields).items() if count > 1]:
            raise RequestError(f"{path}: two columns are named {twice[0]!r}", "Rename one of them.")

    def require_numbers(self, columns: Iterable[str], remedy: str) -> None:
        """Raise RequestError if one of the columns cannot hold numbers, such as a column of dates."""
        for column in columns:
            if not _may_be_number(self._types[column]):
                raise RequestError(
                    f"{self.name}: the column {column!r} holds {self._types[column]}, not numbers", remedy
                )

    def together(self, columns: Sequence[str]) -> list[int]:
        """Return the bounds of groups of columns that fit in memory together, from 0 to the number of columns."""
        with self._opened(columns[:1]) as file:
            sizes = file.column_bytes(columns)
        bounds, held = [0], 0
        for place, size in enumerate(sizes):
            if held and held + size > _ROOM:
                bounds.append(place)
                held = 0
            held += size
        return [*bounds, len(columns)]

    def batches(
        self, columns: Sequence[str], row_bytes: int = 0, size: int = _BATCH, coded: Sequence[str] = ()
    ) -> Iterator[TableRowBatch]:
        """Yield all rows in batches with the given columns.

        row_bytes: memory that the caller needs for each row.
        size: approximate size of a batch in bytes.
        coded: columns to be passed to `distinct_texts`.
        Raises RequestError if the file is damaged.
        """
        wanted = list(dict.fromkeys(columns))
        total, first = Path(self.name).stat().st_size, 0
        with self._opened(wanted, coded) as file:
            for batch in file.batches(wanted, row_bytes, size):
                arrays = dict(zip(wanted, batch.columns, strict=True))
                yield TableRowBatch(
                    first, [arrays[name] if name in coded else _decoded(arrays[name]) for name in columns]
                )
                first += batch.num_rows
                self._progress(total * batch.num_rows // max(file.rows, batch.num_rows))

    @contextmanager
    def _opened(
        self, columns: Sequence[str] | None = None, coded: Sequence[str] = ()
    ) -> Iterator[_ParquetFile | _ArrowIpcFile]:
        """Open the file to read some or all columns.

        coded: text columns to read as dictionaries.
        """
        arrow = pyarrow_module()
        try:
            with Path(self.name).open("rb") as file:
                is_parquet = first_bytes(self.name).startswith(b"PAR1")
                places = None if columns is None else [self._places[column] for column in columns]
                yield _ParquetFile(file, coded) if is_parquet else _ArrowIpcFile(file, places)
        except (arrow.ArrowException, UnicodeDecodeError, OSError, MemoryError, KeyError) as error:
            raise RequestError(
                f"{self.name} is truncated or damaged: {' '.join(str(error).split())}",
                "Copy or download the file again; none of its data was kept.",
            ) from None


class _ParquetFile:
    """An open Parquet file.

    rows: number of rows according to its metadata.
    """

    def __init__(self, file: Any, coded: Sequence[str]) -> None:
        self._table = open_parquet(file, coded)
        told = self._table.metadata
        self.schema, self.rows = self._table.schema_arrow, told.num_rows
        self._groups = [told.row_group(number) for number in range(told.num_row_groups)]

    def column_bytes(self, columns: Sequence[str]) -> list[int]:
        """Return how many bytes pyarrow holds for each column while reading: an encoded and a decoded page and
        dictionary."""
        if not self._groups:
            return [0] * len(columns)
        place_of = {self._groups[0].column(place).path_in_schema: place for place in range(self._groups[0].num_columns)}
        places = [place_of[name] for name in columns]
        most = [max(group.column(place).total_uncompressed_size for group in self._groups) for place in places]
        return [_BUFFER + 2 * min(size, _PAGES) for size in most]

    def batches(self, columns: list[str], row_bytes: int, size: int) -> Iterator[Any]:
        """Yield batches of rows."""
        stored = sum(group.total_byte_size for group in self._groups) // max(self.rows, 1)
        rows = _rows_of_batch(size, stored, row_bytes)
        for batch in self._table.iter_batches(batch_size=rows, columns=columns, use_threads=False):
            yield valid_batch(batch).select(columns)


def open_parquet(file: Any, coded: Sequence[str] = ()) -> Any:
    """Open an untrusted Parquet file.

    coded: text columns to read as dictionaries.
    """
    limits = {"thrift_string_size_limit": _MOST_SCHEMA, "thrift_container_size_limit": _MOST_SCHEMA}
    reading = {"buffer_size": _BUFFER, "pre_buffer": False, "page_checksum_verification": True}
    return pyarrow_module().parquet.ParquetFile(file, read_dictionary=list(coded), **reading, **limits)


class _ArrowIpcFile:
    """An open Arrow IPC or Feather file, of which some columns are read; the number of rows is unknown."""

    rows = 0

    def __init__(self, file: Any, places: list[int] | None) -> None:
        arrow = pyarrow_module()
        is_stream = file.read(len(_STREAM)) == _STREAM
        file.seek(0)
        options = arrow.ipc.IpcReadOptions(use_threads=False, included_fields=places)
        table = (arrow.ipc.open_stream if is_stream else arrow.ipc.open_file)(file, options=options)
        self.schema = table.schema
        self._parts = iter(table) if is_stream else map(table.get_batch, range(table.num_record_batches))

    def column_bytes(self, columns: Sequence[str]) -> list[int]:
        """Return how many bytes pyarrow holds for each column while reading: the encoded and decoded values of a
        batch."""
        first = next(self._parts, None)
        return [16 * first.num_rows if first else 0] * len(columns)

    def batches(self, columns: list[str], row_bytes: int, size: int) -> Iterator[Any]:
        """Yield batches of rows."""
        for part in map(valid_batch, self._parts):
            rows = _rows_of_batch(size, part.nbytes // max(part.num_rows, 1), row_bytes)
            for first in range(0, part.num_rows, rows):
                yield part.slice(first, rows).select(columns)


def column_texts(column: Any) -> list[str]:
    """Return the values of a column as strings; missing values are empty."""
    return _without_null(column.cast(pyarrow_module().large_string()), "").to_pylist()


def python_values(column: Any) -> list[Any]:
    """Return the values of a column as Python objects, None where missing. Times are truncated to microseconds."""
    arrow = pyarrow_module()
    if arrow.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(arrow.timestamp("us", column.type.tz), safe=False)
    if arrow.types.is_float32(column.type):  # the shortest decimal representation, such as 0.1
        return [None if value == "" else float(value) for value in column_texts(column)]
    return column.to_pylist()


def distinct_texts(column: Any) -> tuple[Any, np.ndarray]:
    """Return the distinct values of a column as strings, and uint32 (R,), the index of each row's value.

    Missing values are empty strings.
    """
    arrow = pyarrow_module()
    if (numbers := _close_numbers(column)) is not None:
        return _distinct_numbers(numbers)
    coded = column if arrow.types.is_dictionary(column.type) else _decoded(column).dictionary_encode()
    values, missing = coded.dictionary, len(coded.dictionary)
    places = _without_null(coded.indices.cast(arrow.uint32()), missing).to_numpy(zero_copy_only=False)
    used = np.zeros(missing + 1, bool)
    used[places] = True
    if not used[:-1].all():  # the dictionary of a file also contains values of other batches
        values = values.take(arrow.array(np.flatnonzero(used[:-1])))
        places = (np.cumsum(used, dtype=np.uint32) - np.uint32(1))[places]
    names = _without_null(values.cast(arrow.string()), "")
    return (arrow.concat_arrays([names, arrow.array([""])]) if used[-1] else names), places


def _close_numbers(column: Any) -> np.ndarray | None:
    """Return an integer column as int64 (R,) if a lookup table over its range would be small enough, else None."""
    if not pyarrow_module().types.is_integer(column.type) or column.null_count or not len(column):
        return None
    numbers = column.to_numpy()
    low, high = int(numbers.min()), int(numbers.max())
    return numbers.astype(np.int64) if high - low < 8 * len(numbers) and high < 1 << 63 else None


def _distinct_numbers(numbers: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the distinct numbers. See `distinct_texts`."""
    low = numbers.min()
    used = np.zeros(numbers.max() - low + 1, bool)
    used[numbers - low] = True
    arrow = pyarrow_module()
    names = arrow.array(np.flatnonzero(used) + low).cast(arrow.string())
    return names, (np.cumsum(used, dtype=np.uint32) - np.uint32(1))[numbers - low]


def _without_null(column: Any, value: Any) -> Any:
    """Replace the missing values of a column.

    Avoids `fill_null`, which is slow, if no values are missing.
    """
    return column.fill_null(value) if column.null_count else column


def trimmed_lines(names: Any, blanks: str) -> bytes | list[str]:
    """Return strings from `distinct_texts`, stripped of surrounding blanks, joined with a line feed after each.

    If this would be ambiguous, because a string is empty or contains a line break or NUL, return a list instead.
    """
    arrow = pyarrow_module()
    trimmed = arrow.compute.utf8_trim(names, blanks)
    lists = arrow.ListArray.from_arrays(arrow.array([0, len(names)], arrow.int32()), trimmed)
    joined = arrow.compute.binary_join(lists, "\n")[0].as_buffer().to_pybytes() + b"\n"
    is_clear = joined.count(b"\n") == len(names) and not joined.startswith(b"\n") and b"\n\n" not in joined
    return joined if is_clear and b"\r" not in joined and b"\0" not in joined else trimmed.to_pylist()


def column_numbers(column: Any) -> np.ndarray:
    """Return the values of a column as numbers, (R,); NaN for missing values and for text that is not a number."""
    arrow = pyarrow_module()
    types, kind = arrow.types, column.type
    if types.is_string(kind) or types.is_large_string(kind):
        numbers = (plain_number(text.strip()) for text in column_texts(column))
        return np.array([np.nan if number is None else number for number in numbers], np.float64)
    if types.is_boolean(kind):
        column = column.cast(arrow.uint8())
    elif types.is_decimal(kind):
        column = column.cast(arrow.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)


def pyarrow_module() -> Any:
    """Return pyarrow with the modules used here, set to one thread.

    Raises RequestError if it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise RequestError(
            "Parquet files, Arrow files and document tables need the package pyarrow, which is not installed",
            'Install it with: pip install "ooc[parquet]"',
        ) from None
    pyarrow.set_cpu_count(1)
    return pyarrow


def valid_batch(batch: Any) -> Any:
    """Return a batch after validating it: pyarrow trusts offsets in a file, and wrong ones would crash the process."""
    batch.validate(full=True)
    return batch


def _rows_of_batch(size: int, stored: int, made: int) -> int:
    """Return the number of rows in a batch.

    size: bytes of a batch.
    stored: bytes of a row in the file.
    made: bytes of a row for the caller.
    """
    return min(max(size // max(stored, made, 1), 1), _MOST_ROWS)


def _is_plain(kind: Any) -> bool:
    types = pyarrow_module().types
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind))


def _may_be_number(kind: Any) -> bool:
    types = pyarrow_module().types
    if types.is_dictionary(kind):
        return _may_be_number(kind.value_type)
    return not types.is_temporal(kind)


def _decoded(column: Any) -> Any:
    """Return a column converted to a type that the functions above support."""
    arrow = pyarrow_module()
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.types.is_float16(column.type):
        return column.cast(arrow.float32())
    if arrow.types.is_string_view(column.type):
        return column.cast(arrow.large_string())
    return column
