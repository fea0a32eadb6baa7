"""Write a sparse matrix from entries in memory; for files, see `ingest_ratings`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.partition import blocks_of_buckets, rank_words
from blocks.errors import RequestError
from blocks.files import publish_directory
from blocks.given_arrays import finite_floats, integers
from blocks.ratings.ingestion import grid_size
from blocks.ratings.matrix import Matrix, MatrixRowBlock
from blocks.ratings.matrix_writer import Entries, column_order, finish_matrix, write_column_slice, write_row_block
from blocks.ratings.transposition import ENTRY
from blocks.shuffle import partition_entries
from blocks.stored_dataset import write_lines


def write_matrix(
    out: str | Path,
    entries: Entries,
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    seed: int = 0,
    grid: int | None = None,
    overwrite: bool = False,
) -> Matrix:
    """Write a matrix from entries; if entries are duplicated, the last one counts.

    The bytes are those of `ingest_ratings` for the same entries and names.

    Parameters
    ----------
    out : str or Path
        Directory of the matrix.
    entries : Entries
        Ratings; `rows` and `columns` are positions in the names.
    row_names, column_names : sequence of str
        Names of the rows and columns.
    seed, grid : int
        Seed of the order in which rows and columns are stored; number of blocks and of slices, None for `grid_size`.
    overwrite : bool
        Whether to replace an existing matrix.

    Raises
    ------
    RequestError
        If `out` exists, or the entries do not match the names.
    """
    entries = _taken(entries)
    _check(entries, len(row_names), len(column_names))
    grid = grid or grid_size(entries.values.size)
    frequencies = np.bincount(entries.columns, minlength=len(column_names)).astype(np.int64)
    column_ids, slice_bounds = rank_words(frequencies, min(grid, frequencies.size), seed)
    ranked = _ranked(entries, column_ids)
    found, bounds = partition_entries(ranked, seed, grid)
    with publish_directory(Path(out), overwrite=overwrite) as root:
        (root / "blocks").mkdir()
        (root / "slices").mkdir()
        written = [
            write_row_block(root, number, _entries(found[bounds[first] : bounds[last]]), slice_bounds, seed)
            for number, (first, last) in enumerate(pairwise(blocks_of_buckets(np.diff(bounds))))
        ]
        slices, column_entries = _write_slices(root, [block for _, block in written], slice_bounds)
        names = (("rows", row_names), ("columns", column_names))
        texts = {axis: write_lines(root, f"{axis}.txt", each) for axis, each in names}
        finish_matrix(
            root,
            blocks=[entry for entry, _ in written],
            slices=slices,
            column_ids=column_ids,
            column_entries=column_entries,
            slice_bounds=slice_bounds,
            texts=texts,
            made={"kind": "arrays", "seed": seed, "duplicates": sum(block["duplicates"] for block, _ in written)},
        )
    return Matrix(out)


def _taken(entries: Any) -> Entries:
    """Return the entries after checking them.

    Raises RequestError if they are not numeric arrays.
    """
    if not isinstance(entries, Entries):
        remedy = (
            "From a scipy.sparse array m: m = m.tocoo(); blocks.ratings.matrix_writer.Entries(m.row, m.col, m.data)."
        )
        raise RequestError(f"entries must be an Entries of three arrays, got a {type(entries).__name__}", remedy)
    rows, columns = integers("rows", entries.rows), integers("columns", entries.columns)
    return Entries(rows, columns, finite_floats("values", entries.values))


def _check(entries: Entries, rows: int, columns: int) -> None:
    if not entries.values.size:
        raise RequestError("there are no ratings; a dataset must have at least one rating")
    for name, places, size in (("row", entries.rows, rows), ("column", entries.columns, columns)):
        if places.size != entries.values.size or int(places.max()) >= size:
            expected = f"{entries.values.size:,} indices from 0 to {size - 1:,}, one for each value"
            raise RequestError(f"{name}s must be {expected}; got {places.size:,}, the largest {places.max():,}")


def _ranked(entries: Entries, column_ids: np.ndarray) -> np.ndarray:
    """Return ENTRY (N,) with the ranks of columns."""
    rank_of = np.empty(column_ids.size, np.uint32)
    rank_of[column_ids] = np.arange(column_ids.size, dtype=np.uint32)
    ranked = np.empty(entries.values.size, ENTRY)
    ranked["row"], ranked["column"], ranked["value"] = entries.rows, rank_of[entries.columns], entries.values
    return ranked


def _entries(found: np.ndarray) -> Entries:
    return Entries(found["row"], found["column"], found["value"])


def _write_slices(root: Path, blocks: list[MatrixRowBlock], slice_bounds: np.ndarray) -> tuple[list[dict], np.ndarray]:
    """Write the slices.

    Returns their manifest entries, and int64 (C,), the number of entries in each column, by rank.
    """
    places = np.concatenate(([0], np.cumsum([block.rows.size for block in blocks]))).astype(np.uint32)
    ordered = [column_order(block) for block in blocks]
    ordered = [each._replace(rows=each.rows + place) for each, place in zip(ordered, places, strict=False)]
    cuts = [np.searchsorted(each.columns, slice_bounds) for each in ordered]
    slices = []
    for number, (first, last) in enumerate(pairwise(slice_bounds.tolist())):
        parts = [
            Entries(*(array[cut[number] : cut[number + 1]] for array in each))
            for each, cut in zip(ordered, cuts, strict=True)
        ]
        slices.append(write_column_slice(root, f"slices/{number:05}.h5", parts, first, last))
    counts = np.bincount(np.concatenate([each.columns for each in ordered]), minlength=int(slice_bounds[-1]))
    return slices, counts.astype(np.int64)
