"""Write design matrices row by row from Python. See `Design.create`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from blocks.append import DatasetTarget
from blocks.design.design import Design
from blocks.design.ingestion import count_buffer_bytes, finish_files, with_block_form, write_blocks
from blocks.design.messages import DenseRowsChunk, DesignReaderSettings, MatrixEntriesChunk, SpilledChunk
from blocks.design.request import DesignRequest
from blocks.design.worker import DesignIngestWorker
from blocks.errors import RequestError
from blocks.given_tables import (
    InputRows,
    InputTable,
    column_names,
    columns_except,
    is_table,
    join_rows,
    plain_name,
    row_batches,
    row_labels,
    table_column,
    table_target,
)
from blocks.in_process import InProcessWorker
from blocks.ingestion.incremental_writer import DatasetWriter, adds_data, incremental_dataset, writer_budget
from blocks.ingestion.memory_budget import MemoryBudget
from blocks.ingestion.pipeline import IngestionPipeline
from blocks.plurals import count_of
from blocks.progress_bar import no_bar

_CELLS = 1 << 19  # maximum number of cells or entries in a chunk


class DesignWriter(DatasetWriter):
    """Writer that adds rows to a design matrix. Created by `Design.create`."""

    def __init__(
        self, request: DesignRequest, base: Design | None, budget: MemoryBudget, target: DatasetTarget
    ) -> None:
        self._request, self._budget = request, budget
        worker = DesignIngestWorker(DesignReaderSettings(str(target.spill), count_buffer_bytes(request, budget)))
        self._pipeline = IngestionPipeline(InProcessWorker(worker), target, no_bar)
        self._columns = base.columns if base else None
        self._names, self._known = (base.column_names() if base else None), base is not None
        self._is_sparse: bool | None = None  # set by the first rows
        self._spilled: list[SpilledChunk] = []
        self._pending: list[np.ndarray | InputRows] = []
        self._rows = self._held = self._written = 0  # rows added; cells or entries buffered; rows written
        self._width = 0  # maximum number of columns of the rows so far
        self._y: list[np.ndarray] = []

    @adds_data
    def add(self, X: Any, y: Any = None) -> None:
        """Add rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of n rows
            Two-dimensional, all numbers finite. Or sparse rows as three arrays ``(data, indices, indptr)``, whose
            indices ascend within a row. Or an iterator of rows. Columns of data frames keep their names.
        y : sequence of float, optional
            Targets (n,): for all rows of the design, or for none. Not allowed if the data frame has the column
            `target`.

        Raises
        ------
        RequestError
            For an invalid row; the message gives its index, counted from 0 over all calls.
        """
        if isinstance(X, Iterator):
            for rows, labels in row_batches(X, y):
                self.add(rows, labels)
            return
        if is_table(X):
            X, y = self._chosen(X, y)
        table = InputTable(X)
        self._require_columns(table)
        self._add_labels(table.rows, y)
        self._is_sparse = table.is_sparse if self._is_sparse is None else self._is_sparse
        for batch in table.sparse(_CELLS, self._rows) if self._is_sparse else self._dense(table):
            self._pending.append(batch)
            self._held += batch.values.size if isinstance(batch, InputRows) else batch.size
            if self._held >= _CELLS:
                self._flush()
        self._rows += table.rows

    def _chosen(self, table: Any, y: Any) -> tuple[Any, Any]:
        """Return the columns of a data frame that belong to the design, and the target."""
        target, dropped = self._request.target, list(self._request.drop)
        for name in dropped:
            table_column(table, name, "drop")
        if target is not None:
            y = table_target(table, target, y)
            dropped.append(target)
        if self._known and self._names is not None:
            given = {plain_name(name): name for name in column_names(table)}
            order = [given.get(name, name) for name in self._names]
            for name in order:
                table_column(table, name, "columns_from")
            return columns_except(table, [], order), y
        return columns_except(table, dropped), y

    def _require_columns(self, table: InputTable) -> None:
        if table.names and self._rows == 0 and self._names is None:
            self._names = table.names
        if table.names and self._names and table.names != self._names:
            wrong = next((pair for pair in zip(table.names, self._names, strict=False) if pair[0] != pair[1]), None)
            told = f": {wrong[0]!r} instead of {wrong[1]!r}" if wrong else ""
            raise RequestError(
                f"X has different columns from the earlier rows{told}", "Pass the same columns in the same order."
            )
        self._width = max(self._width, table.width)
        if self._columns is None:
            self._columns = table.columns
        if table.columns not in (None, self._columns):
            raise RequestError(f"X has {count_of(table.columns or 0, 'column')}, expected {self._columns}")
        if self._columns is not None and self._width > self._columns:
            raise RequestError(f"indices of X go up to {self._width - 1}, but there are {self._columns} columns")

    def _add_labels(self, rows: int, y: Any) -> None:
        if rows and self._rows and (y is not None) != bool(self._y):
            had = "have" if self._y else "have no"
            raise RequestError(f"rows 0 to {self._rows - 1} {had} y, unlike the rows added now", "Pass y for all rows.")
        if y is None:
            return
        labels = row_labels(y, rows, self._rows)
        if rows:
            self._y.append(labels)

    def _dense(self, table: InputTable) -> Iterator[np.ndarray]:
        if not table.is_sparse:
            yield from table.dense(_CELLS, self._rows)
            return
        columns = self._columns or table.width
        step = max(_CELLS // columns, 1)
        for rows in table.sparse(_CELLS, self._rows):
            for first in range(0, rows.offsets.size - 1, step):
                yield rows.part(first, first + step).dense(columns)

    def _flush(self) -> None:
        if not self._pending:
            return
        number, some = len(self._spilled), join_rows(self._pending)
        self._pending, self._held = [], 0
        if isinstance(some, InputRows):
            rows = np.repeat(
                np.arange(self._written, self._written + some.rows, dtype=np.uint32), np.diff(some.offsets)
            )
            chunk: Any = MatrixEntriesChunk(number, "X", rows, some.columns.astype(np.uint32), some.values)
            self._written += some.rows
        else:
            chunk = DenseRowsChunk(number, "X", self._written, some)
            self._written += len(some)
        self._spilled += self._pipeline.parse([chunk])

    def _finish(self) -> None:
        self._flush()
        columns = self._columns or self._width
        if not self._rows or not columns:
            raise RequestError(f"{self._request.out}: no rows were added", "Call add() with at least one.")
        y = np.concatenate(self._y) if self._y else None
        read = with_block_form(self._pipeline, self._rows, columns, self._names, y, self._spilled)
        written = write_blocks(self._pipeline, self._request, self._budget, read)
        finish_files(self._request, self._pipeline.target, read, *written)


def create_design(request: DesignRequest, memory: int | str | None) -> AbstractContextManager[DesignWriter]:
    """Create a design matrix. See `Design.create`."""
    base = Design(request.columns_from) if request.columns_from else None
    return incremental_dataset(
        request.out, request.overwrite, lambda target: DesignWriter(request, base, writer_budget(memory), target)
    )
