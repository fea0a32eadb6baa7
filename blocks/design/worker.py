"""Worker process of design ingestion: parse chunks, spill them by column, write blocks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from blocks import matrix_market
from blocks.compiler import compile_kernels
from blocks.design import dense_spill, genotypes, sparse_spill, svmlight, table_parser
from blocks.design.column_offsets import differences
from blocks.design.dense_spill import complete_block, join_blocks
from blocks.design.design import FLOATS, GENOTYPES, ONES, DenseDesignBlock, SparseDesignBlock
from blocks.design.design_rows import (
    WIDE_ENTRY,
    DenseDesignRows,
    SparseDesignRows,
    checked_values,
    narrow_entries,
    narrow_values,
    value_properties,
)
from blocks.design.formats import NUMBERS, MatrixMarketFormat, SvmlightFormat, TableFormat
from blocks.design.messages import (
    DenseRowsChunk,
    DesignReaderSettings,
    MatrixEntriesChunk,
    SpilledChunk,
    WriteBlockFromBed,
    WriteBlockFromDenseSpill,
    WriteBlockFromRuns,
    WriteBlockTask,
    moments_file,
    offsets_file,
)
from blocks.design.moments import block_moments, dense_moments, sparse_moments
from blocks.design.sparse_runs import SparseRunFile
from blocks.design.writer import write_block
from blocks.errors import RequestError
from blocks.ingestion.messages import LineChunk, WordCountsRequest
from blocks.ingestion.worker import MessageHandler
from blocks.ratings.transposition import ENTRY

_BYTES_OF_COUNT = 10  # memory for each column's count in a worker, while the array grows; twice in the main process
_TURNS = 4  # number of steps in which a block is converted to float32; one step would take too much memory
_NONE = np.empty(0, np.float32)
_READERS: dict[type, Callable[..., SparseDesignRows | DenseDesignRows]] = {
    SvmlightFormat: svmlight.read,
    MatrixMarketFormat: matrix_market.parse_market_lines,
    TableFormat: table_parser.read,
}


class DesignIngestWorker(MessageHandler):
    """Handles the messages of `blocks.design.messages`, and `WordCountsRequest`, whose answer is the path of its
    counts."""

    def __init__(self, reading: DesignReaderSettings) -> None:
        super().__init__(reading.spill)
        self._counts_bytes = reading.counts_bytes
        self._counts = np.zeros(0, np.uint32)
        self.tasks |= {
            LineChunk: self._parse,
            MatrixEntriesChunk: self._entries,
            DenseRowsChunk: self._cells,
            WordCountsRequest: self._report,
            WriteBlockFromRuns: self._write,
            WriteBlockFromDenseSpill: self._write,
            WriteBlockFromBed: self._write,
        }

    def _parse(self, chunk: LineChunk) -> SpilledChunk | np.ndarray:
        data = chunk.data if chunk.data.endswith(b"\n") else chunk.data + b"\n"
        rows = _READERS[type(chunk.form)](data, chunk.source, chunk.line, chunk.form)
        if isinstance(rows, SparseDesignRows):
            return self._leave_entries(chunk.number, rows)
        return rows.y if chunk.form == NUMBERS else self._leave_cells(chunk.number, rows)

    def _entries(self, chunk: MatrixEntriesChunk) -> SpilledChunk:
        def place(at: int) -> str:
            return f"row {chunk.rows[at] + 1}, column {chunk.columns[at] + 1} (counted from 1)"

        entries = np.empty(chunk.rows.size, WIDE_ENTRY)
        entries["row"], entries["column"] = chunk.rows, chunk.columns
        entries["value"] = checked_values(chunk.values, chunk.source, place)
        found = entries[entries["value"].astype(np.float32) != 0]
        return self._leave_entries(chunk.number, SparseDesignRows(found, entries.size, np.empty(0)))

    def _cells(self, chunk: DenseRowsChunk) -> SpilledChunk:
        def place(at: int) -> str:
            row, column = divmod(at, chunk.values.shape[1])
            which = repr(chunk.names[column]) if chunk.names else f"{column + 1} (counted from 1)"
            return f"row {chunk.row + row + 1}, column {which}"

        rows = DenseDesignRows(checked_values(chunk.values, chunk.source, place), chunk.y)
        return self._leave_cells(chunk.number, rows, chunk.first)

    def _leave_entries(self, number: int, rows: SparseDesignRows) -> SpilledChunk:
        columns = int(rows.entries["column"].max(initial=0)) + 1 if rows.entries.size else 0
        self._count(rows.entries["column"], columns)
        path, entries = self.spill / f"run-{number}", narrow_entries(rows.entries)
        run = SparseRunFile(str(path), entries.dtype == WIDE_ENTRY, entries.size, sparse_spill.write_run(path, entries))
        return SpilledChunk(rows.records, columns, rows.y, value_properties(rows.entries["value"]), run, rows.queries)

    def _leave_cells(self, number: int, rows: DenseDesignRows, first: int = 0) -> SpilledChunk:
        panel = dense_spill.write_panel(self.spill / f"panel-{number}", narrow_values(rows.cells), first)
        records = 0 if first else len(rows.cells)
        return SpilledChunk(records, panel.last, rows.y, value_properties(rows.cells), panel)

    def _count(self, columns: np.ndarray, width: int) -> None:
        if width > self._counts.size:
            if _BYTES_OF_COUNT * width > self._counts_bytes:
                raise RequestError(
                    f"{width} columns are too many for --memory",
                    "Increase --memory, or reduce --workers.",
                )
            grown = np.zeros(max(width, self._counts.size * 5 // 4), np.uint32)
            grown[: self._counts.size] = self._counts
            self._counts = grown
        sparse_spill.count_columns(columns, self._counts)

    def _report(self, _: WordCountsRequest) -> str:
        path = self.spill / f"counts-{os.getpid()}"
        path.write_bytes(self._counts.data)
        del self._counts
        return str(path)

    def _write(self, message: WriteBlockTask) -> dict[str, Any]:
        block, offsets = _gathered(message)
        file = self.spill / moments_file(message.number)
        file.write_bytes(np.array(block_moments(block, message.rows)).data)
        if offsets.any():
            (self.spill / offsets_file(message.number)).write_bytes(offsets.data)
        return write_block(self.root, message.number, block)


def _gathered(message: WriteBlockTask) -> tuple[SparseDesignBlock | DenseDesignBlock, np.ndarray]:
    """Return the columns of a block in their final form, and their offsets, float64 (W,) or (0,)."""
    if isinstance(message, WriteBlockFromBed):
        variants = slice(message.first, message.last)
        return genotypes.read_variants(message.bed, message.shape, variants, message.individuals), np.empty(0)
    assert isinstance(message, WriteBlockFromDenseSpill | WriteBlockFromRuns)
    width = message.last - message.first
    if message.form in (GENOTYPES, ONES):
        columns = _columns(message, slice(0, width), np.dtype(message.form if message.form == GENOTYPES else FLOATS))
        return (
            complete_block(columns) if isinstance(columns, np.ndarray) else columns._replace(values=_NONE)
        ), np.empty(0)
    kind = (
        dense_spill.panel_dtype(message.panels)
        if isinstance(message, WriteBlockFromDenseSpill)
        else sparse_spill.kind_of(message.segments)
    )
    step = -(-width // (_TURNS if kind == np.float64 else 1))
    some = [slice(first, min(first + step, width)) for first in range(0, width, step)]
    found = [differences(_columns(message, span, kind), message.rows, message.given(span)) for span in some]
    return join_blocks([block for block, _ in found]), np.concatenate([offsets for _, offsets in found])


def _columns(
    message: WriteBlockFromDenseSpill | WriteBlockFromRuns, span: slice, kind: np.dtype[Any]
) -> np.ndarray | SparseDesignBlock:
    """Return some columns of a block, (W, n), or a sparse block, with values of the given dtype."""
    first, last, dense = message.first + span.start, message.first + span.stop, message.form in (FLOATS, GENOTYPES)
    if isinstance(message, WriteBlockFromDenseSpill):
        values = dense_spill.gather_panels(message.panels, first, last, message.rows, kind)
        return values if dense else dense_spill.sparse_entries(values)
    counts = message.counts[span]
    try:
        if dense:
            return sparse_spill.gather_dense(message.segments, first, counts, message.rows, kind)
        return sparse_spill.gather_sparse(message.segments, first, counts)
    except RequestError as error:
        raise RequestError(f"{message.source}: {error.what}", error.remedy) from None


def warm_up() -> None:
    """Run every kernel once on tiny input, to compile it."""
    svmlight.read(b"1 1:1\n", "", 1, SvmlightFormat())
    matrix_market.parse_market_lines(b"1 1 1\n", "", 1, MatrixMarketFormat(1, 1, 1, 3))
    table_parser.read(b"1\n", "", 1, NUMBERS)
    entries = np.zeros(1, ENTRY)
    sparse_spill.count_columns(entries["column"], np.zeros(1, np.uint32))
    sparse_spill.warm_up()
    offsets = np.array([0, 1])
    sparse_moments(offsets, np.ones(1, np.float32), 1)
    for dtype in (FLOATS, GENOTYPES):
        dense_moments(np.zeros((1, 1), dtype), offsets, np.zeros(1, np.uint32))


def load() -> None:
    """Compile all kernels that any input may need."""
    compile_kernels(warm_up)


def start(reading: DesignReaderSettings) -> DesignIngestWorker:
    """Return the message handler for `blocks.workers.WorkerPool`."""
    load()
    return DesignIngestWorker(reading)
