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
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.append import Target, new_dataset, require_replaceable
from blocks.arrow_tables import arrow_bytes
from blocks.control_groups import cores
from blocks.corpus.partition import DROPPED, bucket_count, rank_words
from blocks.directories import table_files
from blocks.encodings import require_encoding
from blocks.errors import RequestError
from blocks.ingestion.manifest import how_made
from blocks.ingestion.memory import Budget
from blocks.ingestion.messages import LinesChunk
from blocks.ingestion.names import Merged, WorkerNames, merge, write_places
from blocks.ingestion.pipeline import RUN, IngestionPipeline
from blocks.progress_bar import Bar, no_bar
from blocks.ratings.chunks import RatingsInput, RowsChunk
from blocks.ratings.formats import FormatOptions, check_options
from blocks.ratings.matrix import LARGEST, Matrix
from blocks.ratings.transposition import write_slices
from blocks.ratings.worker import SIDES, ParsedRatings, RatingsReading
from blocks.ratings.writer import finish_matrix
from blocks.sources import Opening, Progress, input_facts, size_of
from blocks.store import write_lines
from blocks.workers import Workers

BLOCK_ENTRIES = 1 << 20  # entries in a block of a large matrix
LEAST_BLOCKS = 16  # minimum number of blocks and of slices, and so of cells that can be processed in parallel
LEAST_ENTRIES = 1 << 14  # minimum entries in a block of a small matrix
_LONGEST_LINE = 1 << 20
_BYTES_OF_ENTRY = 80  # memory for each entry of a block while it is sorted and written
_OPTIONS = ("names_from", "items_from", "seed", "on_error", "encoding", "query")
_INTEGER = re.compile(r"0|[1-9][0-9]*")


@dataclass(frozen=True)
class RatingsRequest:
    """Options for ingesting ratings.

    names_from: matrix whose users and items are used; other ratings are left out. items_from: matrix whose items are
    used. low, high: allowed range of ratings. format_options: line format. encoding: None for UTF-8. query: query of a
    SQLite database. grid: numbers of blocks and slices, None to choose them from the number of entries.
    """

    inputs: Sequence[str]
    out: str
    names_from: str | None = None
    items_from: str | None = None
    low: float = -np.inf
    high: float = np.inf
    format_options: FormatOptions = field(default_factory=FormatOptions)
    encoding: str | None = None
    query: str | None = None
    on_error: str = "fail"
    seed: int = 0
    grid: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class OrderedNames:
    """Rows or columns of a matrix: names in order, and the position of each merged term among them."""

    names: list[str]
    place_of_term: np.ndarray  # uint32, or DROPPED
    merged: Merged


def ingest_ratings(
    request: RatingsRequest, *, workers: int | None = None, memory: int | None = None, bar: Bar = no_bar
) -> Matrix:
    """Write a matrix of ratings.

    workers: number of processes, None for all cores. memory: bytes for all processes, None for a quarter of the
    available memory; neither changes the result. bar: function that creates progress bars. Raises RequestError for bad
    input, and WorkFailed for a full disk or a dead worker; nothing is left behind then.
    """
    request = replace(request, inputs=table_files(request.inputs))
    check(request)
    count = workers or cores()
    budget = Budget(memory, count, arrow_bytes(request.inputs))
    base = base_of(request)
    with (
        new_dataset(request.out, request.overwrite) as target,
        Workers("blocks.ratings.worker:start", reading_of(request, budget, target), count) as pool,
    ):
        pipeline = IngestionPipeline(pool, target, bar)
        write_ratings(pipeline, request, budget, base, _read(pipeline, request))
    return Matrix(request.out)


def require_one_base(request: RatingsRequest) -> None:
    """Raise RequestError if the request names two matrices whose names are to be used."""
    if request.names_from and request.items_from:
        raise RequestError(
            "--names-from and --items-from are mutually exclusive",
            "Leave --items-from out: --names-from keeps the items, too.",
        )


def base_of(request: RatingsRequest) -> Matrix | None:
    """Return the dataset whose users and items are used, if any."""
    return Matrix(path) if (path := request.names_from or request.items_from) else None


def reading_of(request: RatingsRequest, budget: Budget, target: Target) -> RatingsReading:
    """Return the settings of workers for reading ratings."""
    room = budget.names_bytes(_BYTES_OF_ENTRY * RUN)
    low, high = max(request.low, -LARGEST), min(request.high, LARGEST)
    return RatingsReading(str(target.spill), low, high, request.on_error == "skip", room)


def write_ratings(
    pipeline: IngestionPipeline,
    request: RatingsRequest,
    budget: Budget,
    base: Matrix | None,
    parsed: Sequence[ParsedRatings],
) -> None:
    """Order the names, and write the matrix.

    base: see `base_of`. parsed: parsed chunks in input order.
    """
    reports: list[dict[str, WorkerNames]] = pipeline.reports()
    users, items = (merge([report[side] for report in reports], None) for side in SIDES)
    sides = (
        _name(users, base.row_names() if base and request.names_from else None),
        _name(items, base.column_names() if base else None),
    )
    block_bytes = _BYTES_OF_ENTRY * _block_entries(request, sum(each.piece.entries for each in parsed))
    budget.require_names(block_bytes, users.terms, items.terms)
    _write(pipeline, request, parsed, sides, base)


def check(request: RatingsRequest) -> None:
    """Raise RequestError if options contradict each other or an input does not exist."""
    if not request.inputs:
        raise RequestError("no input file is given")
    if request.on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error must be fail or skip, got {request.on_error!r}")
    require_one_base(request)
    if not request.low <= request.high:
        raise RequestError(f"--lowest {request.low:g} is above --highest {request.high:g}")
    check_options(request.format_options)
    require_encoding(request.encoding)
    for path in request.inputs:
        if Path(path).is_dir():
            raise RequestError(f"{path} is a directory; expected a file", f"Name its files, as in {path}/*.txt")
        size_of(path)
    require_replaceable(Path(request.out), request.overwrite)


def _read(pipeline: IngestionPipeline, request: RatingsRequest) -> list[ParsedRatings]:
    """Parse all inputs; return the answers in input order."""
    matrices: list[_MarketFile] = []
    with pipeline.reading(sum(map(size_of, request.inputs))) as progress:
        parsed: list[ParsedRatings] = pipeline.parse(_chunks(request, matrices, progress))
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


class _MarketFile(NamedTuple):
    """A MatrixMarket input. entries: number of entries in its header. first, last: range of its chunks (last
    exclusive)."""

    name: str
    entries: int
    first: int
    last: int


def _chunks(
    request: RatingsRequest, matrices: list[_MarketFile], progress: Progress
) -> Iterator[LinesChunk | RowsChunk]:
    """Yield the chunks of all inputs, and append an entry to `matrices` for each MatrixMarket file."""
    opening, numbers, last = Opening(request.encoding, _LONGEST_LINE, request.query), count(), -1
    for path in request.inputs:
        given, first = RatingsInput(path, request.format_options, opening, numbers, progress), last + 1
        for chunk in given.chunks:
            yield chunk
            last = chunk.number
        if given.entries is not None:
            matrices.append(_MarketFile(given.name, given.entries, first, last + 1))


def _name(merged: Merged, fixed: list[str] | None) -> OrderedNames:
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
) -> None:
    """Write blocks, slices, names, index and manifest."""
    target, (users, items) = pipeline.target, sides
    known = items.place_of_term != DROPPED
    entries = np.zeros(len(items.names), np.int64)
    entries[items.place_of_term[known]] = items.merged.tokens[known]
    total = int(entries.sum())
    if not total:
        raise RequestError(
            f"{', '.join(request.inputs) or request.out}: no rating is for {_kept(request)}",
            "Check that names are spelled the same: they are compared letter by letter.",
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
    blocks = pipeline.shuffle((each.piece for each in parsed), grid, request.seed, slice_bounds)
    slices, column_entries = write_slices(pipeline, blocks, slice_bounds)
    texts = {kind: write_lines(target.root, f"{kind}.txt", side.names) for kind, side in zip(SIDES, sides, strict=True)}
    shutil.rmtree(target.spill)
    finish_matrix(
        target.root,
        blocks=blocks,
        slices=slices,
        column_ids=column_ids,
        column_entries=column_entries,
        slice_bounds=slice_bounds,
        texts=texts,
        made=_made(request, parsed, blocks),
    )


def _kept(request: RatingsRequest) -> str:
    return f"a user and an item of {request.names_from}" if request.names_from else f"an item of {request.items_from}"


def _block_entries(request: RatingsRequest, entries: int) -> int:
    """Return the approximate number of a matrix's entries in the largest block or run."""
    return max(entries // (request.grid or grid_size(entries)), min(entries, RUN))


def grid_size(entries: int) -> int:
    """Return the number of blocks and slices, which is the same: a worker processes one cell, and all cells of a
    diagonal are processed in parallel."""
    return max(min(LEAST_BLOCKS, entries // LEAST_ENTRIES), bucket_count(entries, BLOCK_ENTRIES))


def _made(request: RatingsRequest, parsed: Sequence[ParsedRatings], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest entry that records how the matrix was made."""
    read = sum(each.piece.entries for each in parsed)
    written, duplicates = (sum(block[name] for block in blocks) for name in ("entries", "duplicates"))
    return how_made(
        kind="ratings",
        options={name: getattr(request, name) for name in _OPTIONS} | request.format_options._asdict(),
        inputs=[input_facts(path) for path in request.inputs],
        ratings=read,
        duplicates=duplicates,
        unknown=read - duplicates - written,
        skipped=sum(each.skipped for each in parsed),
        first_skipped=next((each.first_problem for each in parsed if each.first_problem), None),
    )
