"""Ingest labelled samples by row, out of core, from svmlight files or arrays.

The steps of `blocks.ingestion.pipeline` run in this process alone. The size of chunks does not change the result.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.append import new_dataset, require_replaceable
from blocks.arrays import map_arrays
from blocks.corpus.partition import bucket_count
from blocks.design.design_rows import MOST_COLUMNS
from blocks.design.formats import SvmlightFormat
from blocks.errors import RequestError
from blocks.files import disk_errors
from blocks.given_arrays import finite_floats, integers, require_ascending
from blocks.in_process import InProcessWorker
from blocks.ingestion.manifest import creation_record
from blocks.ingestion.messages import LineChunk, SpilledRows
from blocks.ingestion.pipeline import RUN, IngestionPipeline
from blocks.progress_bar import Bar, no_bar
from blocks.samples.samples import MOST_LABELS, Samples
from blocks.samples.worker import SampleRows, SamplesIngestWorker
from blocks.samples.writer import finish_samples
from blocks.stored_dataset import range_parts
from blocks.text_inputs import Progress, TextInput, input_facts, input_size, last_line_end

BLOCK_ENTRIES = 1 << 20


def ingest_samples(
    inputs: Sequence[str],
    out: str,
    *,
    columns_from: str | None = None,
    zero_based: bool = False,
    seed: int = 0,
    block_entries: int = BLOCK_ENTRIES,
    overwrite: bool = False,
    bar: Bar = no_bar,
) -> Samples:
    """Write a sample set from svmlight files.

    columns_from: sample set whose columns are used.
    zero_based: indices count from 0.
    Raises RequestError for bad input, and WorkFailed for a full disk; nothing is left behind then.
    """
    if not inputs:
        raise RequestError("no input file is given")
    for path in inputs:
        if Path(path).is_dir():
            raise RequestError(f"{path} is a directory; expected a file", "Name a file.")
        input_size(path)
    require_replaceable(Path(out), overwrite)
    known = Samples(columns_from).columns if columns_from else None
    made: dict[str, Any] = {
        "kind": "svmlight",
        "options": {"columns_from": columns_from, "zero_based": zero_based, "seed": seed},
        "inputs": [input_facts(path) for path in inputs],
    }
    form = SvmlightFormat(known or MOST_COLUMNS, 0 if zero_based else 1)
    total, options = sum(map(input_size, inputs)), (seed, block_entries, overwrite)
    return _make(out, total, lambda progress: _chunks(inputs, form, progress), known, made, options, bar)


def write_samples(
    out: str | Path,
    offsets: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    labels: np.ndarray,
    *,
    width: int | None = None,
    seed: int = 0,
    block_entries: int = BLOCK_ENTRIES,
    overwrite: bool = False,
) -> Samples:
    """Write a sample set from arrays, such as those of scipy.sparse.csr_array; lists are also accepted.

    offsets: integers (n+1,), start of each sample's entries.
    columns: integers (N,), ascending within a sample.
    values: (N,).
    labels: (n,).
    width: number of columns, None for the largest index plus 1.
    Raises RequestError if the arrays are invalid or inconsistent.
    """
    offsets, columns = integers("offsets", offsets), integers("columns", columns)
    values, labels = finite_floats("values", values), finite_floats("labels", labels)
    lengths = np.diff(offsets.astype(np.int64))
    if not offsets.size or offsets[0] != 0 or (lengths < 0).any() or not offsets[-1] == columns.size == values.size:
        raise RequestError(
            f"offsets must ascend from 0 to {columns.size}, the number of elements of columns and values"
        )
    if lengths.size != labels.size:
        raise RequestError(f"labels has {labels.size} elements, but there are {lengths.size} samples")
    if columns.size and not 0 <= columns.min() <= columns.max() < (width or MOST_COLUMNS):
        raise RequestError(
            f"columns must be from 0 to {(width or MOST_COLUMNS) - 1}, got {columns.min()} to {columns.max()}"
        )
    require_ascending("columns", offsets, columns)
    rows = SampleRows(np.zeros(labels.size), labels, lengths, columns, values)
    made = {"kind": "arrays", "options": {"seed": seed}}
    some = _cut(rows, np.asarray(offsets, np.int64))
    return write_rows(str(out), some, width, made, seed=seed, block_entries=block_entries, overwrite=overwrite)


def _chunks(inputs: Sequence[str], form: SvmlightFormat, progress: Progress) -> Iterator[LineChunk]:
    numbers = count()
    for path in inputs:
        source = TextInput(path, progress)
        for line, data in source.chunks(last_line_end):
            yield LineChunk(next(numbers), source.name, line, data, form)


def _cut(rows: SampleRows, offsets: np.ndarray) -> Iterator[SampleRows]:
    """Yield samples in chunks that are sorted separately.

    offsets: int64 (n+1,), start of each sample's entries.
    """
    for first, last in pairwise(range_parts(offsets, RUN).tolist()):
        some = slice(first, last), slice(offsets[first], offsets[last])
        yield SampleRows(*(array[some[0]] for array in rows[:3]), *(array[some[1]] for array in rows[3:]))


def write_rows(
    out: str,
    chunks: Iterable[SampleRows],
    columns: int | None,
    made: dict[str, Any],
    *,
    seed: int,
    block_entries: int,
    overwrite: bool,
) -> Samples:
    """Write a sample set from chunks of rows, which are numbered consecutively.

    columns: see `write_samples`.
    """
    return _make(out, None, lambda _: chunks, columns, made, (seed, block_entries, overwrite), no_bar)


def _make(
    out: str,
    total: int | None,
    chunks: Callable[[Progress], Iterable[LineChunk | SampleRows]],
    columns: int | None,
    made: dict[str, Any],
    options: tuple[int, int, bool],
    bar: Bar,
) -> Samples:
    """Write a sample set.

    total: size of the inputs in bytes.
    options: seed, approximate number of entries in a block, overwrite.
    """
    seed, block_entries, overwrite = options
    with new_dataset(out, overwrite) as target, disk_errors(Path(out)):
        pipeline = IngestionPipeline(InProcessWorker(SamplesIngestWorker(str(target.spill))), target, bar)
        with pipeline.reading(total) as progress:
            pieces: list[SpilledRows] = pipeline.parse(chunks(progress))
        if not any(piece.rows for piece in pieces):
            raise RequestError(f"{out}: the inputs have no samples")
        write_blocks(pipeline, pieces, columns, made, seed=seed, block_entries=block_entries)
    return Samples(out)


def write_blocks(
    pipeline: IngestionPipeline,
    pieces: Sequence[SpilledRows],
    columns: int | None,
    made: dict[str, Any],
    *,
    seed: int,
    block_entries: int,
) -> None:
    """Shuffle the rows into blocks, and write the blocks, the index and the manifest.

    columns: see `write_samples`.
    """
    target, facts = pipeline.target, pipeline.reports()[0]
    buckets = bucket_count(sum(piece.entries for piece in pieces), block_entries)
    blocks = pipeline.shuffle(pieces, buckets, seed, none_without="rows")
    shutil.rmtree(target.spill)
    labels = _different_labels(target.root, blocks)
    queries = {"queries": "passed over"} if facts.queries else {}
    finish_samples(target.root, blocks, labels, columns or facts.columns, creation_record(**made, **queries))


def _different_labels(root: Path, blocks: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the distinct labels, float64, ascending; empty if there are too many."""
    labels = np.empty(0)
    for entry in blocks:
        block_labels = map_arrays(root / entry["file"], entry["arrays"])["labels"]
        labels = np.unique(np.concatenate((labels, block_labels)))[: MOST_LABELS + 1]
    return labels if labels.size <= MOST_LABELS else np.empty(0)
