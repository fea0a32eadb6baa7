"""Write the manifest over existing files, the last step of an ingestion, which makes them a dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from blocks.directory_sync import fsync_directory
from blocks.json_files import write_json
from blocks.stored_dataset import MANIFEST, SCHEMA, StoredDataset

Entry = dict[str, Any]  # manifest entry of a file


@dataclass(frozen=True)
class WrittenFileEntries:
    """Manifest entries of the files of a dataset.

    slices: empty for kinds without slices.
    """

    index: Entry
    texts: dict[str, Entry]
    blocks: Sequence[Entry]
    slices: Sequence[Entry] = ()


def creation_record(**facts: Any) -> dict[str, Any]:
    """Return the manifest entry that records how a dataset was made.

    facts: further fields, which must not depend on time, workers or memory.
    """
    from importlib.metadata import version

    return {"ooc": version("ooc"), "command": "ingest", **facts}


def write_manifest(
    root: Path,
    kind: type[StoredDataset],
    files: WrittenFileEntries,
    counts: dict[str, Any],
    made: dict[str, Any],
    *,
    identified_by: Sequence[Any] = (),
    generation: int = 0,
    schema: int = SCHEMA,
    planted: Entry | None = None,
    shard: dict[str, Any] | None = None,
    table: dict[str, Any] | None = None,
) -> None:
    """Publish the manifest of a dataset.

    counts: additional entries.
    identified_by: data besides the files on which the identity depends.
    planted: entry of the known topics of synthetic documents.
    shard: "shard" entry, see `blocks.shards.whole_dataset`.
    table: "table" entry; the identity does not depend on it, as training does not read it.
    """
    of_shard = [shard["index"]] if shard and not identified_by else []
    content: Any = [
        [entry["file"], entry["checksum"]] for entry in (files.index, *files.texts.values(), *files.blocks, *of_shard)
    ]
    content = [*identified_by, content] if identified_by else content
    for folder in sorted({Path(entry["file"]).parent for entry in (*files.blocks, *files.slices)}):
        fsync_directory(root / folder)
    write_json(
        root / MANIFEST,
        {
            "schema": schema,
            "kind": kind.kind,
            "generation": generation,
            "identity": xxhash.xxh3_128_hexdigest(json.dumps(content).encode()),
            **counts,
            "made": made,
            "index": files.index,
            "texts": files.texts,
            "slices": list(files.slices),
            "blocks": list(files.blocks),
            **({"planted": planted} if planted else {}),
            **({"shard": shard} if shard else {}),
            **({"table": table} if table else {}),
        },
    )
