"""Write labelled samples row by row from Python. See `Samples.create`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from blocks.append import DatasetTarget
from blocks.design.design_rows import MOST_COLUMNS
from blocks.errors import RequestError
from blocks.given_tables import InputTable, columns_except, is_table, join_rows, row_batches, row_labels, table_target
from blocks.in_process import InProcessWorker
from blocks.ingestion.incremental_writer import DatasetWriter, adds_data, incremental_dataset
from blocks.ingestion.messages import SpilledRows
from blocks.ingestion.pipeline import RUN, IngestionPipeline
from blocks.progress_bar import no_bar
from blocks.samples.ingestion import write_blocks
from blocks.samples.worker import SampleRows, SamplesIngestWorker


class SamplesWriter(DatasetWriter):
    """Writer that adds samples to a sample set. Created by `Samples.create`."""

    def __init__(
        self, columns: int | None, column: str | None, options: Mapping[str, int], target: DatasetTarget
    ) -> None:
        self._columns, self._target, self._options = columns, column, options
        self._pipeline = IngestionPipeline(InProcessWorker(SamplesIngestWorker(str(target.spill))), target, no_bar)
        self._pieces: list[SpilledRows] = []
        self._pending: list[Any] = []
        self._labels: list[np.ndarray] = []
        self._rows = self._held = self._width = 0

    @adds_data
    def add(self, X: Any, y: Any = None) -> None:
        """Add samples.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of n rows
            Two-dimensional, all numbers finite. Or sparse rows as three arrays ``(data, indices, indptr)``, whose
            indices ascend within a row. Or an iterator of rows.
        y : sequence of float
            Labels (n,). Not allowed if the data frame has the column `target`.

        Raises
        ------
        RequestError
            For an invalid row; the message gives its index, counted from 0 over all calls.
        """
        if is_table(X) and self._target is not None:
            y = table_target(X, self._target, y)
            X = columns_except(X, [self._target])
        if y is None:
            raise RequestError(
                "y is missing: each sample must have a label",
                "Call add(X, y), or name the column of labels with target.",
            )
        if isinstance(X, Iterator):
            for rows, labels in row_batches(X, y):
                self.add(rows, labels)
            return
        table = InputTable(X)
        if (width := table.width) > (self._columns or MOST_COLUMNS):
            raise RequestError(f"X has {width} columns, expected at most {self._columns or MOST_COLUMNS}")
        self._width = max(self._width, width)
        self._labels.append(row_labels(y, table.rows, self._rows))
        for rows_ in table.sparse(RUN, self._rows):
            self._pending.append(rows_)
            self._held += rows_.values.size + rows_.rows
            self._rows += rows_.rows
            if self._held >= RUN:
                self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        rows, labels = join_rows(self._pending), np.concatenate(self._labels)
        chunk = SampleRows(np.zeros(rows.rows), labels[: rows.rows], np.diff(rows.offsets), rows.columns, rows.values)
        self._pieces += self._pipeline.parse([chunk])
        self._pending, self._labels, self._held = [], [labels[rows.rows :]], 0

    def _finish(self) -> None:
        self._flush()
        if not self._rows:
            raise RequestError(f"{self._pipeline.target.root}: no samples were added", "Call add() with at least one.")
        made: dict[str, Any] = {"kind": "python", "options": dict(self._options)}
        write_blocks(self._pipeline, self._pieces, self._columns or self._width, made, **self._options)


def create_samples(
    out: str, columns: int | None, target: str | None, options: Mapping[str, int], *, overwrite: bool
) -> AbstractContextManager[SamplesWriter]:
    """Create a sample set. See `Samples.create`."""
    return incremental_dataset(out, overwrite, lambda place: SamplesWriter(columns, target, options, place))
