"""Duplicates that an ingestion leaves out: which documents are left out, and the file that lists them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.outputs import publish_text

LEFT_OUT = "left-out.npz"  # name of the file that says which documents to leave out
_LEAST = 0.5  # similarity that can be asked for
_HEADER = ["document", "name", "kept_document", "kept_name", "similarity"]


class ChunkSignatures(NamedTuple):
    """Answer of a worker: hashes, uint64 (D, 2), signatures, uint16 (D, H), and names, if any, of the documents of a
    chunk.
    """

    hashes: np.ndarray
    signatures: np.ndarray
    names: list[str] | None


def parse_similarity(text: str) -> float:
    """Return the similarity given as `exact` (1), or as a fraction such as 80% or 0.8.

    Raises RequestError.
    """
    if text == "exact":
        return 1.0
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not _LEAST <= value < 1.0:
        raise RequestError(
            f"--deduplicate must be exact or a similarity from 50% to below 100%, got {text!r}",
            "For example: --deduplicate 80%",
        )
    return value


def duplicates_path(out: str) -> str:
    """Return the path of the file that lists the documents left out of a dataset."""
    return f"{out.rstrip('/')}-duplicates.csv"


def write_list(rows: list[list[Any]], path: Path) -> None:
    """Publish the rows of `blocks.corpus.duplicate_search.DuplicateSearch.listed` as CSV."""
    with publish_text(path) as file:
        writer = csv.writer(file)
        writer.writerow(_HEADER)
        writer.writerows(rows)


def is_leftover_list(path: Path, out: Path) -> bool:
    """Return whether an interrupted ingestion wrote this list: there is no dataset, and the file is such a list."""
    if out.exists() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(1 << 10).rstrip(b"\r\n") == ",".join(_HEADER).encode()
