"""Gather the names of rows or documents on a ring: each rank sends the names of its shard to rank 0."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.number_spool import NumberSpool
from blocks.ratings.matrix import Matrix


def names_of_block(dataset: Dataset | Matrix, text: str, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a block's contribution to the index of each name in the whole dataset, uint64, and to the bytes of the
    names, uint8.

    text: key of the names in the manifest; if it does not exist, all names are empty.
    """
    numbers, entry = dataset.originals(), dataset.manifest["texts"].get(text)
    if entry:
        lines: np.ndarray[Any, Any] = np.memmap(dataset.path / entry["file"], np.uint8, "r")
    else:
        lines = np.broadcast_to(np.uint8(ord("\n")), numbers.size)
    share, blocks = (block, block + 1), dataset.block_count
    span, its = (slice(*(each.size * some // blocks for some in share)) for each in (numbers, lines))
    return numbers[span], lines[its]


def gather_names(shares: Iterable[tuple[np.ndarray, np.ndarray]], directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """Merge the contributions of all blocks: the index of each name, uint64 (n,), and the lines with the names, uint8.

    directory: where to create temporary files.
    """
    with NumberSpool(directory, "uint64") as numbers, NumberSpool(directory, "uint8") as texts:
        for some, text in shares:
            numbers.add(some)
            texts.add(text)
        return numbers.mapped(-1), texts.mapped(-1)
