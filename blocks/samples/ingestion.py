"""Ingestion of labelled samples row by row, out of core: from svmlight files, or from arrays.

    read     chunks of an input are parsed, and their samples left in a spill file
    deal     a hash of its number says which bucket a sample goes to: they are added to its file
    write    the samples of a bucket are shuffled, and are a block

How much there is in a chunk has no influence on the result.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import xxhash

from blocks.append import new_dataset, require_replaceable
from blocks.arrays import write_arrays
from blocks.corpus.division import bucket_count
from blocks.design.formats import Svmlight
from blocks.design.rows import MOST_COLUMNS
from blocks.design.svmlight import read
from blocks.errors import RequestError
from blocks.files import disk_errors
from blocks.json_files import write_json
from blocks.progress_bar import Bar, no_bar
from blocks.samples.samples import MOST_LABELS, SampleBlock, SampleIndex, Samples
from blocks.shuffle import buckets_of
from blocks.sources import Source, input_facts, size_of, whole_line
from blocks.store import MANIFEST, SCHEMA
from blocks.synced import sync_directory

BLOCK_ENTRIES = 1 << 20
_TYPES = ("u8", "f8", "i8", "u4", "f4")


class Rows(NamedTuple):
    """n samples with N entries, as they are spilled."""

    numbers: np.ndarray  # uint64 (n,), in the original order
    labels: np.ndarray  # float64 (n,)
    lengths: np.ndarray  # int64 (n,), entries of each
    columns: np.ndarray  # uint32 (N,)
    values: np.ndarray  # float32 (N,)

    def chosen(self, rows: np.ndarray) -> Rows:
        """Some of them, int64 (k,), in that order."""
        lengths, begins = self.lengths[rows], np.cumsum(self.lengths) - self.lengths
        ends = np.cumsum(lengths)
        entries = np.repeat(begins[rows] - (ends - lengths), lengths) + np.arange(lengths.sum())
        return Rows(self.numbers[rows], self.labels[rows], lengths, self.columns[entries], self.values[entries])

    def spill(self, file: BinaryIO) -> tuple[int, int]:
        """Add them to a file; returns how many samples and entries there are."""
        for array, dtype in zip(self, _TYPES, strict=True):
            file.write(np.ascontiguousarray(array, dtype).data)
        return self.labels.size, self.columns.size


def spilled(file: BinaryIO, size: tuple[int, int]) -> Rows:
    """The next samples of a file, as many as were spilled together."""
    sizes = [size[0]] * 3 + [size[1]] * 2
    return Rows(*(np.fromfile(file, dtype, count) for dtype, count in zip(_TYPES, sizes, strict=True)))


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
    """Make a set of samples of svmlight files.

    columns_from: one whose columns these are to be. zero_based: whether indices count from 0. Raises RequestError for
    bad input, WorkFailed for a full disk; nothing is left behind then.
    """
    if not inputs:
        raise RequestError("no input is given")
    for path in inputs:
        if Path(path).is_dir():
            raise RequestError(f"{path} is a directory", "Name a file.")
        size_of(path)
    require_replaceable(Path(out), overwrite)
    known = Samples(columns_from).columns if columns_from else None
    made: dict[str, Any] = {
        "kind": "svmlight",
        "options": {"columns_from": columns_from, "zero_based": zero_based, "seed": seed},
        "inputs": [input_facts(path) for path in inputs],
    }
    progress = bar("reading", sum(map(size_of, inputs)) or None, "B")
    rows = _parsed(inputs, Svmlight(known or MOST_COLUMNS, 0 if zero_based else 1), made, progress.update)
    samples = write_rows(out, rows, known, made, seed=seed, block_entries=block_entries, overwrite=overwrite)
    progress.close()
    return samples


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
    """Make a set of samples of arrays, as those of scipy.sparse.csr_array.

    offsets: integers (n+1,), where the entries of each sample begin. columns: integers (N,), ascending within a sample.
    values: (N,). labels: (n,). width: columns there are, None for one more than the highest number. Raises RequestError
    if the arrays do not fit together.
    """
    lengths = np.diff(offsets)
    if offsets[0] != 0 or (lengths < 0).any() or not offsets[-1] == columns.size == values.size:
        raise RequestError(f"offsets must ascend from 0 to {columns.size}, the number of columns and values")
    if lengths.size != labels.size:
        raise RequestError(f"{labels.size} labels for {lengths.size} samples")
    if columns.size and not 0 <= columns.min() <= columns.max() < (width or MOST_COLUMNS):
        raise RequestError(f"columns from {columns.min()} to {columns.max()} of {width}")
    rows = Rows(np.arange(lengths.size), labels, lengths, columns, values)
    made = {"kind": "arrays", "options": {"seed": seed}}
    return write_rows(str(out), [rows], width, made, seed=seed, block_entries=block_entries, overwrite=overwrite)


def _parsed(inputs: Sequence[str], form: Svmlight, made: dict[str, Any], progress: Any) -> Iterator[Rows]:
    """The rows of files, in chunks; notes in `made` what is passed over."""
    for path in inputs:
        source = Source(path, progress)
        for line, data in source.chunks(whole_line):
            found = read(data if data.endswith(b"\n") else data + b"\n", source.name, line, form)
            if found.queries:
                made["queries"] = "passed over"
            entries, lengths = found.entries, np.bincount(found.entries["row"], minlength=found.records)
            yield Rows(np.zeros(found.records), found.y, lengths, entries["column"], entries["value"])


def write_rows(
    out: str,
    chunks: Iterable[Rows],
    columns: int | None,
    made: dict[str, Any],
    *,
    seed: int,
    block_entries: int,
    overwrite: bool,
) -> Samples:
    """Make a set of samples of chunks of rows, which are numbered one after the other. columns: see `write_samples`."""
    from importlib.metadata import version

    with new_dataset(out, overwrite) as target, disk_errors(Path(out)):
        sizes, width = _spill(target.spill / "rows", chunks)
        total = np.sum(sizes, axis=0) if sizes else np.zeros(2, np.int64)
        if not total[0]:
            raise RequestError(f"{out}: there are no samples")
        buckets = bucket_count(int(total[1]), block_entries)
        pieces = _deal(target.spill, sizes, buckets, seed)
        filled = [bucket for bucket in range(buckets) if pieces[bucket]]
        blocks, labels = [], np.empty(0)
        for number, bucket in enumerate(filled):
            with (target.spill / f"{bucket}").open("rb") as file:
                block = _block([spilled(file, size) for size in pieces[bucket]], seed, number)
            blocks.append(write_block(target.root, number, block))
            labels = np.unique(np.concatenate((labels, block.labels)))[: MOST_LABELS + 1]
        shutil.rmtree(target.spill)
        labels = labels if labels.size <= MOST_LABELS else np.empty(0)
        made = {"ooc": version("ooc"), "command": "ingest", **made}
        finish_samples(target.root, blocks, labels, columns or width, made)
    return Samples(out)


def _spill(path: Path, chunks: Iterable[Rows]) -> tuple[list[tuple[int, int]], int]:
    """Leave chunks in a file; returns the samples and entries of each, and how many columns there are at least."""
    sizes, first, width = [], 0, 1
    with path.open("wb") as file:
        for rows in chunks:
            numbers = np.arange(first, first + rows.labels.size)
            sizes.append(rows._replace(numbers=numbers).spill(file))
            first, width = first + numbers.size, max(width, int(rows.columns.max(initial=0)) + 1)
    return sizes, width


def _deal(spill: Path, sizes: Sequence[tuple[int, int]], buckets: int, seed: int) -> list[list[tuple[int, int]]]:
    """Add the samples of all chunks to the files of their buckets; returns what each has of each chunk."""
    pieces: list[list[tuple[int, int]]] = [[] for _ in range(buckets)]
    with (spill / "rows").open("rb") as chunks:
        for size in sizes:
            rows = spilled(chunks, size)
            bucket = buckets_of(rows.numbers, seed, buckets)
            for number in np.unique(bucket).tolist():
                with (spill / f"{number}").open("ab") as file:
                    pieces[number].append(rows.chosen(np.flatnonzero(bucket == number)).spill(file))
    (spill / "rows").unlink()
    return pieces


def _block(pieces: Sequence[Rows], seed: int, number: int) -> SampleBlock:
    """The samples of a bucket, in an order that depends on the seed and the number of the block only."""
    whole = Rows(*(np.concatenate(arrays) for arrays in zip(*pieces, strict=True)))
    rows = whole.chosen(np.random.default_rng([seed, number]).permutation(whole.labels.size))
    offsets = np.concatenate(([0], np.cumsum(rows.lengths))).astype(np.int64)
    return SampleBlock(rows.numbers, rows.labels, offsets, rows.columns, rows.values)


def write_block(root: Path, number: int, block: SampleBlock) -> dict[str, Any]:
    """Write a block of a new sample set; returns its entry in the manifest."""
    entry = write_arrays(root, f"blocks/{number:05}.h5", block._asdict())
    return {**entry, "rows": block.labels.size, "entries": block.values.size}


def finish_samples(
    root: Path,
    blocks: list[dict[str, Any]],
    labels: np.ndarray,
    columns: int,
    made: dict[str, Any],
    shard: dict[str, Any] | None = None,
) -> None:
    """Write the index and, last, the manifest. shard: of what whole it is one, see `blocks.samples.shards`."""
    rows, entries = ([entry[name] for entry in blocks] for name in ("rows", "entries"))
    bounds = np.concatenate(([0], np.cumsum(rows))).astype(np.int64)
    index = write_arrays(root, "index.h5", SampleIndex(bounds, np.array(entries, np.int64), labels)._asdict())
    content = [[entry["file"], entry["checksum"]] for entry in (index, *blocks)]
    sync_directory(root / "blocks")
    write_json(
        root / MANIFEST,
        {
            "schema": SCHEMA,
            "kind": Samples.kind,
            "generation": 0,
            "identity": xxhash.xxh3_128_hexdigest(json.dumps([columns, content]).encode()),
            "rows": sum(rows),
            "columns": columns,
            "entries": sum(entries),
            "made": made,
            "index": index,
            "texts": {},
            "slices": [],
            "blocks": blocks,
            **({"shard": shard} if shard else {}),
        },
    )
