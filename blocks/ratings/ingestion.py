"""Out-of-core ingestion of ratings: the steps of `blocks.ingestion.pipeline` for a sparse matrix of users and items.

    read      workers parse chunks and assign ids to names; an entry is a rating
    name      the names of all workers are merged and ordered, and items are ranked
    shuffle   users are distributed over blocks, with their entries
    columns   the entries of a slice are gathered from all blocks and written

The result does not depend on which worker does what. If a user rates an item several times, the last rating counts.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.append import DatasetTarget, new_dataset, require_replaceable
from blocks.arrow_tables import arrow_bytes
from blocks.control_groups import core_count
from blocks.corpus.held_out import held_out_path
from blocks.corpus.partition import DROPPED, bucket_count, rank_words
from blocks.errors import RequestError
from blocks.ingestion.manifest import creation_record
from blocks.ingestion.memory_budget import MemoryBudget
from blocks.ingestion.messages import LineChunk
from blocks.ingestion.name_merging import MergedNames, WorkerNameFiles, merge_names, write_places
from blocks.ingestion.pipeline import RUN, IngestionPipeline
from blocks.input_directories import table_files
from blocks.kinds import open_any
from blocks.progress_bar import Bar, no_bar
from blocks.ratings.hold_out import write_hashes
from blocks.ratings.input_chunks import RatingsInput, TableRatingsChunk
from blocks.ratings.matrix import LARGEST, Matrix
from blocks.ratings.matrix_writer import finish_matrix
from blocks.ratings.request import RatingsRequest, base_matrix, check_request
from blocks.ratings.times import require_one_kind
from blocks.ratings.transposition import write_slices
from blocks.ratings.worker import SIDES, ParsedRatings, RatingsReaderSettings
from blocks.stored_dataset import MANIFEST, write_lines
from blocks.text_inputs import InputOpenOptions, Progress, input_facts, input_size
from blocks.workers import WorkerPool

BLOCK_ENTRIES = 1 << 20  # entries in a block of a large matrix
LEAST_BLOCKS = 16  # minimum number of blocks and of slices, and so of cells that can be processed in parallel
LEAST_ENTRIES = 1 << 14  # minimum entries in a block of a small matrix
_LONGEST_LINE = 1 << 20
_OPTIONS = ("names_from", "items_from", "seed", "on_error", "encoding", "query")
_INTEGER = re.compile(r"0|[1-9][0-9]*")


@dataclass(frozen=True)
class OrderedNames:
    """Rows or columns of a matrix: names in order, and the position of each merged term among them."""

    names: list[str]
    place_of_term: np.ndarray  # uint32, or DROPPED
    merged: MergedNames


def ingest_ratings(
    request: RatingsRequest, *, workers: int | None = None, memory: int | None = None, bar: Bar = no_bar
) -> Matrix:
    """Write a matrix of ratings.

    workers: number of processes, None for all cores. memory: bytes for all processes, None for a quarter of the
    available memory; neither changes the result. bar: function that creates progress bars. Raises RequestError for bad
    input, and WorkFailed for a full disk or a dead worker; nothing is left behind then.
    """
    request = replace(request, inputs=table_files(request.inputs))
    check_request(request)
    with new_dataset(request.out, request.overwrite) as target:
        _ingest(request, target, None, workers, memory, bar)
    return Matrix(request.out)


def ingest_holding_out(
    request: RatingsRequest, *, workers: int | None = None, memory: int | None = None, bar: Bar = no_bar
) -> tuple[Matrix, Matrix]:
    """Write two matrices with the same users and items, the second with the ratings that `request.hold_out` holds out.

    The inputs are read once. The first matrix appears last, so that both are complete once it exists; a held-out matrix
    that an interrupted call left is replaced. Parameters and exceptions: see `ingest_ratings`.
    """
    request, out = replace(request, inputs=table_files(request.inputs)), Path(request.out)
    check_request(request)
    if base := request.names_from or request.items_from:
        option = "names" if request.names_from else "items"
        raise RequestError(f"--hold-out cannot be used with --{option}-from {base}", "Omit --hold-out.")
    held_out = held_out_path(out)
    overwrite = request.overwrite or _is_leftover(held_out, request)
    require_replaceable(held_out, overwrite)
    with new_dataset(request.out, request.overwrite) as target, new_dataset(str(held_out), overwrite) as held:
        _ingest(request, target, held, workers, memory, bar)
    return Matrix(out), Matrix(held_out)


def _is_leftover(held_out: Path, request: RatingsRequest) -> bool:
    """Return whether a held-out dataset was left by an interrupted run of this request."""
    if Path(request.out).exists() or not (held_out / MANIFEST).is_file():
        return False
    made = open_any(held_out).manifest["made"]
    return made.get("options") == _options(request, held=True) and made["inputs"] == list(
        map(input_facts, request.inputs)
    )


def _ingest(
    request: RatingsRequest,
    target: DatasetTarget,
    held: DatasetTarget | None,
    workers: int | None,
    memory: int | None,
    bar: Bar,
) -> None:
    count = workers or core_count()
    budget = MemoryBudget(memory, count, arrow_bytes(request.inputs))
    base, reading = base_matrix(request), reading_of(request, budget, target)
    if held:
        reading = reading._replace(hold_out=request.hold_out, held=str(held.spill))
    with WorkerPool("blocks.ratings.worker:start", reading, count) as pool:
        pipeline = IngestionPipeline(pool, target, bar)
        parsed = _read(pipeline, request)
        write_ratings(pipeline, request, budget, base, parsed, IngestionPipeline(pool, held, bar) if held else None)


def reading_of(request: RatingsRequest, budget: MemoryBudget, target: DatasetTarget) -> RatingsReaderSettings:
    """Return the settings of workers for reading ratings."""
    room = budget.names_bytes(request.entry_bytes * RUN)
    low, high = max(request.low, -LARGEST), min(request.high, LARGEST)
    return RatingsReaderSettings(str(target.spill), low, high, request.on_error == "skip", room)


def write_ratings(
    pipeline: IngestionPipeline,
    request: RatingsRequest,
    budget: MemoryBudget,
    base: Matrix | None,
    parsed: Sequence[ParsedRatings],
    held: IngestionPipeline | None = None,
) -> None:
    """Order the names, and write the matrix.

    base: see `base_matrix`. parsed: parsed chunks in input order. held: pipeline of the held-out matrix, if any.
    """
    reports: list[dict[str, WorkerNameFiles]] = pipeline.reports()
    users, items = (merge_names([report[side] for report in reports], None) for side in SIDES)
    sides = (
        _name(users, base.row_names() if base and request.names_from else None),
        _name(items, base.column_names() if base else None),
    )
    block_bytes = request.entry_bytes * _block_entries(request, sum(each.piece.entries for each in parsed))
    budget.require_names(block_bytes, users.terms, items.terms)
    _write(pipeline, request, parsed, sides, base, held)


def _read(pipeline: IngestionPipeline, request: RatingsRequest) -> list[ParsedRatings]:
    """Parse all inputs; return the answers in input order."""
    matrices: list[_MatrixMarketInput] = []
    with pipeline.reading(sum(map(input_size, request.inputs))) as progress:
        parsed: list[ParsedRatings] = pipeline.parse(_chunks(request, matrices, progress))
    require_one_kind(each.first_times for each in parsed)
    for matrix in matrices:
        found = sum(each.piece.entries + each.skipped for each in parsed[matrix.first : matrix.last])
        if found != matrix.entries:
            raise RequestError(
                f"{matrix.name}: the header says {matrix.entries} entries, but {found} follow",
                "The file is truncated, or its header is wrong.",
            )
    if not any(each.piece.entries for each in parsed):
        skipped = sum(each.skipped for each in parsed)
        told = f" ({skipped} bad lines were skipped)" if skipped else ""
        raise RequestError(f"{', '.join(request.inputs)}: no ratings found{told}")
    return parsed


class _MatrixMarketInput(NamedTuple):
    """A MatrixMarket input. entries: number of entries in its header. first, last: range of its chunks (last
    exclusive)."""

    name: str
    entries: int
    first: int
    last: int


def _chunks(
    request: RatingsRequest, matrices: list[_MatrixMarketInput], progress: Progress
) -> Iterator[LineChunk | TableRatingsChunk]:
    """Yield the chunks of all inputs, and append an entry to `matrices` for each MatrixMarket file."""
    opening, numbers, last = InputOpenOptions(request.encoding, _LONGEST_LINE, request.query), count(), -1
    for path in request.inputs:
        given, first = RatingsInput(path, request.format_options, opening, numbers, progress), last + 1
        for chunk in given.chunks:
            yield chunk
            last = chunk.number
        if given.entries is not None:
            matrices.append(_MatrixMarketInput(given.name, given.entries, first, last + 1))


def _name(merged: MergedNames, fixed: list[str] | None) -> OrderedNames:
    """Order names: numerically if all are integers, else alphabetically; fixed names keep their order."""
    names = fixed or sorted(merged.terms, key=_by_number if all(map(_INTEGER.fullmatch, merged.terms)) else None)
    place_of = dict(zip(names, range(len(names)), strict=True))
    places = np.fromiter((place_of.get(term, DROPPED) for term in merged.terms), np.uint32, len(merged.terms))
    return OrderedNames(names, places, merged)


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _write(
    pipeline: IngestionPipeline,
    request: RatingsRequest,
    parsed: Sequence[ParsedRatings],
    sides: tuple[OrderedNames, OrderedNames],
    base: Matrix | None,
    held: IngestionPipeline | None,
) -> None:
    """Write blocks, slices, names, index and manifest, also of the held-out matrix."""
    target, (users, items) = pipeline.target, sides
    known = items.place_of_term != DROPPED
    entries = np.zeros(len(items.names), np.int64)
    entries[items.place_of_term[known]] = items.merged.tokens[known]
    total = int(entries.sum())
    if not total:
        raise RequestError(
            f"{', '.join(request.inputs) or request.out}: no rating belongs to {_kept(request)}",
            "Check the spelling of the names, which must match exactly.",
        )
    grid = request.grid or grid_size(total)
    if base:
        column_ids, slice_bounds = np.array(base.index.column_ids), np.array(base.index.slice_bounds)
    else:
        column_ids, slice_bounds = rank_words(entries, min(grid, entries.size), request.seed)
    rank_of = np.empty(entries.size, np.uint32)
    rank_of[column_ids] = np.arange(entries.size, dtype=np.uint32)
    ranks = np.full(known.size, DROPPED, np.uint32)
    ranks[known] = rank_of[items.place_of_term[known]]
    write_places(target.spill, "rows", users.merged, users.place_of_term)
    write_places(target.spill, "columns", items.merged, ranks)
    if held:
        write_hashes(target.spill, users.names, [items.names[item] for item in column_ids.tolist()], request.seed)
    blocks = pipeline.shuffle((each.piece for each in parsed), grid, request.seed, slice_bounds)
    made, columns = _made(request, parsed, blocks), RankedMatrixColumns(column_ids, slice_bounds)
    if held:
        if not (blocks_held := [block["held"] for block in blocks if block["held"]]):
            last = request.hold_out and request.hold_out.last
            remedy = "Each user keeps one rating, and no user has more." if last else "Use a larger fraction."
            raise RequestError("--hold-out: no rating was selected to be held out", remedy)
        options = {name: _options(request, held=name == "held") for name in ("train", "held")}
        _finish(held, blocks_held, columns, sides, made | {"options": options["held"]})
        blocks, made = [block["train"] for block in blocks], made | {"options": options["train"]}
    _finish(pipeline, blocks, columns, sides, made)


class RankedMatrixColumns(NamedTuple):
    """Columns of a matrix by rank. ids, slice_bounds: see `MatrixIndex`."""

    ids: np.ndarray
    slice_bounds: np.ndarray


def _finish(
    pipeline: IngestionPipeline,
    blocks: list[dict[str, Any]],
    columns: RankedMatrixColumns,
    sides: tuple[OrderedNames, OrderedNames],
    made: dict[str, Any],
) -> None:
    """Write slices, names, index and manifest after the blocks."""
    root = pipeline.target.root
    slices, column_entries = write_slices(pipeline, blocks, columns.slice_bounds)
    texts = {kind: write_lines(root, f"{kind}.txt", side.names) for kind, side in zip(SIDES, sides, strict=True)}
    shutil.rmtree(pipeline.target.spill)
    finish_matrix(
        root,
        blocks=blocks,
        slices=slices,
        column_ids=columns.ids,
        column_entries=column_entries,
        slice_bounds=columns.slice_bounds,
        texts=texts,
        made=made,
    )


def _kept(request: RatingsRequest) -> str:
    return f"a user and an item of {request.names_from}" if request.names_from else f"an item of {request.items_from}"


def _block_entries(request: RatingsRequest, entries: int) -> int:
    """Return the approximate number of entries in the largest block of a matrix, or in a sorted run."""
    return max(entries // (request.grid or grid_size(entries)), min(entries, RUN))


def grid_size(entries: int) -> int:
    """Return the number of blocks and slices, which is the same: a worker processes one cell, and all cells of a
    diagonal are processed in parallel."""
    return max(min(LEAST_BLOCKS, entries // LEAST_ENTRIES), bucket_count(entries, BLOCK_ENTRIES))


def _made(request: RatingsRequest, parsed: Sequence[ParsedRatings], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest entry that records how the matrix was made."""
    read = sum(each.piece.entries for each in parsed)
    written = sum(side["entries"] for block in blocks for side in _sides_of(block))
    duplicates = sum(block["duplicates"] for block in blocks)
    return creation_record(
        kind="ratings",
        options=_options(request, held=None),
        inputs=[input_facts(path) for path in request.inputs],
        ratings=read,
        duplicates=duplicates,
        unknown=read - duplicates - written,
        skipped=sum(each.skipped for each in parsed),
        first_skipped=next((each.first_problem for each in parsed if each.first_problem), None),
    )


def _sides_of(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the manifest entries of a block: of two if entries are held out."""
    return [side for side in (block["train"], block["held"]) if side] if "train" in block else [block]


def _options(request: RatingsRequest, *, held: bool | None) -> dict[str, Any]:
    """Return the options recorded in the manifest. held: whether the dataset is a held-out one; None if there is
    none."""
    options = {name: getattr(request, name) for name in _OPTIONS} | request.format_options._asdict()
    if held is None or request.hold_out is None:
        return options
    return options | {"hold_out": request.hold_out.told, "held": held}
