"""Find what a dataset already has before an append: inputs by their contents, and documents by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError

NAME_BYTES = 16  # memory for each document name while the hashes are sorted; 8 bytes afterwards
_REMEDY = "Remove the document, or use --skip-known to skip documents that the dataset already has."


def new_inputs(inputs: Sequence[dict[str, Any]], dataset: Dataset, *, skip: bool) -> list[dict[str, Any]]:
    """Return the inputs that the dataset does not have yet, each once.

    inputs: names and hashes, see `blocks.corpus.request.input_records`.
    Raises RequestError for a known or repeated input, unless `skip` is set.
    """
    earlier = {
        told["hash"]: told["name"] for batch in dataset.batches for told in batch.get("inputs", ()) if "hash" in told
    }
    new = []
    for told in inputs:
        name, before = told["name"], earlier.get(told.get("hash"))
        if before is None:
            new.append(told)
            earlier |= {told["hash"]: name} if "hash" in told else {}
        elif not skip:
            why = "was ingested before" if before == name else f"has the same content as {before}"
            raise RequestError(f"{name} {why}: its documents would appear twice in {dataset.path}", _REMEDY)
    return new


class KnownDocumentNames:
    """The document names of a dataset as sorted 64-bit hashes in a file that all workers map.

    If 10 million documents are appended to 10 million others, the probability of a false match, which refuses or skips
    a document, is 5 in a million.
    """

    def __init__(self, path: str, *, skip: bool) -> None:
        self._hashes = np.memmap(path, np.uint64, "r")
        self._skip = skip

    def are_new(self, names: Sequence[str], source: str) -> list[bool]:
        """Return the mask of documents that are new to the dataset; unnamed documents always are.

        Raises RequestError for a known document, unless known documents are to be skipped.
        """
        hashes = np.fromiter(map(_hash, names), np.uint64, len(names))
        places = np.minimum(np.searchsorted(self._hashes, hashes), self._hashes.size - 1)
        known = (self._hashes[places] == hashes) & np.fromiter(map(bool, names), bool, len(names))
        if known.any() and not self._skip:
            name = names[int(np.argmax(known))]
            raise RequestError(f"{source}: the dataset already has a document named {name!r}", _REMEDY)
        return list(~known)


def write_known_names(path: Path, dataset: Dataset) -> str | None:
    """Write the file for `KnownDocumentNames` and return its path; None if no document has a name."""
    hashes = np.fromiter(map(_hash, filter(None, dataset.each_name())), np.uint64)
    if not hashes.size:
        return None
    hashes.sort()
    hashes.tofile(path)
    return str(path)


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "replace"))
