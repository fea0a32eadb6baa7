"""Data about the whole dataset in each shard, which shows that shards belong together.

All shards have the words (or columns) of the whole in the same order and slices, so that a slice is the same on
every rank of a ring. The manifest entry "shard" has

    number, shards   index of this shard, from 0, and number of shards
    whole            identity and counts of the whole; `hash` of its words, their order, slices and frequencies;
                     `dealt`, hash of the distribution of documents. Equal for all shards of a split, and only these
    index            file whole.h5: `numbers` uint64 (D,), number in the whole of each document (of a matrix, of each
                     line of rows.txt), ascending; `frequencies` int64 (V,), of the whole, by rank
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from blocks.stored_dataset import MANIFEST


class RankedColumns(NamedTuple):
    """The V words or columns by rank, and their slices."""

    ids: np.ndarray  # uint32 (V,), line in vocabulary.txt or columns.txt
    slice_bounds: np.ndarray  # int64 (S+1,)
    frequencies: np.ndarray  # int64 (V,), number of tokens or entries in the whole dataset


def ranked_columns(dataset: Dataset | Matrix) -> RankedColumns:
    """Return the columns of a dataset by rank, with their frequencies in that dataset."""
    index = dataset.index
    if isinstance(dataset, Matrix):
        return RankedColumns(dataset.index.column_ids, index.slice_bounds, dataset.index.column_entries)
    return RankedColumns(dataset.index.word_ids, index.slice_bounds, dataset.index.frequencies)


def columns_hash(dataset: Dataset | Matrix, columns: RankedColumns) -> str:
    """Return `names_hash` for the columns of a dataset."""
    return names_hash(dataset.manifest["texts"]["columns" if isinstance(dataset, Matrix) else "vocabulary"], columns)


def names_hash(names: Mapping[str, Any], columns: RankedColumns) -> str:
    """Return the XXH3-128, in hexadecimal, of the names of columns (the entry of their file) and of all fields of
    `columns`."""
    digest = xxhash.xxh3_128(names["checksum"].encode())
    for array in columns:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def shard_paths(path: Path) -> list[Path]:
    """Return the shards in a directory in order; empty if the directory contains anything else."""
    found = sorted(path.glob("shard-*"), key=lambda shard: (len(shard.name), shard.name)) if path.is_dir() else []
    whole = all((shard / MANIFEST).is_file() for shard in found) and len(found) == sum(1 for _ in path.glob("*"))
    return found if whole else []


def check_shards_complete(told: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Raise RequestError unless these are all the shards of one dataset, each exactly once.

    told: "shard" manifest entry, if any, of each location (a path, or a host and a path).
    """
    numbers: dict[int, str] = {}
    first, expected = "", None
    for place, shard in told.items():
        if shard is None:
            raise RequestError(f"{place} is a whole dataset; expected a shard", "Split the dataset with `ooc shard`.")
        first, expected = first or place, expected or shard["whole"]
        if shard["whole"] != expected:
            raise RequestError(
                f"{place} and {first} are not shards of the same dataset and the same split",
                "Use shards that one `ooc shard` command has written.",
            )
        if shard["number"] in numbers:
            raise RequestError(f"{place} and {numbers[shard['number']]} are both shard {shard['number']}")
        numbers[shard["number"]] = place
    count = max((shard["shards"] for shard in told.values() if shard), default=0)
    if missing := [str(number) for number in range(count) if number not in numbers]:
        raise RequestError(f"shard {', '.join(missing)} of {count} is missing", "Specify all shards.")


def problems_of_shard(dataset: Dataset | Matrix) -> Iterator[str]:
    """Yield inconsistencies in a shard's data about the whole dataset."""
    arrays = dataset.of_whole()
    if arrays is None:
        return
    shard, manifest = dataset.manifest["shard"], dataset.path / MANIFEST
    numbers, whole = arrays["numbers"], RankedColumns(*ranked_columns(dataset)[:2], arrays["frequencies"])
    samples = dataset.whole.entries if isinstance(dataset, Matrix) else dataset.whole.tokens
    size = len(dataset.row_names()) if isinstance(dataset, Matrix) else dataset.documents
    if numbers.size != size or not (numbers[1:] > numbers[:-1]).all():
        yield f"{manifest}: {numbers.size} numbers in the whole for {size} {dataset.counted}, or not ascending"
    if int(whole.frequencies.sum()) != samples or (ranked_columns(dataset).frequencies > whole.frequencies).any():
        yield f"{manifest}: its frequencies do not sum to the {samples} {dataset.unit} of the whole dataset"
    if columns_hash(dataset, whole) != shard["whole"]["hash"]:
        yield f"{manifest}: words, slices or frequencies are not those of the whole dataset"
