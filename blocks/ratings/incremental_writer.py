"""Write ratings from Python. See `Matrix.create`."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

import numpy as np

from blocks.append import DatasetTarget
from blocks.design.design_rows import fits_float32
from blocks.errors import RequestError
from blocks.given_arrays import require_unmasked
from blocks.given_tables import column_names, is_table
from blocks.in_process import InProcessWorker
from blocks.ingestion.incremental_writer import DatasetWriter, adds_data, incremental_dataset, writer_budget
from blocks.ingestion.memory_budget import MemoryBudget
from blocks.ingestion.pipeline import IngestionPipeline
from blocks.progress_bar import no_bar
from blocks.ratings.formats import rating_columns
from blocks.ratings.ingestion import reading_of, write_ratings
from blocks.ratings.input_chunks import BLANKS, TableRatingsChunk
from blocks.ratings.matrix import Matrix
from blocks.ratings.request import RatingsRequest, base_matrix, require_one_base
from blocks.ratings.worker import ParsedRatings, RatingsIngestWorker

_BATCH = 1 << 16  # number of ratings in a chunk
_REMEDY = "Call add(users, items, ratings), or pass a data frame, a sparse matrix, or rows of user, item and rating."


class RatingsWriter(DatasetWriter):
    """Writer that adds ratings to a matrix. Created by `Matrix.create`."""

    def __init__(
        self, request: RatingsRequest, base: Matrix | None, budget: MemoryBudget, target: DatasetTarget
    ) -> None:
        self._request, self._base, self._budget = request, base, budget
        worker = RatingsIngestWorker(reading_of(request, budget, target))
        self._pipeline = IngestionPipeline(InProcessWorker(worker), target, no_bar)
        self._parsed: list[ParsedRatings] = []
        self._pending: tuple[list[Any], list[Any], list[float]] = [], [], []
        self._added = self._parsed_rows = 0

    @adds_data
    def add(self, users: Any, items: Any = None, ratings: Any = None) -> None:
        """Add ratings.

        Parameters
        ----------
        users, items : sequences of int or str
            The user and the item of each rating. 7 and "7" are the same user. Instead of both: a pandas, polars or
            pyarrow table; a matrix of scipy.sparse, whose rows and columns are users and items numbered from 0; or an
            iterable of rows ``(user, item)`` or ``(user, item, rating)``.
        ratings : sequence of float, optional
            By default all ratings are 1.

        Raises
        ------
        RequestError
            For an invalid row; the message gives its index, counted from 0 over all calls.
        """
        if items is not None:
            self._add_columns(users, items, ratings)
        elif ratings is not None:
            raise RequestError("ratings were given, but items were not", _REMEDY)
        elif is_table(users):
            found = rating_columns(list(map(str, column_names(users))), self._request.format_options, "the table")
            self._add_columns(*(users[found[side]] if side in found else None for side in ("user", "item", "rating")))
        elif hasattr(users, "tocoo"):
            csr = users.tocsr()
            if not csr.has_canonical_format:  # in scipy, the value of a cell is the sum of its entries
                csr = csr.copy()
                csr.sum_duplicates()
            entries = csr.tocoo()
            self._add_columns(entries.row, entries.col, entries.data)
        elif (
            isinstance(users, str | bytes | Mapping) or getattr(users, "ndim", 0) > 1 or not isinstance(users, Iterable)
        ):
            raise RequestError(f"ratings cannot be read from {reprlib.repr(users)}", _REMEDY)
        else:
            rows = iter(users)
            while batch := list(islice(rows, _BATCH)):
                self._add_columns(*self._transposed(batch))

    def _transposed(self, rows: list[Any]) -> list[Any]:
        """Return users, items and ratings, if any."""
        wanted = len(rows[0]) if isinstance(rows[0], Sequence) and len(rows[0]) in (2, 3) else 3
        for at, row in enumerate(rows):
            if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != wanted:
                raise RequestError(
                    f"{self._row(at)} is {reprlib.repr(row)}, expected {wanted} values: user, item, rating", _REMEDY
                )
        return list(zip(*rows, strict=True))

    def _row(self, at: int) -> str:
        """Return the name of a row for messages."""
        return f"row {self._added + at} (counted from 0)"

    def _add_columns(self, users: Any, items: Any, ratings: Any = None) -> None:
        columns = {"users": users, "items": items} | ({} if ratings is None else {"ratings": ratings})
        for name, column in columns.items():
            if isinstance(column, str | bytes) or not hasattr(column, "__len__") or getattr(column, "ndim", 1) != 1:
                raise RequestError(f"{name} must be a sequence, got {reprlib.repr(column)}", _REMEDY)
            require_unmasked(name, column)
        sizes = {name: len(column) for name, column in columns.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
            raise RequestError(f"there are {told}", "Pass the same number of each.")
        for first in range(0, len(users), _BATCH):
            parts = [_part(column, first, first + _BATCH) for column in columns.values()]
            self._add_part(parts[0], parts[1], self._checked(parts[2]) if ratings is not None else None)

    def _checked(self, ratings: Any) -> np.ndarray:
        """Return ratings as float64 (n,).

        Raises RequestError unless they are finite.
        """
        try:
            values = np.asarray(ratings, np.float64)
        except (TypeError, ValueError) as error:
            raise RequestError(f"ratings must be numbers, from {self._row(0)} on: {error}") from None
        if not (good := fits_float32(values)).all():
            at = int(good.argmin())
            raise RequestError(
                f"{self._row(at)}: the rating {values[at]} is not a finite number", "Remove this rating."
            )
        return values

    def _add_part(self, users: Any, items: Any, values: np.ndarray | None) -> None:
        """Parse complete chunks and buffer the remaining rows."""
        values = np.ones(len(users)) if values is None else values
        self._added += len(users)
        if len(users) == _BATCH:
            self._flush()
            self._parse(users, items, values)
            return
        for pending, part in zip(self._pending, (users, items, values), strict=True):
            pending.extend(part.tolist() if isinstance(part, np.ndarray) else part)
        if len(self._pending[0]) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        users, items, values = self._pending
        if users:
            self._pending = [], [], []
            self._parse(users, items, np.array(values))

    def _parse(self, users: Any, items: Any, values: np.ndarray) -> None:
        named = self._named("user", users), self._named("item", items)
        self._parsed += self._pipeline.parse([TableRatingsChunk(0, "the ratings", self._parsed_rows, *named, values)])
        self._parsed_rows += values.size

    def _named(self, side: str, column: Any) -> tuple[bytes, np.ndarray]:
        """Return the distinct names, one per line, and the index of each row's name, uint32 (n,)."""
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
            found, places = np.unique(column, return_inverse=True)
            return "".join(f"{number}\n" for number in found.tolist()).encode(), places.astype(np.uint32)
        values = column.tolist() if isinstance(column, np.ndarray) else column
        numbers: dict[Any, int] = {}
        try:
            places = np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.uint32, len(values))
        except TypeError as error:  # values are not hashable
            raise RequestError(f"{side}s must be whole numbers or strings: {error}") from None
        return "".join(f"{self._name(side, value, values)}\n" for value in numbers).encode(), places

    def _name(self, side: str, value: Any, values: Sequence[Any]) -> str:
        if isinstance(value, str) and (name := value.strip(BLANKS)) and not any(mark in name for mark in "\0\n\r"):
            return name
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        at = next(at for at, other in enumerate(values) if other is value)
        expected = "a whole number or a string of one line"
        where = f"row {self._parsed_rows + at} (counted from 0)"
        raise RequestError(f"{where}: the {side} is {reprlib.repr(value)}, expected {expected}")

    def _finish(self) -> None:
        self._flush()
        if not self._added:
            raise RequestError(f"{self._request.out}: no ratings were added", "Call add() with at least one.")
        write_ratings(self._pipeline, self._request, self._budget, self._base, self._parsed)


def create_ratings(request: RatingsRequest, memory: int | str | None) -> AbstractContextManager[RatingsWriter]:
    """Create a matrix of ratings. See `Matrix.create`."""
    require_one_base(request)
    base = base_matrix(request)
    return incremental_dataset(
        request.out, request.overwrite, lambda target: RatingsWriter(request, base, writer_budget(memory), target)
    )


def _part(column: Any, first: int, last: int) -> Any:
    """Return the values `first` to `last` (exclusive) of a column, as an array or as Python objects."""
    part = column[first:last]
    if hasattr(part, "to_pylist"):
        return part.to_pylist()
    return np.asarray(part) if hasattr(part, "dtype") else part
