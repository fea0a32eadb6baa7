"""What a dataset has when more is appended: inputs, told by their content, and documents, told by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError

NAME_BYTES = 16  # of memory for each name of the dataset while the hashes are sorted; 8 stay
_REMEDY = "Leave it out, or give --skip-known, which passes over what the dataset has."


def new_inputs(inputs: Sequence[dict[str, Any]], dataset: Dataset, *, skip: bool) -> list[dict[str, Any]]:
    """Those inputs, of facts as manifests hold them, whose content has not been ingested.

    skip: leave the others out. Raises RequestError for one of these if not.
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
            of_that = f"has the content of {before}, and its" if before != name else "is there already: its"
            raise RequestError(f"{name} {of_that} documents would be twice in {dataset.path}", _REMEDY)
    return new


class KnownNames:
    """The names of the documents of a dataset, as sorted hashes of 64 bits in a file that all workers map.

    Among 10 million names, 10 million others, one is taken for another with a probability of 5 in a million.
    """

    def __init__(self, path: str, *, skip: bool) -> None:
        self._hashes = np.memmap(path, np.uint64, "r")
        self._skip = skip

    def are_new(self, names: Sequence[str], source: str) -> list[bool]:
        """Which documents the dataset does not have; those without a name are new.

        Raises RequestError, which tells the input, for one that it has, unless such are to be skipped.
        """
        hashes = np.fromiter(map(_hash, names), np.uint64, len(names))
        places = np.minimum(np.searchsorted(self._hashes, hashes), self._hashes.size - 1)
        known = (self._hashes[places] == hashes) & np.fromiter(map(bool, names), bool, len(names))
        if known.any() and not self._skip:
            name = names[int(np.argmax(known))]
            raise RequestError(f"{source}: the dataset has a document {name!r} already", _REMEDY)
        return list(~known)


def write_known(path: Path, dataset: Dataset) -> str | None:
    """Write the file that `KnownNames` reads, and return its path; None if no document has a name."""
    hashes = np.fromiter(map(_hash, filter(None, dataset.each_name())), np.uint64)
    if not hashes.size:
        return None
    hashes.sort()
    hashes.tofile(path)
    return str(path)


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "replace"))
