"""Read tables passed from Python in batches of rows: arrays, sparse matrices, data frames and pyarrow tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from blocks.design.design_rows import MOST_COLUMNS, fits_float32
from blocks.errors import RequestError
from blocks.given_arrays import integers, python_times, require_ascending, require_unmasked
from blocks.plurals import count_of
from blocks.stored_dataset import range_parts

_TABLES = "Pass a two-dimensional array, a sparse matrix, a data frame, or (data, indices, indptr) of sparse rows."
_VALUES = 1 << 12  # number of values of a column converted to Python objects at a time
_ROWS = 1 << 8  # number of rows taken from a generator at a time


class InputRows(NamedTuple):
    """Rows with N entries, whose columns ascend within each row.

    offsets: int64 (n+1,).
    columns: integers (N,).
    values: (N,), any real dtype.
    """

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @property
    def rows(self) -> int:
        return self.offsets.size - 1

    def part(self, first: int, last: int) -> InputRows:
        """Return the rows from `first` to `last` (exclusive)."""
        offsets = self.offsets[first : last + 1]
        some = slice(offsets[0], offsets[-1])
        return InputRows(offsets - offsets[0], self.columns[some], self.values[some])

    def dense(self, columns: int) -> np.ndarray:
        """Return the rows as a dense array (n, columns)."""
        cells = np.zeros((self.rows, columns), self.values.dtype)
        cells[np.repeat(np.arange(self.rows), np.diff(self.offsets)), self.columns] = self.values
        return cells

    def row_of(self, entry: int) -> int:
        """Return the row that contains an entry."""
        return int(np.searchsorted(self.offsets, entry, "right")) - 1


def join_rows(pieces: Sequence[np.ndarray | InputRows]) -> Any:
    """Concatenate rows, dense or sparse."""
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    lengths, columns, values = zip(*((np.diff(offsets), *entries) for offsets, *entries in pieces), strict=True)
    offsets = np.concatenate(([0], np.cumsum(np.concatenate(lengths)))).astype(np.int64)
    return InputRows(offsets, np.concatenate(columns), np.concatenate(values))


def is_table(given: Any) -> bool:
    """Return whether an object has named columns, as pyarrow, pandas and polars tables do."""
    return hasattr(given, "column_names") or (hasattr(given, "columns") and not hasattr(given, "tocsr"))


def column_names(table: Any) -> list[Any]:
    """Return the column names of a table."""
    return list(table.column_names if hasattr(table, "column_names") else table.columns)


def plain_name(name: Any) -> str:
    """Return a column name as datasets store it: a string of one line."""
    return " ".join(str(name).split())


def table_column(table: Any, name: str, option: str) -> Any:
    """Return a column of a table.

    Raises RequestError, listing the existing columns, if it is missing.
    """
    if name not in (names := column_names(table)):
        some = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        raise RequestError(f"the table has no column {name!r}; its columns are {some}", f"Choose one with {option}.")
    return table[name]


def column_values(column: Any) -> Iterator[Any]:
    """Yield the values of a column, or of any iterable, as Python objects."""
    if isinstance(column, np.ndarray):
        column = python_times(column)
    convert = next((name for name in ("to_pylist", "tolist") if hasattr(column, name)), None)
    if convert is None or not hasattr(column, "__len__") or hasattr(column, "iloc"):
        yield from column
        return
    for first in range(0, len(column), _VALUES):
        yield from getattr(column[first : first + _VALUES], convert)()


class InputTable:
    """n rows of numbers.

    Raises RequestError for anything else.

    Attributes: `rows`; `columns`, None if only the largest index is known; `names`, column names of a data frame, else
    None; `is_sparse`.

    what: name of the argument in messages.
    """

    def __init__(self, given: Any, what: str = "X") -> None:
        self.what = what
        self.names: list[str] | None = None
        self._sparse: Any = None
        if hasattr(given, "tocsr"):
            if len(given.shape) != 2 or given.dtype.kind not in "fiub":
                raise RequestError(
                    f"{what} must be a two-dimensional numeric array, got dtype {given.dtype} and shape {given.shape}"
                )
            self._sparse = given.tocsr()
            self.rows, self.columns = given.shape
        elif isinstance(given, tuple) and len(given) == 3:
            self._sparse = _checked_rows(*given)
            self.rows, self.columns = self._sparse.offsets.size - 1, None
        else:
            self._arrays = self._columns(given) if is_table(given) else [self._array(given)]
            self.rows, self.columns = self._arrays[0].shape[0], sum(array.shape[1] for array in self._arrays)
        self.is_sparse = self._sparse is not None

    def _columns(self, table: Any) -> list[np.ndarray]:
        self.names = names = list(map(plain_name, column_names(table)))
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise RequestError(f"{self.what}: two columns are named {twice[0]!r}", "Rename one of them.")
        if not names:
            raise RequestError(f"{self.what} has no columns", _TABLES)
        return [
            self._array(np.asarray(table[name]).reshape(-1, 1), f", column {name!r}") for name in column_names(table)
        ]

    def _array(self, given: Any, where: str = "") -> np.ndarray:
        if given is None or isinstance(given, str | bytes | Mapping):
            raise RequestError(f"{self.what} must be a table of numbers, got {given!r:.60}", _TABLES)
        require_unmasked(f"{self.what}{where}", given)
        try:
            array = np.asarray(given)
            array = array.astype(np.float64) if array.dtype.kind == "O" else array
        except (TypeError, ValueError) as error:
            raise RequestError(f"{self.what}{where} is not a table of numbers: {error}", _TABLES) from None
        if array.ndim != 2:
            raise RequestError(f"{self.what} must be two-dimensional, got shape {array.shape}", _TABLES)
        if array.dtype.kind not in "fiub":
            raise RequestError(f"{self.what}{where} must be numeric, got dtype {array.dtype}", _TABLES)
        return array

    @property
    def width(self) -> int:
        """Return the number of columns; at least the largest index plus 1."""
        if self.columns is not None:
            return self.columns
        return int(self._sparse.columns.max(initial=-1)) + 1

    def dense(self, cells: int, first: int) -> Iterator[np.ndarray]:
        """Yield the rows of a dense table, about `cells` numbers at a time.

        first: number of rows in earlier calls.
        """
        step = max(cells // self.columns, 1) if self.columns else 1
        for begin in range(0, self.rows, step):
            some = np.concatenate([array[begin : begin + step] for array in self._arrays], axis=1)
            if (at := _first_unusable(some.reshape(-1))) is not None:
                row, column = divmod(at, some.shape[1])
                raise self._not_finite(first + begin + row, column, some[row, column])
            yield some

    def sparse(self, entries: int, first: int) -> Iterator[InputRows]:
        """Yield the rows, about `entries` entries at a time, without stored zeros.

        first: number of rows in earlier calls.
        """
        if not self.is_sparse:
            yield from map(_without_zeros, self.dense(entries, first))
            return
        csr = self._sparse
        offsets = csr.offsets if isinstance(csr, InputRows) else csr.indptr.astype(np.int64)
        for begin, end in pairwise(range_parts(offsets, entries).tolist()):
            some = _slice(csr, begin, end)
            if (at := _first_unusable(some.values)) is not None:
                raise self._not_finite(first + begin + some.row_of(at), int(some.columns[at]), some.values[at])
            yield some

    def _not_finite(self, row: int, column: int, value: Any) -> RequestError:
        return RequestError(
            f"{self.place(row, column)}: {value} is not a finite float32 number",
            "Fill in missing values, or remove their rows.",
        )

    def place(self, row: int, column: int) -> str:
        """Describe the position of a cell for messages."""
        which = repr(self.names[column]) if self.names else str(column)
        return f"{self.what}, row {row}, column {which} (counted from 0)"


def _first_unusable(values: np.ndarray) -> int | None:
    """Return the position of the first value that float32 cannot represent."""
    if values.dtype.kind != "f":
        return None
    good = fits_float32(values)
    return None if good.all() else int(good.argmin())


def _slice(csr: Any, begin: int, end: int) -> InputRows:
    if isinstance(csr, InputRows):
        return csr.part(begin, end)
    rows = csr[begin:end]
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return InputRows(rows.indptr.astype(np.int64), rows.indices, rows.data)


def _without_zeros(cells: np.ndarray) -> InputRows:
    rows, columns = np.nonzero(cells)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(cells))))).astype(np.int64)
    return InputRows(offsets, columns, cells[rows, columns])


def _checked_rows(data: Any, indices: Any, indptr: Any) -> InputRows:
    """Return rows from the arrays of a scipy csr_array.

    Raises RequestError if the arrays are inconsistent.
    """
    offsets, columns, values = (
        integers("indptr", indptr).astype(np.int64),
        integers("indices", indices),
        np.asarray(data),
    )
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise RequestError(
            f"data must be a one-dimensional numeric array, got dtype {values.dtype} and shape {values.shape}"
        )
    if not offsets.size or offsets[0] != 0 or (np.diff(offsets) < 0).any() or offsets[-1] != columns.size:
        raise RequestError(f"indptr must ascend from 0 to {columns.size}, the number of indices")
    if values.size != columns.size:
        raise RequestError(f"data has {values.size} elements, but there are {columns.size} indices")
    if columns.size and int(columns.max()) >= MOST_COLUMNS:
        raise RequestError(f"indices has {columns.max()}; at most {MOST_COLUMNS} columns are possible")
    require_ascending("indices", offsets, columns)
    return InputRows(offsets, columns, values)


def row_labels(given: Any, rows: int, first: int) -> np.ndarray:
    """Return the labels of rows as numbers, float64 (n,).

    Raises RequestError for anything else.

    first: number of rows in earlier calls.
    """
    require_unmasked("y", given)
    values = np.asarray(
        given if hasattr(given, "dtype") or not isinstance(given, Iterable) else list(column_values(given))
    )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "fiubO":
        raise RequestError(
            f"y must have a number for each row, got dtype {values.dtype} and shape {values.shape}",
            "Encode classes as numbers 0, 1, 2, ...",
        )
    if values.size != rows:
        raise RequestError(f"y has {count_of(values.size, 'value')}, but X has {count_of(rows, 'row')}")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"y must have a number for each row: {error}") from None
    if not (finite := np.isfinite(numbers)).all():
        at = int(finite.argmin())
        raise RequestError(
            f"y, row {first + at} (counted from 0): {numbers[at]} is not a finite number", "Remove these rows."
        )
    return numbers


def row_batches(rows: Iterator[Any], labels: Iterable[Any] | None) -> Iterator[tuple[list[Any], list[Any] | None]]:
    """Yield a few rows at a time with their labels.

    Raises RequestError if labels are left after the last row.
    """
    left = None if labels is None else iter(labels)
    while some := list(islice(rows, _ROWS)):
        yield some, None if left is None else list(islice(left, len(some)))
    if left is not None and (more := sum(1 for _ in left)):
        raise RequestError(f"y has {count_of(more, 'value')} more than X has rows")


def table_target(table: Any, target: str, y: Any) -> Any:
    """Return the column of a table that holds y.

    Raises RequestError if it is missing, or if y is also given.
    """
    if y is not None:
        raise RequestError(
            f"y is given twice: as an argument, and as the target {target!r} in X", "Use only one of them."
        )
    return table_column(table, target, "target")


def columns_except(table: Any, left_out: Sequence[str], order: Sequence[str] | None = None) -> Any:
    """Return a table without the columns in `left_out`.

    order: the remaining columns in the requested order, None to keep the table's order.
    """
    kept = [name for name in order or column_names(table) if name not in left_out]
    return table.select(kept) if hasattr(table, "select") else table[kept]
