"""Open the inputs of a design matrix: facts that are known in advance, and chunks for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.arrow_tables import ArrowTable, arrow_table, column_numbers
from blocks.delimited import DelimitedDialect, options_dialect
from blocks.design import npz_design, npz_members
from blocks.design.design import Design
from blocks.design.design_rows import MOST_COLUMNS
from blocks.design.formats import (
    LABEL,
    NUMBERS,
    Form,
    MatrixMarketFormat,
    SvmlightFormat,
    TableColumnChoice,
    TableFormat,
    lines_with_entries,
    market_header,
    table_format,
    table_header,
)
from blocks.design.messages import DenseRowsChunk
from blocks.design.request import DesignRequest
from blocks.errors import RequestError
from blocks.ingestion.messages import LineChunk
from blocks.ingestion.pipeline import Pool
from blocks.text_inputs import InputOpenOptions, Progress, TextInput, last_line_end

BYTES_OF_CHUNK = 16  # maximum memory of a worker for each byte of the chunk it works on
MAIN_BYTES_OF_COLUMN = 24  # memory for each column in the main process: counts, costs, and moments for the index


@dataclass(frozen=True)
class OpenedDesignInputs:
    """Opened inputs.

    chunks: chunks for workers.
    rows, columns: None if unknown before reading.
    names: column names, if any.
    y: float64 (n,), if it is separate from the rows.
    entries: expected number of lines with entries, if known.
    """

    chunks: Iterator[Any]
    rows: int | None = None
    columns: int | None = None
    names: Sequence[str] | None = None
    y: np.ndarray | None = None
    entries: int | None = None


def open_inputs(
    request: DesignRequest, size: int, room: int, progress: Progress, stack: ExitStack
) -> OpenedDesignInputs:
    """Open the inputs of any kind except PLINK.

    size: bytes of a chunk.
    room: maximum bytes of a row in memory, and of data for each column.
    stack: context that closes the inputs.
    Raises RequestError if a header exceeds the room.
    """
    longest = max(room // BYTES_OF_CHUNK, size)
    base = Design(request.columns_from) if request.columns_from else None

    def opening(path: str) -> TextInput:
        how = InputOpenOptions(request.encoding, longest, request.query)
        return TextInput(path, progress, **how._asdict(), databases=request.kind == "csv")

    if request.kind == "svmlight":
        form = SvmlightFormat(base.columns if base else MOST_COLUMNS, 0 if request.zero_based else 1)
        opened = ((opening(path), form) for path in request.inputs)
        return OpenedDesignInputs(_lines(opened, size), columns=base.columns if base else None)
    if request.kind == "csv":
        return _open_tables(request, base, size, progress, opening)
    (path,) = request.inputs
    if request.kind == "mtx":
        source = opening(path)
        header = market_header(source)
        _require_columns(source.name, header.columns, room)
        chunks = _lines([(source, header)], size)
        return OpenedDesignInputs(chunks, header.rows, header.columns, entries=header.entries)
    archive = stack.enter_context(npz_members.open_npz(path))
    shape = npz_design.design_shape(archive, path, room)
    _require_columns(path, shape.columns, room)
    return OpenedDesignInputs(
        npz_design.chunks(archive, path, shape, size, room, progress), shape.rows, shape.columns, y=shape.y
    )


def _require_columns(name: str, columns: int, room: int) -> None:
    if MAIN_BYTES_OF_COLUMN * columns > room:
        raise RequestError(
            f"the header of {name} says {columns:,} columns, but only {room // MAIN_BYTES_OF_COLUMN:,} fit in --memory",
            "Increase --memory; or correct the sizes in the file if they are wrong.",
        )


def _open_tables(
    request: DesignRequest, base: Design | None, size: int, progress: Progress, opening: Callable[[str], TextInput]
) -> OpenedDesignInputs:
    known = base.column_names() if base else None
    if base and known is None:
        raise RequestError(
            f"--columns-from {request.columns_from}: its columns have no names",
            "Use a dataset that was made from a table.",
        )
    choice = TableColumnChoice(request.target, request.drop, known)
    opened: list[tuple[TextInput | ArrowTable, TableFormat]] = []
    for path in request.inputs:
        if arrow := arrow_table(path, progress, request.query):
            opened.append((arrow, table_format(path, arrow.columns, DelimitedDialect(), ".", choice)))
        else:
            source = opening(path)
            opened.append((source, table_header(source, *_writing(request, path, source), choice)))
    (where, first), *others = opened
    for source_, table in others:
        if table.names != first.names:
            raise RequestError(
                f"{source_.name} and {where.name} have different columns",
                "All inputs must have the same columns in the same order.",
            )
    names = known or [name for name, place in zip(first.names, first.places, strict=True) if place >= 0]
    return OpenedDesignInputs(_lines(opened, size), columns=len(names), names=names)


def _writing(request: DesignRequest, path: str, source: TextInput) -> tuple[DelimitedDialect, str]:
    """Return the dialect and the decimal mark of a table."""
    if source.is_database:
        return DelimitedDialect(), "."
    return options_dialect(path, request.delimiter, request.quote, not request.no_header), request.decimal


def _lines(opened: Iterable[tuple[TextInput | ArrowTable, Form]], size: int) -> Iterator[LineChunk | DenseRowsChunk]:
    following = count()
    for source, given in opened:
        form = given
        if isinstance(source, ArrowTable):
            assert isinstance(form, TableFormat)
            yield from _cells(source, form, size, following)
            continue
        cut = form.dialect.whole_row if isinstance(form, TableFormat) else last_line_end
        for line, data in source.chunks(cut, size):
            yield LineChunk(next(following), source.name, line, data, form)
            if isinstance(form, MatrixMarketFormat) and form.is_dense:
                form = form._replace(first=form.first + lines_with_entries(data))


def _cells(source: ArrowTable, table: TableFormat, size: int, numbers: Iterator[int]) -> Iterator[DenseRowsChunk]:
    """Yield the rows of a Parquet or Arrow file for one group of columns after another."""
    by_place = {place: name for name, place in zip(source.columns, table.places, strict=True)}
    wanted = [by_place[place] for place in range(table.columns)]
    labels = [by_place[LABEL]] if LABEL in by_place else []
    source.require_numbers([*wanted, *labels], "Drop the column with --drop.")
    for first, last in pairwise(source.together(wanted)):
        names = wanted[first:last]
        labels = labels if first == 0 else []
        for batch in source.batches([*names, *labels], 2 * 8 * len(names), size):
            columns = list(map(column_numbers, batch.columns))
            y = columns.pop().astype(np.float64) if labels else np.empty(0)
            cells = np.empty((len(columns), batch.rows), np.result_type(*columns) if columns else np.float64)
            for place, column in enumerate(columns):
                cells[place] = column
            told = [" ".join(name.split()) for name in names]
            yield DenseRowsChunk(next(numbers), source.name, batch.first, cells.T, told, y, first)


def read_labels(pool: Pool, path: str) -> np.ndarray:
    """Read y, float64 (n,), from a .npy file or a text file with one number per line."""
    if Path(path).suffix != ".npy":
        chunks = TextInput(path).chunks(last_line_end)
        labels = [pool.ask(0, LineChunk(0, path, line, data, NUMBERS)) for line, data in chunks]
        return np.concatenate([np.empty(0), *labels])
    try:
        labels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{path} cannot be read as an array: {error}", "Write the file with numpy.save.") from error
    if labels.ndim != 1 or labels.dtype.kind not in "biuf":
        raise RequestError(
            f"{path}: expected an array with one number for each row, got dtype {labels.dtype} and shape {labels.shape}"
        )
    return labels.astype(np.float64)
