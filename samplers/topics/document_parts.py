"""Distribute the documents of a dataset to workers, as ranges of documents within a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.progress_bar import ProgressBar
from blocks.stored_dataset import range_parts
from blocks.workers import WorkerPool
from ooc.workers.worker import unit_parts


class DocumentRange(NamedTuple):
    """Message to a worker: the documents first, ..., last - 1 of a block."""

    block: int
    first: int
    last: int


class DocumentPart(NamedTuple):
    """The D documents of a part, with n tokens."""

    offsets: np.ndarray  # int64 (D+1,), start of each document in `ranks`
    ranks: np.ndarray  # uint32 (n,), ranks of the words, ascending within a document
    numbers: np.ndarray  # uint64 (D,), index of each document in the original order


def token_parts(dataset: Dataset, blocks: range | None = None) -> list[DocumentRange]:
    """Divide the documents of some or all blocks into parts of about `dataset.part_size` tokens."""
    return [
        part
        for number in (range(dataset.block_count) if blocks is None else blocks)
        for part in _between(number, unit_parts(dataset, "block", number)[1])
    ]


def squared_parts(dataset: Dataset, most: int) -> list[DocumentRange]:
    """Divide all documents into parts whose sums of squared document lengths are about `most`."""
    found = []
    for number in range(dataset.block_count):
        lengths = np.diff(dataset.block(number).offsets).astype(np.int64)
        found += _between(number, range_parts(np.concatenate(([0], np.cumsum(lengths * lengths))), most))
    return found


def _between(block: int, bounds: np.ndarray) -> list[DocumentRange]:
    return [
        DocumentRange(block, first, last) for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]


def read_documents(dataset: Dataset, part: DocumentRange) -> DocumentPart:
    """Return the documents of a part, as copies of mapped data (except `numbers`)."""
    block = dataset.block(part.block)
    tokens = slice(block.offsets[part.first], block.offsets[part.last])
    ranks = block.words[np.searchsorted(block.word_offsets, block.positions[tokens], side="right") - 1]
    offsets = block.offsets[part.first : part.last + 1] - block.offsets[part.first]
    return DocumentPart(offsets, ranks, block.documents[part.first : part.last])


def process_parts(
    target: str, task: Any, work: list[DocumentRange], workers: int, *, title: str, quiet: bool = False
) -> Iterator[tuple[DocumentRange, Any]]:
    """Process parts with workers created by `target(task)`; yields (part, answer) in order of completion.

    quiet: whether to hide the progress bar.
    """
    bar = ProgressBar(title, len(work), "part", quiet=quiet, leave=True)
    with WorkerPool(target, task, min(workers, max(len(work), 1))) as pool, bar:
        for answer in pool.map_unordered(work):
            bar.update()
            yield answer
