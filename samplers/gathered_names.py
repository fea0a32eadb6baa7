"""The names of rows or documents on a ring of machines: each tells the first one those that its shard has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.ratings.matrix import Matrix
from samplers.spool import Spool


def names_of_block(dataset: Dataset | Matrix, text: str, block: int) -> tuple[np.ndarray, np.ndarray]:
    """A block's share of the numbers of all names in the whole, uint64, and of the bytes of these, uint8, line after
    line, in a text of the dataset. If there is no such text all names are empty."""
    numbers, entry = dataset.originals(), dataset.manifest["texts"].get(text)
    if entry:
        lines: np.ndarray[Any, Any] = np.memmap(dataset.path / entry["file"], np.uint8, "r")
    else:
        lines = np.broadcast_to(np.uint8(ord("\n")), numbers.size)
    share, blocks = (block, block + 1), dataset.block_count
    mine, its = (slice(*(each.size * some // blocks for some in share)) for each in (numbers, lines))
    return numbers[mine], lines[its]


def gather_names(shares: Iterable[tuple[np.ndarray, np.ndarray]], directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """All that blocks have: the numbers of names, uint64 (n,), and the lines, uint8. directory: to keep them in."""
    with Spool(directory, "uint64") as numbers, Spool(directory, "uint8") as texts:
        for some, text in shares:
            numbers.add(some)
            texts.add(text)
        return numbers.mapped(-1), texts.mapped(-1)
