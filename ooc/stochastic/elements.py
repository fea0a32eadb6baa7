"""What the stochastic engine hands to `process`: the elements of a block, one after the other.

Arrays are views of the block; they cannot be changed. number: the place of the element among all, in the order in which
they are stored. visit: how often it was processed before. key: uint64, of a stream of random numbers (`uniform`) that
this visit has for itself.
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
    """A document. words: uint32 (n,), the ranks of its tokens."""

    number: int
    visit: int
    key: int
    words: np.ndarray


class Visits(NamedTuple):
    """Which elements of a block are visited. first, last: numbered from the first of the block on. place: of the first
    of the block among all. visit: how often they were before. key: uint64, of the stream that has their keys."""

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
    """The key of the random stream of an element's visit."""
    return rng.bits(visits.key, np.uint64(visits.place + element))


@inlined_kernel
def uniform(key, n):
    """The n-th uniform number of the stream `key`, in [0, 1). n: any integer."""
    return rng.uniform(key, np.uint64(n))


@inlined_kernel
def row_at(block, element, visits):
    """An element of a block of a matrix."""
    mine = slice(block.offsets[element], block.offsets[element + 1])
    key = key_of(visits, element)
    return Row(visits.place + element, visits.visit, key, block.columns[mine], block.values[mine])


@inlined_kernel
def sample_at(block, element, visits):
    """An element of a block of samples."""
    mine = slice(block.offsets[element], block.offsets[element + 1])
    key, label = key_of(visits, element), block.labels[element]
    return Sample(visits.place + element, visits.visit, key, block.columns[mine], block.values[mine], label)


@inlined_kernel
def document_at(block, element, visits):
    """An element of a block of texts."""
    mine = slice(block.offsets[element], block.offsets[element + 1])
    return Document(visits.place + element, visits.visit, key_of(visits, element), block.words[mine])


def elements_of(block: RowBlock | SampleBlock | Block) -> Any:
    """What the loops over elements read of a block."""
    if isinstance(block, Block):
        return Texts(block.offsets, token_words(*block[1:]))
    return block


@kernel
def token_words(offsets, positions, words, word_offsets):
    """The words of all tokens of a block, uint32 (N,), document by document. See `blocks.corpus.dataset.Block`."""
    by_word = np.empty(positions.size, np.uint32)
    for w in range(words.size):
        by_word[word_offsets[w] : word_offsets[w + 1]] = words[w]
    found = np.empty(positions.size, np.uint32)
    for token in range(positions.size):
        found[token] = by_word[positions[token]]
    return found


def entry_bounds(dataset: Store) -> np.ndarray:
    """int64 (B+1,), the first entry, or token, of each block."""
    return np.concatenate(([0], np.cumsum(dataset.index.cells.sum(axis=1))))


def elements_of_whole(dataset: Store) -> int:
    """How many elements there are in all shards."""
    return dataset.manifest["shard"]["whole"][dataset.counted]


def elements_before(dataset: Store) -> int | None:
    """How many elements there are in the shards before this one; None if it is no run of the elements of the whole."""
    return dataset.manifest["shard"].get("first")


def tiny_block(dataset: Store) -> Any:
    """What `elements_of` gives, of no element, for compiling."""
    offsets, columns, values = np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32)
    numbers, labels = np.empty(0, np.uint64), np.empty(0)
    for array in (offsets, columns, values, numbers, labels):
        array.setflags(write=False)  # as mapped files are; to numba that is another type
    if isinstance(dataset, Dataset):
        return Texts(offsets, np.empty(0, np.uint32))
    if isinstance(dataset, Samples):
        return SampleBlock(numbers, labels, offsets, columns, values)
    return RowBlock(columns, offsets, columns, values)
