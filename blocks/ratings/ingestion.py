"""Ingestion of ratings out of core: a sparse matrix of users and items, row by row and column by column.

    read     the main process cuts inputs into chunks; workers parse them, number the names they meet, and spill
    name     the names of all workers are merged and ordered; items get their ranks
    sort     runs of chunks are sorted by the bucket that their users go to
    rows     the buckets of a block are gathered from all runs, shuffled and written
    columns  the entries of a slice are gathered from all blocks and written

Which worker does what has no influence on the result. Of several ratings of an item by a user, the last counts.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.append import Target, new_dataset, require_replaceable
from blocks.arrow_tables import arrow_bytes
from blocks.corpus.division import DROPPED, blocks_of_buckets, bucket_count, rank_words
from blocks.corpus.vocabulary import Merged, merge
from blocks.directories import table_files
from blocks.encodings import require_encoding
from blocks.errors import RequestError
from blocks.ingestion.memory import Budget
from blocks.ingestion.messages import LinesChunk, Report
from blocks.progress_bar import Bar, no_bar
from blocks.ratings.chunks import Input, RowsChunk
from blocks.ratings.formats import FormatOptions, check_options
from blocks.ratings.matrix import LARGEST, Matrix
from blocks.ratings.transposition import write_slices
from blocks.ratings.worker import (
    SIDES,
    EntryRun,
    RatingsReading,
    RatingsSpilled,
    RowsToWrite,
)
from blocks.ratings.writer import finish_matrix
from blocks.sources import Opening, input_facts, size_of
from blocks.store import write_lines
from blocks.workers import Workers, cores

BLOCK_ENTRIES = 1 << 20  # of a large matrix
LEAST_BLOCKS = 16  # blocks and slices: so many cells can be worked on at once, none sharing a row or a column
LEAST_ENTRIES = 1 << 14  # of a block of a small matrix
_RUN_ENTRIES = 1 << 20
_LONGEST_LINE = 1 << 20
_BYTES_OF_ENTRY = 80  # of a block, in memory while it is sorted and written
_OPTIONS = ("names_from", "items_from", "seed", "on_error", "encoding", "query")
_INTEGER = re.compile(r"0|[1-9][0-9]*")


@dataclass(frozen=True)
class RatingsRequest:
    """What is asked for. names_from: a matrix whose users and items are kept; ratings of others are left out.
    items_from: one whose items alone are.

    low, high: the least and the largest rating there may be. format_options: how the lines are written. encoding: of
    the inputs, None for UTF-8. query: of a SQLite database. grid: blocks and slices, None to choose by the entries.
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
class Names:
    """The rows or columns of a matrix: their names in order, and the place of each of the merged terms among them."""

    names: list[str]
    place_of_term: np.ndarray  # uint32, or DROPPED
    merged: Merged


def ingest_ratings(
    request: RatingsRequest, *, workers: int | None = None, memory: int | None = None, bar: Bar = no_bar
) -> Matrix:
    """Make a matrix of ratings, as requested.

    workers: processes, None for all cores. memory: bytes for the whole process tree, None for a quarter of what is
    available; neither changes the result. bar: makes progress bars. Raises RequestError for bad input, WorkFailed for
    a full disk or a worker that died; nothing is left behind then.
    """
    request = replace(request, inputs=table_files(request.inputs))
    check(request)
    count = workers or cores()
    budget = Budget(memory, count, arrow_bytes(request.inputs))
    room = budget.names_bytes(_BYTES_OF_ENTRY * _RUN_ENTRIES)
    base = Matrix(path) if (path := request.names_from or request.items_from) else None
    with new_dataset(request.out, request.overwrite) as target:
        low, high = max(request.low, -LARGEST), min(request.high, LARGEST)
        reading = RatingsReading(str(target.spill), low, high, request.on_error == "skip", room)
        with Workers("blocks.ratings.worker:start", reading, count) as pool:
            spilled, reports = _read(pool, request, bar)
            sides = {
                "rows": _name(reports, "rows", base.row_names() if base and request.names_from else None),
                "columns": _name(reports, "columns", base.column_names() if base else None),
            }
            block_bytes = _BYTES_OF_ENTRY * _block_entries(request, spilled)
            budget.require_names(block_bytes, *(side.merged.terms for side in sides.values()))
            _write(pool, request, target, spilled, sides, base, bar)
    return Matrix(request.out)


def check(request: RatingsRequest) -> None:
    """Raise RequestError if the options make no sense together or an input is not there."""
    if not request.inputs:
        raise RequestError("no input is given")
    if request.on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error {request.on_error}: write fail or skip")
    if request.names_from and request.items_from:
        raise RequestError("--names-from and --items-from exclude each other", "The former keeps the items, too.")
    if not request.low <= request.high:
        raise RequestError(f"--lowest {request.low:g} is above --highest {request.high:g}")
    check_options(request.format_options)
    require_encoding(request.encoding)
    for path in request.inputs:
        if Path(path).is_dir():
            raise RequestError(f"{path} is a directory", f"Name its files, as in {path}/*.txt")
        size_of(path)
    require_replaceable(Path(request.out), request.overwrite)


def _read(pool: Workers, request: RatingsRequest, bar: Bar) -> tuple[list[RatingsSpilled], list[Any]]:
    """Have all inputs parsed; returns what was spilled, in the order of the inputs, and the names of each worker."""
    progress = bar("reading", sum(map(size_of, request.inputs)) or None, "B")
    matrices: list[_MarketFile] = []
    spilled = pool.map_numbered(_chunks(request, matrices, progress.update))
    progress.close()
    for matrix in matrices:
        found = sum(piece.entries + piece.skipped for piece in spilled[matrix.first : matrix.last])
        if found != matrix.entries:
            raise RequestError(
                f"{matrix.name}: the header tells of {matrix.entries} entries, but {found} follow it",
                "The file is cut short, or its header is wrong.",
            )
    if not sum(piece.entries for piece in spilled):
        skipped = sum(piece.skipped for piece in spilled)
        told = f" ({skipped} lines were skipped)" if skipped else ""
        raise RequestError(f"{', '.join(request.inputs)}: there are no ratings{told}")
    return spilled, [answer for worker in range(len(pool)) if (answer := pool.ask(worker, Report())) is not None]


class _MarketFile(NamedTuple):
    """A MatrixMarket input: the entries that its header tells of, and its first chunk and the one after its last."""

    name: str
    entries: int
    first: int
    last: int


def _chunks(
    request: RatingsRequest, matrices: list[_MarketFile], progress: Callable[[int], object]
) -> Iterator[LinesChunk | RowsChunk]:
    """Chunks of all inputs; appends an entry to `matrices` for each MatrixMarket file."""
    opening, numbers, last = Opening(request.encoding, _LONGEST_LINE, request.query), count(), -1
    for path in request.inputs:
        given, first = Input(path, request.format_options, opening, numbers, progress), last + 1
        for chunk in given.chunks:
            yield chunk
            last = chunk.number
        if given.entries is not None:
            matrices.append(_MarketFile(given.name, given.entries, first, last + 1))


def _name(reports: list[Any], side: str, fixed: list[str] | None) -> Names:
    """Put names in order: by number if all are whole numbers, else alphabetically; or as they are fixed."""
    merged = merge([report[side] for report in reports], None)
    names = fixed or sorted(merged.terms, key=_by_number if all(map(_INTEGER.fullmatch, merged.terms)) else None)
    place_of = dict(zip(names, range(len(names)), strict=True))
    places = np.fromiter((place_of.get(term, DROPPED) for term in merged.terms), np.uint32, len(merged.terms))
    return Names(names, places, merged)


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _write(
    pool: Workers,
    request: RatingsRequest,
    target: Target,
    spilled: list[RatingsSpilled],
    sides: dict[str, Names],
    base: Matrix | None,
    bar: Bar,
) -> None:
    """Write blocks, slices, names, the index and the manifest."""
    columns = sides["columns"]
    known = columns.place_of_term != DROPPED
    entries = np.zeros(len(columns.names), np.int64)
    entries[columns.place_of_term[known]] = columns.merged.tokens[known]
    total = int(entries.sum())
    if not total:
        raise RequestError(
            f"{', '.join(request.inputs)}: no rating is of {_kept(request)}",
            "Names are compared letter by letter.",
        )
    grid = request.grid or grid_size(total)
    if base:
        column_ids, slice_bounds = np.array(base.index.column_ids), np.array(base.index.slice_bounds)
    else:
        column_ids, slice_bounds = rank_words(entries, min(grid, entries.size), request.seed)
    rank_of = np.empty(entries.size, np.uint32)
    rank_of[column_ids] = np.arange(entries.size, dtype=np.uint32)
    ranks = np.full(known.size, DROPPED, np.uint32)
    ranks[known] = rank_of[columns.place_of_term[known]]
    maps = {
        "rows": _write_maps(target.spill, "rows", sides["rows"].merged, sides["rows"].place_of_term),
        "columns": _write_maps(target.spill, "columns", columns.merged, ranks),
    }
    blocks = _write_blocks(pool, request, target, spilled, maps, grid, slice_bounds, bar)
    slices, column_entries = write_slices(pool, target, blocks, slice_bounds, bar)
    texts = {side: write_lines(target.root, f"{side}.txt", sides[side].names) for side in SIDES}
    shutil.rmtree(target.spill)
    finish_matrix(
        target.root,
        blocks=blocks,
        slices=slices,
        column_ids=column_ids,
        column_entries=column_entries,
        slice_bounds=slice_bounds,
        texts=texts,
        made=_made(request, spilled, blocks),
    )


def _kept(request: RatingsRequest) -> str:
    return f"a user and an item of {request.names_from}" if request.names_from else f"an item of {request.items_from}"


def _block_entries(request: RatingsRequest, spilled: list[RatingsSpilled]) -> int:
    """Entries of the largest block or run, about."""
    entries = sum(piece.entries for piece in spilled)
    return max(entries // (request.grid or grid_size(entries)), min(entries, _RUN_ENTRIES))


def grid_size(entries: int) -> int:
    """Blocks, and as many slices: each cell is worked on by one worker, and all cells of a diagonal at once."""
    return max(min(LEAST_BLOCKS, entries // LEAST_ENTRIES), bucket_count(entries, BLOCK_ENTRIES))


def _write_maps(spill: Path, side: str, merged: Merged, place_of_term: np.ndarray) -> dict[int, str]:
    """Write, for each worker, the uint32 place of each of its names; returns the path of each worker's file."""
    paths = {}
    for worker, numbers in merged.numbers.items():
        path = spill / f"{side}-map-{worker}"
        path.write_bytes(place_of_term[numbers].data)
        paths[worker] = str(path)
    return paths


def _write_blocks(
    pool: Workers,
    request: RatingsRequest,
    target: Target,
    spilled: list[RatingsSpilled],
    maps: dict[str, dict[int, str]],
    buckets: int,
    slice_bounds: np.ndarray,
    bar: Bar,
) -> list[dict[str, Any]]:
    """Sort runs and write the blocks; returns their entries."""
    runs = list(_runs(request, target, spilled, maps, buckets))
    progress = bar("writing", len(runs) + buckets, "block")
    bounds: dict[str, np.ndarray] = {}
    for run, answer in pool.map_unordered(runs):
        bounds[run.path] = answer
        progress.update(1)
    sizes = np.sum([np.diff(bounds[run.path]) for run in runs], axis=0)
    messages = [
        RowsToWrite(
            str(target.root),
            number,
            [(run.path, int(bounds[run.path][first]), int(bounds[run.path][last])) for run in runs],
            slice_bounds,
            request.seed,
        )
        for number, (first, last) in enumerate(pairwise(blocks_of_buckets(sizes)))
    ]
    entries = pool.map_numbered(messages, lambda: progress.update(1))
    progress.close()
    return entries


def _runs(
    request: RatingsRequest,
    target: Target,
    spilled: list[RatingsSpilled],
    maps: dict[str, dict[int, str]],
    buckets: int,
) -> Iterator[EntryRun]:
    """Consecutive pieces, about `_RUN_ENTRIES` entries together."""
    pieces: list[tuple[str, int, int, str, str]] = []
    size, numbers = 0, count()
    for number, piece in enumerate(spilled):
        path = str(target.spill / f"entries-{piece.worker}")
        rows, columns = (maps[side][piece.worker] for side in SIDES)
        pieces.append((path, piece.offset, piece.entries, rows, columns))
        size += piece.entries
        if size >= _RUN_ENTRIES or number == len(spilled) - 1:
            yield EntryRun(str(target.spill / f"run-{next(numbers)}"), pieces, request.seed, buckets)
            pieces, size = [], 0


def _made(request: RatingsRequest, spilled: list[RatingsSpilled], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """How the matrix was made: nothing in it depends on the time, the workers or the memory."""
    from importlib.metadata import version

    read = sum(piece.entries for piece in spilled)
    written, duplicates = (sum(block[name] for block in blocks) for name in ("entries", "duplicates"))
    return {
        "ooc": version("ooc"),
        "command": "ingest",
        "kind": "ratings",
        "options": {name: getattr(request, name) for name in _OPTIONS} | request.format_options._asdict(),
        "inputs": [input_facts(path) for path in request.inputs],
        "ratings": read,
        "duplicates": duplicates,
        "unknown": read - duplicates - written,
        "skipped": sum(piece.skipped for piece in spilled),
        "first_skipped": next((piece.first_problem for piece in spilled if piece.first_problem), None),
    }
