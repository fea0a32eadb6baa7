"""Write a sample set: blocks, index, and the manifest last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocks.arrays import write_arrays
from blocks.ingestion.manifest import WrittenFileEntries, write_manifest
from blocks.samples.samples import SampleBlock, SampleIndex, Samples


def write_block(root: Path, number: int, block: SampleBlock) -> dict[str, Any]:
    """Write a block of a new sample set.

    Returns its manifest entry.
    """
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
    """Write the index and, last, the manifest.

    shard: see `blocks.samples.shards`.
    """
    rows, entries = ([entry[name] for entry in blocks] for name in ("rows", "entries"))
    bounds = np.concatenate(([0], np.cumsum(rows))).astype(np.int64)
    index = write_arrays(root, "index.h5", SampleIndex(bounds, np.array(entries, np.int64), labels)._asdict())
    counts = {"rows": sum(rows), "columns": columns, "entries": sum(entries)}
    write_manifest(
        root, Samples, WrittenFileEntries(index, {}, blocks), counts, made, identified_by=[columns], shard=shard
    )
