"""Split a dataset into shards, one for each rank of a ring. Shards have different documents but the same words.

    deal      the main process assigns documents to shards, and numbers them in order
    write     workers read each block of the whole once, and write each shard's part of it
    finish    slices, texts, index, data about the whole dataset, and manifest of each shard are written

The result does not depend on which worker does what. See `blocks.shards.whole_dataset` for the data about the whole
dataset.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, compress, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.append import DatasetTarget, require_replaceable
from blocks.arrays import ArrayPieces, map_arrays, write_arrays
from blocks.control_groups import core_count
from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.corpus.partition import least_slices, rank_words
from blocks.corpus.writer import RankedWords, finish_corpus_files
from blocks.design.design import Design
from blocks.design.row_shards import split_design
from blocks.errors import RequestError, WorkFailed
from blocks.files import allocate, checksum, publish_directory
from blocks.ingestion.memory_budget import MemoryBudget
from blocks.ingestion.pipeline import IngestionPipeline
from blocks.kinds import open_any, open_grid
from blocks.progress_bar import Bar, no_bar
from blocks.ratings.matrix import Matrix
from blocks.ratings.matrix_writer import finish_matrix
from blocks.ratings.transposition import write_slices
from blocks.samples.samples import Samples
from blocks.samples.shards import split_samples
from blocks.shards.document_distribution import Runs, deal_documents
from blocks.shards.whole_dataset import RankedColumns, columns_hash, ranked_columns
from blocks.stored_dataset import check_file, write_lines
from blocks.workers import WorkerPool

RANK = "{rank}"  # placeholder in a path for the index of the shard
_CHUNK = 1 << 20  # number of documents processed at a time
_BYTES_OF_SAMPLE = 80  # memory for each sample of a block while it is split


class SplitSettings(NamedTuple):
    """Settings of all workers.

    whole: path of the whole dataset.
    places: file of uint64 (D,), the index of each document in its shard.
    rank_of: uint32 (V,), the new rank of each word or column.
    """

    whole: str
    targets: list[DatasetTarget]
    places: str
    rank_of: np.ndarray
    slice_bounds: np.ndarray


class BlockShare(NamedTuple):
    """The part of a block that a shard gets.

    number: index of the shard's block.
    """

    shard: int
    number: int
    runs: Runs


@dataclass
class SplitBlockTask:
    """A block of the whole dataset to split; the answer has a shard and its block entry for each share."""

    number: int
    shares: list[BlockShare] = field(repr=False)


def make_shards(
    data: str | Path,
    out: str,
    shards: int,
    *,
    workers: int | None = None,
    memory: int | None = None,
    overwrite: bool = False,
    bar: Bar = no_bar,
) -> list[Dataset | Matrix | Samples | Design]:
    """Split a dataset into shards and return them.

    Shards of a design matrix or sample set are ranges of rows, see `blocks.design.row_shards` and
    `blocks.samples.shards`.

    out: a directory for `shard-0`, `shard-1`, ..., which appears when all are complete; or a path with `{rank}` for
        each shard, all of which then appear one after another.
    workers: number of processes, None for all cores.
    memory: bytes for all processes, None for a quarter of the available memory; neither changes the result.
    Raises RequestError for an invalid request, and WorkFailed for damaged data or a full disk; nothing is left behind
    then.
    """
    whole = open_any(Path(data))
    if any(path.resolve() == whole.path.resolve() for path in (Path(out), *_paths(out, shards))):
        raise RequestError(f"the output {out} is the dataset itself", "Choose another name for the shards.")
    with _new_shards(out, shards, overwrite) as targets:
        if isinstance(whole, Design):
            _require_sound(whole)
            split_design(whole, targets, bar)
        elif isinstance(whole, Samples):
            _require_sound(whole)
            split_samples(whole, targets, bar)
        else:
            _split(whole, targets, workers, memory, bar)
    return [open_any(path) for path in _paths(out, shards)]


def ingest_shards(
    ingest: Callable[[str], object],
    out: str,
    shards: int,
    *,
    workers: int | None = None,
    memory: int | None = None,
    overwrite: bool = False,
    bar: Bar = no_bar,
) -> list[Dataset | Matrix]:
    """Make shards of a dataset that `ingest(path)` writes; the dataset is deleted after the split. See
    `make_shards`."""
    with _new_shards(out, shards, overwrite) as targets:
        whole = targets[0].spill / "whole"
        ingest(str(whole))
        _split(open_grid(whole), targets, workers, memory, bar)
    return [open_grid(path) for path in _paths(out, shards)]


def _paths(out: str, shards: int) -> list[Path]:
    pattern = out if RANK in out else f"{out}/shard-{RANK}"
    return [Path(pattern.replace(RANK, str(number))) for number in range(shards)]


@contextmanager
def _new_shards(out: str, shards: int, overwrite: bool) -> Iterator[list[DatasetTarget]]:
    """Yield the paths where shards are written; they are published when all are complete."""
    if shards < 1:
        raise RequestError(f"--shards must be at least 1, got {shards}")
    places = _paths(out, shards) if RANK in out else [Path(out)]
    for path in places:
        require_replaceable(path, overwrite)
    with ExitStack() as stack:
        roots = [stack.enter_context(publish_directory(path, overwrite=overwrite)) for path in places]
        if RANK not in out:
            roots = _paths(str(roots[0]), shards)
        for root in roots:
            (root / "spill").mkdir(parents=True)
            (root / "blocks").mkdir()
        yield [DatasetTarget(root, root / "spill") for root in roots]


def _split(
    whole: Dataset | Matrix, targets: list[DatasetTarget], workers: int | None, memory: int | None, bar: Bar
) -> None:
    _require_sound(whole)
    processes = workers or core_count()
    MemoryBudget(memory, processes).names_bytes(_BYTES_OF_SAMPLE * int(whole.index.cells.sum(axis=1).max()))
    shares = deal_documents(whole, len(targets))
    spill = targets[0].spill
    owners = _owners(whole, shares, spill / "owners", len(targets))
    counts = _number(owners, spill / "places", len(targets))
    columns = _columns(whole, len(targets))
    told = _told(whole, columns, spill / "owners")
    splitting = SplitSettings(
        str(whole.path), targets, str(spill / "places"), _rank_of(whole, columns), np.array(columns.slice_bounds)
    )
    with WorkerPool("blocks.shards.worker:start", splitting, processes) as pool:
        blocks = _write_blocks(pool, shares, len(targets), bar)
        for number in reversed(
            range(len(targets))
        ):  # the first shard is published last: its spill directory has files that all shards need
            target = targets[number]
            texts = _write_texts(whole, target.root, owners, number)
            numbers = ArrayPieces("uint64", int(counts[number]), _numbers(owners, number))
            arrays: dict[str, np.ndarray | ArrayPieces] = {"numbers": numbers, "frequencies": columns.frequencies}
            entry = write_arrays(target.root, "whole.h5", arrays)
            shard = {"number": number, "shards": len(targets), "whole": told, "index": entry}
            common = {"texts": texts, "made": whole.manifest["made"], "shard": shard}
            if isinstance(whole, Matrix):
                _finish_matrix(pool, target, blocks[number], columns, common, bar)
            else:
                _finish_corpus(whole, target, blocks[number], columns, common)


def _require_sound(whole: Dataset | Matrix | Samples | Design) -> None:
    """Raise WorkFailed unless all files are undamaged, except blocks (workers check them) and slices (not used)."""
    if "shard" in whole.manifest:
        raise RequestError(f"{whole.path} is already a shard", "Split the whole dataset that it was made from.")
    grid = ("blocks", "slices") if isinstance(whole, Dataset | Matrix) else ()
    others = {entry["file"] for kind in grid for entry in whole.manifest[kind]}
    for path, entry in whole.files():
        if entry["file"] not in others:
            require_whole(whole, path, entry)


def require_whole(whole: Dataset | Matrix | Samples | Design, path: Path, entry: dict[str, Any]) -> None:
    """Raise WorkFailed if a file of a dataset is damaged, which the shards would not reveal."""
    if problem := check_file(path, entry):
        raise WorkFailed(f"{whole.path} is damaged: {problem}", f"List all damaged files with: ooc verify {whole.path}")


def _owners(whole: Dataset | Matrix, shares: list[dict[int, Runs]], path: Path, shards: int) -> np.ndarray:
    """Memory-map a file with the shard of each document.

    For a matrix: the shard of each line of rows.txt, which is the first shard if the row has no entries.
    """
    size = sum(1 for _ in _lines(whole, "rows")) if isinstance(whole, Matrix) else whole.documents
    dtype = np.min_scalar_type(shards)
    allocate(path, dtype.itemsize * size)
    owners = np.memmap(path, dtype, "r+")
    for number, of_block in enumerate(shares):
        block = whole.block(number)
        numbers = block.documents if isinstance(block, TokenBlock) else block.rows
        for shard, runs in of_block.items():
            for first, last in runs:
                owners[numbers[first:last]] = shard
    owners.flush()
    return owners


def _number(owners: np.ndarray, path: Path, shards: int) -> np.ndarray:
    """Write the index of each document in its shard, uint64 (D,).

    Returns int64 (shards,), the number of documents of each shard.
    """
    counts = np.zeros(shards, np.int64)
    with path.open("wb") as file:
        for some in _chunks(owners):
            here = np.bincount(some, minlength=shards)
            places = np.empty(some.size, np.uint64)
            before = counts - np.cumsum(here) + here  # index in its shard minus position in this chunk's sorted order
            places[np.argsort(some, kind="stable")] = np.arange(some.size) + np.repeat(before, here)
            file.write(places.data)
            counts += here
    return counts


def _chunks(owners: np.ndarray) -> Iterator[np.ndarray]:
    return (owners[first : first + _CHUNK] for first in range(0, owners.size, _CHUNK))


def _numbers(owners: np.ndarray, shard: int) -> Iterator[np.ndarray]:
    """Yield the documents of a shard as indices in the whole dataset, uint64, ascending."""
    for number, some in enumerate(_chunks(owners)):
        yield (number * _CHUNK + np.flatnonzero(some == shard)).astype(np.uint64)


def _columns(whole: Dataset | Matrix, shards: int) -> RankedColumns:
    """Return the columns of the whole dataset, divided into more slices if a ring needs more than the dataset has."""
    columns, least = ranked_columns(whole), least_slices(shards)
    if whole.slice_count >= least:
        return columns
    frequencies = np.empty_like(columns.frequencies)
    frequencies[columns.ids] = columns.frequencies
    made = whole.manifest["made"]
    ids, bounds = rank_words(frequencies, least, made.get("options", made).get("seed", 0))
    return RankedColumns(ids, bounds, frequencies[ids])


def _rank_of(whole: Dataset | Matrix, columns: RankedColumns) -> np.ndarray:
    """Return the rank in `columns` of the word at each rank of the whole dataset, uint32 (V,)."""
    rank_of_id = np.empty(columns.ids.size, np.uint32)
    rank_of_id[columns.ids] = np.arange(columns.ids.size, dtype=np.uint32)
    return rank_of_id[ranked_columns(whole).ids]


def _told(whole: Dataset | Matrix, columns: RankedColumns, owners: Path) -> dict[str, Any]:
    """Return the "shard" manifest entry for each shard."""
    names = ("rows", "entries", "values") if isinstance(whole, Matrix) else ("documents", "tokens")
    counts = {name: whole.manifest[name] for name in names}
    return {
        "identity": whole.identity,
        **counts,
        "hash": columns_hash(whole, columns),
        "dealt": checksum(owners),
    }


def _write_blocks(pool: WorkerPool, shares: list[dict[int, Runs]], shards: int, bar: Bar) -> list[list[dict[str, Any]]]:
    """Split all blocks of the whole dataset.

    Returns the block entries of each shard.
    """
    following = [count() for _ in range(shards)]
    messages = [
        SplitBlockTask(
            number, [BlockShare(shard, next(following[shard]), runs) for shard, runs in sorted(of_block.items())]
        )
        for number, of_block in enumerate(shares)
    ]
    progress = bar("splitting", len(messages), "block")
    answers = pool.map_numbered(messages, lambda: progress.update(1))
    progress.close()
    entries: list[list[dict[str, Any]]] = [[] for _ in range(shards)]
    for shard, entry in chain.from_iterable(answers):
        entries[shard].append(entry)
    return entries


def _lines(whole: Dataset | Matrix, text: str) -> Iterator[str]:
    """Yield the lines of a text file of the whole dataset."""
    path = whole.path / whole.manifest["texts"][text]["file"]
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line[:-1]


def _write_texts(whole: Dataset | Matrix, root: Path, owners: np.ndarray, shard: int) -> dict[str, dict[str, Any]]:
    """Write all names of columns, and the names of a shard's documents or rows.

    Returns their manifest entries.
    """
    texts = {}
    for name in whole.manifest["texts"]:
        lines = _lines(whole, name)
        if name in ("documents", "rows"):
            lines = compress(lines, chain.from_iterable((some == shard).tolist() for some in _chunks(owners)))
        texts[name] = write_lines(root, f"{name}.txt", lines)
    return texts


def documents_file(target: DatasetTarget, number: int) -> Path:
    """Return the path of a block's document frequencies: uint32 for each word that occurs in it."""
    return target.spill / f"documents-{number}"


def _finish_corpus(
    whole: Dataset, target: DatasetTarget, blocks: list[dict[str, Any]], columns: RankedColumns, common: dict[str, Any]
) -> None:
    frequencies, document_frequencies = np.zeros((2, columns.ids.size), np.int64)
    for number, entry in enumerate(blocks):
        block = TokenBlock(**map_arrays(target.root / entry["file"], entry["arrays"]))
        words = columns.ids[block.words]
        frequencies[words] += np.diff(block.word_offsets)
        document_frequencies[words] += np.fromfile(documents_file(target, number), np.uint32)
    planted = whole.planted_topics()
    entry_of_topics = write_arrays(target.root, "topics.h5", planted) if planted else None
    shutil.rmtree(target.spill)
    finish_corpus_files(
        target.root,
        blocks=blocks,
        words=RankedWords(columns.ids, columns.slice_bounds, frequencies, document_frequencies),
        part_tokens=whole.part_size,
        planted=entry_of_topics,
        **common,
    )


def _finish_matrix(
    pool: WorkerPool,
    target: DatasetTarget,
    blocks: list[dict[str, Any]],
    columns: RankedColumns,
    common: dict[str, Any],
    bar: Bar,
) -> None:
    slices, column_entries = write_slices(IngestionPipeline(pool, target, bar), blocks, columns.slice_bounds)
    shutil.rmtree(target.spill)
    finish_matrix(
        target.root,
        blocks=blocks,
        slices=slices,
        column_ids=columns.ids,
        column_entries=column_entries,
        slice_bounds=columns.slice_bounds,
        **common,
    )
