"""Write a design matrix: blocks, index, and the manifest last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.arrays import ArrayPieces, write_arrays
from blocks.design.design import WITH_OFFSETS, DenseDesignBlock, Design, SparseDesignBlock
from blocks.ingestion.manifest import WrittenFileEntries, write_manifest
from blocks.stored_dataset import SCHEMA

MOMENTS = ("means", "norms", "deviations")


def write_block(root: Path, number: int, block: SparseDesignBlock | DenseDesignBlock) -> dict[str, Any]:
    """Publish a block of columns.

    Returns its manifest entry.
    """
    arrays = {name: array.reshape(-1) for name, array in block._asdict().items()}
    if isinstance(block, SparseDesignBlock):
        columns, entries, missing = block.offsets.size - 1, block.rows.size, 0
    else:
        columns, entries, missing = len(block.values), int(np.count_nonzero(block.values)), block.missing_rows.size
    entry = write_arrays(root, f"blocks/{number:05}.h5", arrays)
    return {**entry, "columns": columns, "entries": entries, "missing": missing}


def write_index(
    root: Path,
    y: np.ndarray,
    columns: int,
    moments: Sequence[Path],
    block_bounds: np.ndarray,
    offsets: np.ndarray | None,
) -> dict[str, Any]:
    """Publish index.h5.

    Returns its manifest entry.

    y: float64 (n,) or (0,).
    moments: for each block, a file of float64 (3, W): means, norms and deviations.
    block_bounds: int64 (B+1,).
    offsets: float64 (p,), None if all are 0.
    """

    def of_all(place: int) -> Iterator[np.ndarray]:
        for path, width in zip(moments, np.diff(block_bounds).tolist(), strict=True):
            yield np.fromfile(path, np.float64, width, offset=8 * width * place)

    pieces = {name: ArrayPieces("float64", columns, of_all(place)) for place, name in enumerate(MOMENTS)}
    known = {} if offsets is None else {"offsets": offsets}
    return write_arrays(root, "index.h5", {"y": y, **pieces, "block_bounds": block_bounds, **known})


def finish_design(
    root: Path,
    *,
    rows: int,
    labels: bool,
    form: str,
    first_column: int,
    index: dict[str, Any],
    blocks: list[dict[str, Any]],
    texts: dict[str, dict[str, Any]],
    made: dict[str, Any],
    shard: dict[str, Any] | None = None,
) -> None:
    """Write the manifest over existing files.

    index, blocks, texts: entries of the files.
    first_column: number of the first column if columns have no names.
    shard: see `blocks.design.row_shards`.
    """
    counts = {
        "rows": rows,
        "columns": sum(entry["columns"] for entry in blocks),
        "entries": sum(entry["entries"] for entry in blocks),
        "missing": sum(entry["missing"] for entry in blocks),
        "form": form,
        "labels": labels,
        "first_column": first_column,
    }
    schema = WITH_OFFSETS if "offsets" in index["arrays"] else SCHEMA
    files = WrittenFileEntries(index, texts, blocks)
    write_manifest(root, Design, files, counts, made, identified_by=[rows, form], schema=schema, shard=shard)
