"""Write a sparse matrix: blocks, slices, index, and the manifest last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.arrays import write_arrays
from blocks.ingestion.manifest import WrittenFileEntries, write_manifest
from blocks.ratings.matrix import Matrix, MatrixColumnSlice, MatrixIndex, MatrixRowBlock


class Entries(NamedTuple):
    """Entries of a matrix in any order: rows uint32 (N,), columns uint32 (N,), values float32 (N,)."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def last_duplicates(entries: Entries) -> np.ndarray:
    """Return the positions of the last entry of each row and column, int64 (n,), ascending.

    entries: in input order.
    """
    order = np.lexsort((entries.columns, entries.rows))
    rows, columns = entries.rows[order], entries.columns[order]
    last = np.append((rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1]), True)
    return np.sort(order[last])


def write_row_block(
    root: Path, number: int, entries: Entries, slice_bounds: np.ndarray, seed: int
) -> tuple[dict[str, Any], MatrixRowBlock]:
    """Publish rows in an order that depends only on the seed and the block index.

    entries: in input order; `columns` are ranks; if entries are duplicated, the last one counts.
    Returns the manifest entry and the block.
    """
    rows, local = np.unique(entries.rows, return_inverse=True)
    order = np.random.default_rng([seed, number]).permutation(rows.size)
    place = np.empty(rows.size, np.uint64)
    place[order] = np.arange(rows.size)
    keys = place[local] << np.uint64(32) | entries.columns
    sorted_ = np.argsort(keys, kind="stable")
    last = np.append(np.diff(keys[sorted_]) != 0, True)[: sorted_.size]
    kept = sorted_[last]
    counts = np.bincount(place[local][kept].astype(np.int64), minlength=rows.size)
    block = MatrixRowBlock(
        rows[order].astype(np.uint32),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        entries.columns[kept],
        entries.values[kept],
    )
    return {**publish_rows(root, number, block, slice_bounds), "duplicates": sorted_.size - kept.size}, block


def publish_rows(root: Path, number: int, block: MatrixRowBlock, slice_bounds: np.ndarray) -> dict[str, Any]:
    """Publish a block unchanged.

    Returns its manifest entry for `finish_matrix`, with the sums of its values.
    """
    return {
        **write_arrays(root, f"blocks/{number:05}.h5", block._asdict()),
        "rows": block.rows.size,
        "entries": block.values.size,
        "cells": np.diff(np.searchsorted(np.sort(block.columns), slice_bounds)).tolist(),
        "longest": int(np.diff(block.offsets).max()),
        "values": _sums(block.values),
    }


def _sums(values: np.ndarray) -> dict[str, float]:
    exact = values.astype(np.float64)
    sums = {"sum": float(exact.sum()), "squares": float(np.square(exact).sum())}
    return {"low": float(exact.min()), "high": float(exact.max()), **sums}


def _statistics(sums: list[dict[str, float]], entries: int) -> dict[str, float]:
    """Return statistics of all values, from the sums of each block."""
    mean, squares = (sum(each[name] for each in sums) / entries for name in ("sum", "squares"))
    return {
        "low": min(each["low"] for each in sums),
        "high": max(each["high"] for each in sums),
        "mean": mean,
        "deviation": math.sqrt(max(squares - mean * mean, 0.0)),
    }


def column_order(block: MatrixRowBlock) -> Entries:
    """Return the entries of a block by column; `rows` are row positions in the block, ascending within a column."""
    order = np.argsort(block.columns, kind="stable")
    rows = np.repeat(np.arange(block.rows.size, dtype=np.uint32), np.diff(block.offsets))
    return Entries(rows[order], block.columns[order], block.values[order])


def write_column_slice(root: Path, file_name: str, parts: Sequence[Entries], first: int, last: int) -> dict[str, Any]:
    """Publish the columns with ranks `first` to `last` (exclusive).

    Returns the manifest entry.

    parts: entries of each block in turn, sorted by column, with `rows` as places in the matrix.
    """
    rows, columns, values = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(columns, kind="stable")
    counts = np.bincount(columns.astype(np.int64) - first, minlength=last - first)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return write_arrays(root, file_name, MatrixColumnSlice(offsets, rows[order], values[order])._asdict())


def finish_matrix(
    root: Path,
    *,
    blocks: list[dict[str, Any]],
    slices: list[dict[str, Any]],
    column_ids: np.ndarray,
    column_entries: np.ndarray,
    slice_bounds: np.ndarray,
    texts: dict[str, dict[str, Any]],
    made: dict[str, Any],
    shard: dict[str, Any] | None = None,
) -> None:
    """Write the index and, last, the manifest for existing blocks and slices.

    blocks, slices: manifest entries in order.
    column_entries: int64 (C,), by rank.
    shard: "shard" entry of the manifest, see `blocks.shards.whole_dataset`.
    """
    rows = [entry["rows"] for entry in blocks]
    cells = np.array([entry.pop("cells") for entry in blocks], np.int64)  # stored in the index instead
    index = MatrixIndex(
        column_ids, column_entries, slice_bounds, np.concatenate(([0], np.cumsum(rows))), cells.reshape(-1)
    )
    index_entry = write_arrays(root, "index.h5", index._asdict())
    counts = {
        "rows": sum(rows),
        "columns": int(column_ids.size),
        "entries": int(cells.sum()),
        "values": _statistics([entry.pop("values") for entry in blocks], int(cells.sum())),
    }
    write_manifest(root, Matrix, WrittenFileEntries(index_entry, texts, blocks, slices), counts, made, shard=shard)
