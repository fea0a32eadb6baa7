"""Elements that the stochastic engine passes to `process`, one after the other.

Arrays are read-only views of a block. number: position among all elements in stored order. visit: how often it was
processed before. key: uint64, of the random stream (`uniform`) of this visit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, kernel
from blocks.corpus.dataset import Block, Dataset
from blocks.ratings.matrix import Matrix, RowBlock
from blocks.samples.samples import SampleBlock, Samples
from blocks.store import Store
from ooc import rng


class Row(NamedTuple):
    """A row of a matrix. columns: uint32 (n,), ranks. values: float32 (n,)."""

    number: int
    visit: int
    key: int
    columns: np.ndarray
    values: np.ndarray


class Sample(NamedTuple):
    """A sample with a label, float64. columns: uint32 (n,). values: float32 (n,)."""

    number: int
    visit: int
    key: int
    columns: np.ndarray
    values: np.ndarray
    label: float


class Document(NamedTuple):
    """A document. words: uint32 (n,), ranks of its tokens."""

    number: int
    visit: int
    key: int
    words: np.ndarray


class Visits(NamedTuple):
    """The elements of a block to visit. first, last: numbered within the block. place: number of the block's first
    element among all. visit: earlier visits. key: uint64, of the stream for their keys."""

    first: int
    last: int
    place: int
    visit: int
    key: np.uint64


class Texts(NamedTuple):
    """The D documents of a block. offsets: int64 (D+1,). words: uint32 (N,), ranks of all tokens."""

    offsets: np.ndarray
    words: np.ndarray


KINDS: dict[type[Store], Any] = {Matrix: Row, Samples: Sample, Dataset: Document}


@inlined_kernel
def key_of(visits, element):
    """Return the key of the random stream of an element's visit."""
    return rng.bits(visits.key, np.uint64(visits.place + element))


@inlined_kernel
def uniform(key, n):
    """Return the n-th uniform number of the stream `key`, in [0, 1). n: any integer."""
    return rng.uniform(key, np.uint64(n))


@inlined_kernel
def row_at(block, element, visits):
    """Return an element of a block of a matrix."""
    mine = slice(block.offsets[element], block.offsets[element + 1])
    key = key_of(visits, element)
    return Row(visits.place + element, visits.visit, key, block.columns[mine], block.values[mine])


@inlined_kernel
def sample_at(block, element, visits):
    """Return an element of a block of samples."""
    mine = slice(block.offsets[element], block.offsets[element + 1])
    key, label = key_of(visits, element), block.labels[element]
    return Sample(visits.place + element, visits.visit, key, block.columns[mine], block.values[mine], label)


@inlined_kernel
def document_at(block, element, visits):
    """Return an element of a block of texts."""
    mine = slice(block.offsets[element], block.offsets[element + 1])
    return Document(visits.place + element, visits.visit, key_of(visits, element), block.words[mine])


def elements_of(block: RowBlock | SampleBlock | Block) -> Any:
    """Return the arrays of a block that the loops over elements read."""
    if isinstance(block, Block):
        return Texts(block.offsets, token_words(*block[1:]))
    return block


@kernel
def token_words(offsets, positions, words, word_offsets):
    """Return the words of all tokens of a block by document, uint32 (N,). See `blocks.corpus.dataset.Block`."""
    by_word = np.empty(positions.size, np.uint32)
    for w in range(words.size):
        by_word[word_offsets[w] : word_offsets[w + 1]] = words[w]
    found = np.empty(positions.size, np.uint32)
    for token in range(positions.size):
        found[token] = by_word[positions[token]]
    return found


def entry_bounds(dataset: Store) -> np.ndarray:
    """Return the first entry or token of each block, int64 (B+1,)."""
    return np.concatenate(([0], np.cumsum(dataset.index.cells.sum(axis=1))))


def elements_of_whole(dataset: Store) -> int:
    """Return the number of elements in all shards."""
    return dataset.manifest["shard"]["whole"][dataset.counted]


def elements_before(dataset: Store) -> int | None:
    """Return the number of elements in the shards before this one; None if it is not a range of the whole's
    elements."""
    return dataset.manifest["shard"].get("first")


def tiny_block(dataset: Store) -> Any:
    """Return the result of `elements_of` for a block without elements, for compiling."""
    offsets, columns, values = np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32)
    numbers, labels = np.empty(0, np.uint64), np.empty(0)
    for array in (offsets, columns, values, numbers, labels):
        array.setflags(write=False)  # as mapped files are; to numba that is another type
    if isinstance(dataset, Dataset):
        return Texts(offsets, np.empty(0, np.uint32))
    if isinstance(dataset, Samples):
        return SampleBlock(numbers, labels, offsets, columns, values)
    return RowBlock(columns, offsets, columns, values)
