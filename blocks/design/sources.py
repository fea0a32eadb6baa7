"""The inputs of a design matrix, opened: what is known of them beforehand, and their chunks for the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from blocks.design import npz_design, npz_members
from blocks.design.design import Design
from blocks.design.formats import NUMBERS, Form, Svmlight, market_header, table_header
from blocks.design.messages import LinesChunk
from blocks.design.request import DesignRequest
from blocks.errors import RequestError
from blocks.sources import Cut, Source, read_whole, whole_line, whole_row
from blocks.workers import Workers

Progress = Callable[[int], object]


@dataclass(frozen=True)
class Opened:
    """chunks: to be dealt to workers. rows, columns: None if only the chunks tell. names: of the columns, if they have
    any. y: float64 (n,), if it does not come with the rows. entries: lines of entries there must be, if that is known.
    """

    chunks: Iterator[Any]
    rows: int | None = None
    columns: int | None = None
    names: Sequence[str] | None = None
    y: np.ndarray | None = None
    entries: int | None = None


def open_inputs(request: DesignRequest, size: int, progress: Progress, until: ExitStack) -> Opened:
    """Open the inputs of any kind but PLINK. size: bytes of a chunk. until: when they may be closed."""
    base = Design(request.columns_from) if request.columns_from else None
    if request.kind == "svmlight":
        form = Svmlight(base.columns) if base else Svmlight()
        opened = ((Source(path, progress), form) for path in request.inputs)
        return Opened(_lines(opened, whole_line, size), columns=base.columns if base else None)
    if request.kind == "csv":
        return _open_tables(request, base, size, progress)
    (path,) = request.inputs
    if request.kind == "mtx":
        source = Source(path, progress)
        header = market_header(source)
        chunks = _lines([(source, header)], whole_line, size)
        return Opened(chunks, header.rows, header.columns, entries=header.entries)
    archive = until.enter_context(npz_members.opened(path))
    shape = npz_design.shape_of(archive, path)
    return Opened(npz_design.chunks(archive, path, shape, size, progress), shape.rows, shape.columns, y=shape.y)


def _open_tables(request: DesignRequest, base: Design | None, size: int, progress: Progress) -> Opened:
    known = base.column_names() if base else None
    if base and known is None:
        raise RequestError(f"the columns of {request.columns_from} have no names", "Take a design made of a CSV file.")
    sources = [Source(path, progress) for path in request.inputs]
    tables = [table_header(source, request.delimiter, request.target, request.drop, known) for source in sources]
    first = tables[0]
    for source, table in zip(sources, tables, strict=True):
        if table.names != first.names:
            raise RequestError(
                f"{source.name}, line 1: other columns than in {sources[0].name}", "All inputs need the same header."
            )
    names = known or [name for name, place in zip(first.names, first.places, strict=True) if place >= 0]
    chunks = _lines(zip(sources, tables, strict=True), whole_row, size)
    return Opened(chunks, columns=len(names), names=names)


def _lines(opened: Iterable[tuple[Source, Form]], cut: Cut, size: int) -> Iterator[LinesChunk]:
    numbers = count()
    for source, form in opened:
        for line, data in source.chunks(cut, size):
            yield LinesChunk(next(numbers), source.name, line, data, form)


def read_labels(pool: Workers, path: str) -> np.ndarray:
    """float64 (n,): the numbers of a .npy file, or of a text file with one on each line."""
    if Path(path).suffix != ".npy":
        return pool.ask(0, LinesChunk(0, path, 1, read_whole(path), NUMBERS))
    try:
        labels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{path} cannot be read as an array: {error}", "Write it by numpy.save.") from error
    if labels.ndim != 1 or labels.dtype.kind not in "biuf":
        raise RequestError(f"{path}: an array of {labels.dtype}, {labels.shape}", "One number for each row is needed.")
    return labels.astype(np.float64)
