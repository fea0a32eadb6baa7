"""Assign the documents of a dataset to shards: whole blocks if there are many, otherwise parts of blocks.

The heaviest stretches are assigned first, each to the shard with the fewest tokens so far. The part of a block that a
shard gets becomes a block of the shard. Documents of a block are shuffled, so all parts of it are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.corpus.partition import assign_slices
from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from blocks.stored_dataset import range_parts

FINE = 64  # minimum number of stretches for each shard, so that shard sizes differ by at most 1/64

Runs = list[tuple[int, int]]  # documents of a block: first and last (exclusive) of each run


class BlockDocumentRange(NamedTuple):
    """Consecutive documents of a block, `last` exclusive.

    samples: number of their tokens (or rows and entries).
    """

    block: int
    first: int
    last: int
    samples: int


def deal_documents(dataset: Dataset | Matrix, shards: int) -> list[dict[int, Runs]]:
    """Return, for each block, the shards that get documents of it, and which documents; every shard gets nonempty
    documents.

    Raises RequestError if there are fewer nonempty documents than shards.
    """
    found = _stretches(dataset, shards)
    samples = np.array([stretch.samples for stretch in found])
    # Stretches of similar size keep their order, so that each shard gets a similar part of every block.
    order = np.argsort(-np.rint(samples / samples.mean()), kind="stable")
    owners = assign_slices(samples, order, np.arange(shards))
    shares: list[dict[int, Runs]] = [{} for _ in range(dataset.block_count)]
    for stretch, owner in zip(found, owners.tolist(), strict=True):
        shares[stretch.block].setdefault(owner, []).append((stretch.first, stretch.last))
    return shares


def _stretches(dataset: Dataset | Matrix, shards: int) -> list[BlockDocumentRange]:
    """Return stretches of all documents in block order, each with at least one token."""
    if dataset.block_count >= FINE * shards:
        samples = dataset.index.cells.sum(axis=1).tolist()
        sizes = [entry[dataset.counted] for entry in dataset.manifest["blocks"]]
        return [BlockDocumentRange(number, 0, sizes[number], samples[number]) for number in range(dataset.block_count)]
    size = max(dataset.samples // (FINE * shards), 1)
    while len(found := list(_cut(dataset, size))) < shards:
        if size == 1:
            raise RequestError(
                f"{dataset.path} has {len(found)} nonempty {dataset.counted}, too few for {shards} shards",
                "Reduce --shards.",
            )
        size = max(size // 4, 1)  # needed if some documents are very long
    return found


def _cut(dataset: Dataset | Matrix, size: int) -> Iterator[BlockDocumentRange]:
    """Return stretches of about `size` tokens; empty documents at the end of a block are added to the stretch before
    them."""
    for number in range(dataset.block_count):
        offsets = dataset.block(number).offsets
        bounds = range_parts(offsets, size)
        bounds = np.append(bounds[:-1][offsets[bounds[:-1]] < offsets[-1]], bounds[-1])
        samples = np.diff(offsets[bounds]).tolist()
        for first, last, tokens in zip(bounds[:-1].tolist(), bounds[1:].tolist(), samples, strict=True):
            yield BlockDocumentRange(number, first, last, tokens)
