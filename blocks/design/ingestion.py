"""Out-of-core ingestion of a design matrix: from rows to blocks of columns.

    read      the main process cuts inputs into chunks; workers parse them and spill them by column
    choose    the form of the blocks is the smaller of dense and sparse; columns are assigned to blocks
    write     the columns of a block are gathered from all chunks, and written with their moments

PLINK files are stored by column already: they are read only while writing, and covariates follow in blocks of their
own. The result does not depend on which worker does what, nor on the size of chunks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.append import DatasetTarget, new_dataset
from blocks.arrow_tables import arrow_bytes
from blocks.control_groups import core_count
from blocks.design.dense_spill import DenseSpillFile, write_panel
from blocks.design.design import FLOATS, GENOTYPES, MIXED, ONES, SPARSE, Design
from blocks.design.design_inputs import (
    BYTES_OF_CHUNK,
    MAIN_BYTES_OF_COLUMN,
    OpenedDesignInputs,
    open_inputs,
    read_labels,
)
from blocks.design.design_rows import MOST_ROWS, ValueProperties, narrow_values, not_finite_error
from blocks.design.messages import (
    DesignReaderSettings,
    SpilledChunk,
    WriteBlockFromBed,
    WriteBlockFromDenseSpill,
    WriteBlockFromRuns,
    WriteBlockTask,
    moments_file,
    offsets_file,
)
from blocks.design.request import PYTHON, DesignRequest, check_design_request
from blocks.design.sparse_runs import SparseRunFile, segments
from blocks.design.writer import finish_design, write_index
from blocks.errors import RequestError
from blocks.ingestion.manifest import creation_record
from blocks.ingestion.memory_budget import MemoryBudget
from blocks.ingestion.pipeline import IngestionPipeline
from blocks.input_directories import table_files
from blocks.plurals import count_of
from blocks.progress_bar import Bar, no_bar
from blocks.stored_dataset import range_parts, write_lines
from blocks.text_inputs import input_facts, input_size
from blocks.workers import WorkerPool

_LARGEST_CHUNK, _SMALLEST_CHUNK = 16 << 20, 1 << 16
_BYTES_OF_COLUMN = 72  # memory for each column of a block being written, besides entries: offsets, moments twice
_ITEM = {SPARSE: 8, ONES: 4, FLOATS: 4, GENOTYPES: 1}  # bytes of an entry, or of a cell of a dense form


class ParsedDesign(NamedTuple):
    """A parsed design before its blocks are written.

    names: column names, if any.
    y: float64 (n,), if known.
    counts: uint32 (p,), number of entries in each column, if the entries are in runs.
    covariates: the columns after the genotypes.
    kept: int64 (n,), input rows to keep, None for all.
    left_out: number of rows left out.
    strangers: number of individuals with covariates but without genotypes.
    """

    rows: int
    columns: int
    names: Sequence[str] | None
    y: np.ndarray | None
    form: str
    spilled: Sequence[SpilledChunk] = ()
    counts: np.ndarray | None = None
    covariates: DenseSpillFile | None = None
    kept: np.ndarray | None = None
    left_out: int = 0
    strangers: int = 0


def ingest_design(
    request: DesignRequest, *, workers: int | None = None, memory: int | None = None, bar: Bar = no_bar
) -> Design:
    """Write a design matrix.

    workers: number of processes, None for all cores.
    memory: bytes for all processes, None for a quarter of the available memory; neither changes the result.
    bar: function that creates progress bars.
    Raises RequestError for bad input, and WorkFailed for a full disk or a dead worker; nothing is left behind then.
    """
    if request.kind == "csv":
        request = replace(request, inputs=table_files(request.inputs))
    check_design_request(request)
    count = workers or core_count()
    budget = MemoryBudget(memory, count, arrow_bytes(request.inputs) if request.kind == "csv" else 0)
    room = count_buffer_bytes(request, budget)
    with new_dataset(request.out, request.overwrite) as target:
        with WorkerPool("blocks.design.worker:start", DesignReaderSettings(str(target.spill), room), count) as pool:
            pipeline = IngestionPipeline(pool, target, bar)
            read = (_read_plink if request.kind == "plink" else _read)(pipeline, request, room)
            _check_labels(request, read)
            bounds, blocks = write_blocks(pipeline, request, budget, read)
        finish_files(request, target, read, bounds, blocks)
    return Design(request.out)


def count_buffer_bytes(request: DesignRequest, budget: MemoryBudget) -> int:
    """Return how many bytes a worker has for column counts, which is also the size of its buffer for chunks."""
    return budget.names_bytes(2 * request.block_bytes) // 2


def write_blocks(
    pipeline: IngestionPipeline, request: DesignRequest, budget: MemoryBudget, read: ParsedDesign
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Write the columns.

    Returns the first column of each block, int64 (B+1,), and the manifest entries.
    """
    bounds = _block_bounds(read, request.block_bytes)
    budget.require_room(_writing_bytes(read, bounds), MAIN_BYTES_OF_COLUMN * read.columns)
    return bounds, pipeline.write("writing", list(_messages(request, read, bounds)), "block")


def _read(pipeline: IngestionPipeline, request: DesignRequest, room: int) -> ParsedDesign:
    """Parse the inputs and spill them by column."""
    size = min(max(room // BYTES_OF_CHUNK, _SMALLEST_CHUNK), _LARGEST_CHUNK)
    total = None if request.kind == "npz" else sum(map(input_size, request.inputs))  # unknown, as arrays are compressed
    with ExitStack() as stack, pipeline.reading(total) as progress:
        opened = open_inputs(request, size, room, progress, stack)
        spilled: list[SpilledChunk] = pipeline.parse(opened.chunks)
    rows, columns = _shape(request, opened, spilled)
    y = opened.y
    if request.kind == "svmlight" or (request.kind == "csv" and request.target):
        y = np.concatenate([piece.y for piece in spilled])
    elif request.kind != "csv" and request.target:
        y = read_labels(pipeline.pool, request.target)
    return with_block_form(pipeline, rows, columns, opened.names, y, spilled)


def with_block_form(
    pipeline: IngestionPipeline,
    rows: int,
    columns: int,
    names: Sequence[str] | None,
    y: np.ndarray | None,
    spilled: Sequence[SpilledChunk],
) -> ParsedDesign:
    """Return the parsed design, with the form of its blocks and, for sparse rows, the number of entries in each
    column.
    """
    sparse = not spilled or isinstance(spilled[0].spill, SparseRunFile)
    counts = _counts(pipeline.reports(), columns) if sparse else None
    return ParsedDesign(rows, columns, names, y, _form(rows, columns, spilled), spilled, counts)


def _read_plink(pipeline: IngestionPipeline, request: DesignRequest, room: int) -> ParsedDesign:
    from blocks.design.genotypes import bed_reader, read_individuals

    bed_reader()
    found = read_individuals(request.inputs[0], labelled=request.target is None, missing=request.skip_missing)
    rows, y = len(found.individuals), read_labels(pipeline.pool, request.target) if request.target else found.y
    read = ParsedDesign(rows, len(found.variants), found.variants, y, GENOTYPES)
    if y is not None and y.size != rows:
        return read  # the caller reports this as an error
    complete = np.ones(rows, bool) if y is None or not request.skip_missing else ~np.isnan(y)
    covariates = None
    if request.covariates:
        from blocks.design.covariates import read_covariates

        covariates = read_covariates(request.covariates, found.individuals, room)
        complete &= covariates.complete(request.skip_missing)
    if not complete.any():
        raise RequestError(
            f"{request.inputs[0]}: no individual has both y and covariates",
            "Check that the files use the same names for individuals.",
        )
    kept = np.flatnonzero(complete)
    if kept.size < rows:
        left = None if y is None else y[kept]
        read = read._replace(rows=kept.size, y=left, kept=kept, left_out=rows - kept.size)
    if not covariates:
        return read
    panel = write_panel(
        pipeline.target.spill / "covariates", narrow_values(covariates.values[kept]), len(found.variants)
    )
    names = [*found.variants, *covariates.names]
    return read._replace(columns=len(names), names=names, form=MIXED, covariates=panel, strangers=covariates.strangers)


def _shape(request: DesignRequest, opened: OpenedDesignInputs, spilled: Sequence[SpilledChunk]) -> tuple[int, int]:
    """Return the numbers of rows and columns.

    Raises RequestError if one is 0, or contradicts the header.
    """
    where, records = ", ".join(request.inputs), sum(piece.records for piece in spilled)
    if opened.entries not in (None, records):
        raise RequestError(
            f"{where}: the header says {opened.entries} entries, but {records} follow",
            "The file is truncated, or its header is wrong.",
        )
    rows = records if opened.rows is None else opened.rows
    columns = max((piece.columns for piece in spilled), default=0) if opened.columns is None else opened.columns
    if not rows or not columns:
        raise RequestError(
            f"{where}: {count_of(rows, 'row')} and {count_of(columns, 'column')}; at least one of each is required"
        )
    if rows > MOST_ROWS:
        raise RequestError(f"{where}: {rows} rows; at most {MOST_ROWS} are possible", "Split the input.")
    return rows, columns


def _counts(files: Sequence[str], columns: int) -> np.ndarray:
    """Return the sum of the workers' counts, uint32 (p,)."""
    counts = np.zeros(columns, np.uint32)
    for file in files:
        found = np.fromfile(file, np.uint32, columns)
        counts[: found.size] += found
    return counts


def _form(rows: int, columns: int, spilled: Sequence[SpilledChunk]) -> str:
    """Return the smallest form; dense if sizes are equal."""
    facts = ValueProperties(
        sum(piece.facts.entries for piece in spilled),
        all(piece.facts.ones for piece in spilled),
        all(piece.facts.small for piece in spilled),
    )
    dense, sparse = GENOTYPES if facts.small else FLOATS, ONES if facts.ones else SPARSE
    return dense if rows * columns * _ITEM[dense] <= facts.entries * _ITEM[sparse] else sparse


def _check_labels(request: DesignRequest, read: ParsedDesign) -> None:
    if read.y is None:
        return
    where = request.target or request.inputs[0]
    if read.y.size != read.rows:
        raise RequestError(
            f"{where} has {read.y.size} y values, but {request.inputs[0]} has {read.rows} rows",
            "Pass one value of y for each row, in the order of the rows.",
        )
    if not np.isfinite(read.y).all():
        row = int(np.argmin(np.isfinite(read.y)))
        raise not_finite_error(f"{where}, label {row + 1}", read.y[row])


def _block_bounds(read: ParsedDesign, block_bytes: int) -> np.ndarray:
    """Return the first column of each block, int64 (B+1,); the bounds depend only on the design."""
    if read.form in (SPARSE, ONES) and read.counts is not None:
        cost = np.zeros(read.columns + 1, np.int64)
        np.multiply(read.counts, _ITEM[read.form], out=cost[1:], dtype=np.int64)
        cost[1:] += 8  # bytes of an offset
        return range_parts(np.cumsum(cost, out=cost), block_bytes)
    firsts = [np.arange(first, last, max(block_bytes // cells, 1)) for first, last, cells in _stretches(read)]
    return np.append(np.concatenate(firsts), read.columns)


def _stretches(read: ParsedDesign) -> Iterator[tuple[int, int, int]]:
    """Yield (first, end, bytes) for each range of columns with the same form: bytes of one column during writing."""
    genotypes = read.covariates.first if read.covariates else read.columns
    yield 0, genotypes, read.rows * (_ITEM[GENOTYPES] if read.form in (GENOTYPES, MIXED) else _ITEM[FLOATS])
    if read.covariates:
        yield genotypes, read.columns, read.rows * _ITEM[FLOATS]


def _writing_bytes(read: ParsedDesign, bounds: np.ndarray) -> int:
    """Return the maximum number of bytes that a worker holds while it writes a block."""
    widths = np.diff(bounds)
    if read.form in (SPARSE, ONES) and read.counts is not None:
        entries = np.add.reduceat(read.counts, bounds[:-1], dtype=np.int64)
        return int((2 * _ITEM[SPARSE] * entries + _BYTES_OF_COLUMN * widths).max())
    cells = np.empty(widths.size, np.int64)
    for first, _, each in _stretches(read):
        cells[bounds[:-1] >= first] = each
    return int((widths * (2 * cells + _BYTES_OF_COLUMN)).max())


def _messages(request: DesignRequest, read: ParsedDesign, bounds: np.ndarray) -> Iterator[WriteBlockTask]:
    """Yield the messages for writing all blocks."""
    given = Design(request.columns_from).offsets if request.columns_from else None
    runs = [piece.spill for piece in read.spilled if isinstance(piece.spill, SparseRunFile)]
    panels = [piece.spill for piece in read.spilled if isinstance(piece.spill, DenseSpillFile)]
    records = [piece.records if request.kind == "svmlight" else 0 for piece in read.spilled]  # others have row numbers
    places = np.concatenate(([0], np.cumsum(records)))[:-1].astype(np.int64).tolist()
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        column_offsets = None if given is None else given[first:last]
        block = (number, first, last, read.rows, read.form, column_offsets)
        if read.covariates and first >= read.covariates.first:
            yield WriteBlockFromDenseSpill(*block[:4], FLOATS, column_offsets, [read.covariates])
        elif request.kind == "plink":
            individuals, variants = (
                read.rows + read.left_out,
                read.covariates.first if read.covariates else read.columns,
            )
            yield WriteBlockFromBed(*block, request.files()[0], (individuals, variants), read.kept)
        elif panels:
            yield WriteBlockFromDenseSpill(*block, panels)
        else:
            assert read.counts is not None
            found = list(segments(runs, places, first, last))
            yield WriteBlockFromRuns(*block, ", ".join(request.inputs), found, read.counts[first:last])


def finish_files(
    request: DesignRequest, target: DatasetTarget, read: ParsedDesign, bounds: np.ndarray, blocks: list[dict[str, Any]]
) -> None:
    """Write the remaining files and the manifest."""
    moments = [target.spill / moments_file(number) for number in range(len(blocks))]
    y = np.empty(0) if read.y is None else read.y
    index = write_index(target.root, y, read.columns, moments, bounds, _offsets(target.spill, read.columns, bounds))
    texts = {"columns": write_lines(target.root, "columns.txt", read.names)} if read.names else {}
    shutil.rmtree(target.spill)
    finish_design(
        target.root,
        rows=read.rows,
        labels=read.y is not None,
        form=read.form,
        first_column=0 if request.kind in ("npz", PYTHON) else 1,
        index=index,
        blocks=blocks,
        texts=texts,
        made=_made(request, read),
    )


def _offsets(spill: Path, columns: int, bounds: np.ndarray) -> np.ndarray | None:
    """Return the offsets that workers found, float64 (p,); None if all are 0."""
    found: np.ndarray | None = None
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        if (file := spill / offsets_file(number)).exists():
            found = np.zeros(columns) if found is None else found
            found[first:last] = np.fromfile(file)
    return found


def _made(request: DesignRequest, read: ParsedDesign) -> dict[str, Any]:
    """Return the manifest entry that records how the design was made."""
    others = {"kind", "inputs", "out", "block_bytes", "overwrite"}
    given = {each.name: value for each in fields(request) if (value := getattr(request, each.name)) != each.default}
    return creation_record(
        kind=request.kind,
        options={name: value for name, value in given.items() if name not in others}
        | {"block_bytes": request.block_bytes},
        inputs=[input_facts(path) for path in request.files()],
        **({"without_y": read.left_out} if read.left_out else {}),
        **({"without_genotypes": read.strangers} if read.strangers else {}),
        **({"queries": "passed over"} if any(piece.queries for piece in read.spilled) else {}),
    )
