"""Elements that the stochastic engine passes to `process`, one after the other.

Arrays are read-only views of a block. number: index of the element in stored order. visit: number of times the element
was processed before. key: uint64, key of the random stream (`uniform`) of this visit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, kernel
from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.ratings.matrix import Matrix, MatrixRowBlock
from blocks.samples.samples import SampleBlock, Samples
from blocks.stored_dataset import StoredDataset
from ooc import rng


class Row(NamedTuple):
    """A row of a matrix.

    columns: uint32 (n,), ranks of columns.
    values: float32 (n,).
    """

    number: int
    visit: int
    key: int
    columns: np.ndarray
    values: np.ndarray


class Sample(NamedTuple):
    """A sample with a label (float64).

    columns: uint32 (n,), ranks of columns.
    values: float32 (n,).
    """

    number: int
    visit: int
    key: int
    columns: np.ndarray
    values: np.ndarray
    label: float


class Document(NamedTuple):
    """A document.

    words: uint32 (n,), rank of each token's word.
    """

    number: int
    visit: int
    key: int
    words: np.ndarray


class ElementVisits(NamedTuple):
    """A visit to some elements of a block.

    first, last: bounds (last exclusive) of the elements within the block.
    place: index of the block's first element among all elements.
    visit: number of earlier visits.
    key: uint64, key of the stream of the elements' keys.
    """

    first: int
    last: int
    place: int
    visit: int
    key: np.uint64


class DocumentsBlock(NamedTuple):
    """The D documents of a block.

    offsets: int64 (D+1,).
    words: uint32 (N,), rank of each token's word.
    """

    offsets: np.ndarray
    words: np.ndarray


KINDS: dict[type[StoredDataset], Any] = {Matrix: Row, Samples: Sample, Dataset: Document}


@inlined_kernel
def key_of(visits, element):
    """Return the key of the random stream for a visit of an element."""
    return rng.random_bits(visits.key, np.uint64(visits.place + element))


@inlined_kernel
def uniform(key, n):
    """Return the n-th uniform number of the stream `key`, in [0, 1).

    n: any integer.
    """
    return rng.uniform(key, np.uint64(n))


@inlined_kernel
def row_at(block, element, visits):
    """Return an element of a block of a matrix as a `Row`."""
    span = slice(block.offsets[element], block.offsets[element + 1])
    key = key_of(visits, element)
    return Row(visits.place + element, visits.visit, key, block.columns[span], block.values[span])


@inlined_kernel
def sample_at(block, element, visits):
    """Return an element of a block of samples as a `Sample`."""
    span = slice(block.offsets[element], block.offsets[element + 1])
    key, label = key_of(visits, element), block.labels[element]
    return Sample(visits.place + element, visits.visit, key, block.columns[span], block.values[span], label)


@inlined_kernel
def document_at(block, element, visits):
    """Return an element of a block of documents as a `Document`."""
    span = slice(block.offsets[element], block.offsets[element + 1])
    return Document(visits.place + element, visits.visit, key_of(visits, element), block.words[span])


def element_arrays(block: MatrixRowBlock | SampleBlock | TokenBlock) -> Any:
    """Return the arrays of a block that loops over elements read."""
    if isinstance(block, TokenBlock):
        return DocumentsBlock(block.offsets, token_words(*block[1:]))
    return block


@kernel
def token_words(offsets, positions, words, word_offsets):
    """Return the words of a block's tokens in document order, uint32 (N,). See `blocks.corpus.dataset.TokenBlock`."""
    by_word = np.empty(positions.size, np.uint32)
    for w in range(words.size):
        by_word[word_offsets[w] : word_offsets[w + 1]] = words[w]
    found = np.empty(positions.size, np.uint32)
    for token in range(positions.size):
        found[token] = by_word[positions[token]]
    return found


def entry_bounds(dataset: StoredDataset) -> np.ndarray:
    """Return the first entry or token of each block, followed by their total count, int64 (B+1,)."""
    return np.concatenate(([0], np.cumsum(dataset.index.cells.sum(axis=1))))


def total_elements(dataset: StoredDataset) -> int:
    """Return the number of elements in all shards."""
    return dataset.manifest["shard"]["whole"][dataset.counted]


def elements_before(dataset: StoredDataset) -> int | None:
    """Return the number of elements in the shards before this one; None if this shard is not a contiguous range of the
    elements of the whole dataset."""
    return dataset.manifest["shard"].get("first")


def tiny_block(dataset: StoredDataset) -> Any:
    """Return the arrays (see `element_arrays`) of a block without elements, for compiling loops."""
    offsets, columns, values = np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32)
    numbers, labels = np.empty(0, np.uint64), np.empty(0)
    for array in (offsets, columns, values, numbers, labels):
        array.setflags(write=False)  # read-only like mapped files, as numba distinguishes these types
    if isinstance(dataset, Dataset):
        return DocumentsBlock(offsets, np.empty(0, np.uint32))
    if isinstance(dataset, Samples):
        return SampleBlock(numbers, labels, offsets, columns, values)
    return MatrixRowBlock(columns, offsets, columns, values)
