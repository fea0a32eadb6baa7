"""A corpus: documents and their words, as `ooc ingest` makes it of texts and bags of words.

    manifest.json     counts, the table of blocks and slices, checksums, how it was made: the commit point
    vocabulary.txt    word i on line i (UTF-8), in the order in which results are given
    documents.txt     name of document i on line i; absent if the documents have no names
    index.h5          words of each slice, their frequencies, tokens of each cell
    topics.h5         the topics that synthetic documents were drawn from; absent in others
    whole.h5          of a shard: which documents of the whole it has, and how frequent words are there
    blocks/00000.h5   the documents of a block and where their tokens lie in word-major order
    slices/00000.h5   for the words of a slice, the runs of their tokens in all blocks (derived from the blocks)

Inside, a word goes by its rank: slice by slice, most frequent first. `Index.word_ids` gives the line in vocabulary.txt.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.store import Store, read_lines


class Block(NamedTuple):
    """The immutable data of one block of D documents and N tokens; n of the vocabulary's words occur in it."""

    documents: np.ndarray  # uint64 (D,), number of each document in the original order
    offsets: np.ndarray  # int64 (D+1,), where each document begins in `positions`
    positions: np.ndarray  # uint32 (N,), word-major position of each token; ascending within a document
    words: np.ndarray  # uint32 (n,), ranks of the words that occur, ascending
    word_offsets: np.ndarray  # int64 (n+1,), where the tokens of each begin in word-major order


class Slice(NamedTuple):
    """Where the tokens of a slice's W words lie, as runs in the word-major order of each block."""

    run_offsets: np.ndarray  # int64 (W+1,), where the runs of each word begin
    blocks: np.ndarray  # uint32 (R,), block of each run
    starts: np.ndarray  # uint32 (R,), word-major position at which it begins
    lengths: np.ndarray  # uint32 (R,), tokens in it
    token_offsets: np.ndarray  # int64 (W+1,), tokens of the slice's words, cumulated


class Index(NamedTuple):
    """The words by rank and the grid of B blocks and S slices."""

    word_ids: np.ndarray  # uint32 (V,), line in vocabulary.txt (from 0) of the word of each rank
    frequencies: np.ndarray  # int64 (V,), tokens of the word of each rank
    document_frequencies: np.ndarray  # int64 (V,), documents it occurs in
    slice_bounds: np.ndarray  # int64 (S+1,), first rank of each slice
    cells: np.ndarray  # int64 (B, S), tokens of each cell


class Whole(NamedTuple):
    """Counts of the dataset that a shard is of."""

    documents: int
    tokens: int
    frequencies: np.ndarray  # int64 (V,), tokens of the word of each rank


class Dataset(Store):
    """A corpus opened for reading.

    Attributes besides those of every store: `documents`, `tokens`, `vocabulary_size`; a sample is a token. `whole`:
    counts of the dataset that it is a shard of; its own if it is none.
    """

    kind = "corpus"
    counted = "documents"
    unit = "tokens"
    rate = "tokens_per_s"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.documents: int = self.manifest["documents"]
        self.tokens: int = self.manifest["tokens"]
        self.vocabulary_size: int = self.manifest["vocabulary_size"]
        self.samples, self.part_size = self.tokens, self.manifest["part_tokens"]
        arrays = self.map(self.manifest["index"])
        cells = arrays.pop("cells").reshape(self.block_count, self.slice_count)
        self.index = Index(**arrays, cells=cells)

    def block(self, number: int) -> Block:
        """Map the data of a block."""
        return Block(**self.map(self.manifest["blocks"][number]))

    def slice(self, number: int) -> Slice:
        """Map the runs of a slice."""
        return Slice(**self.map(self.manifest["slices"][number]))

    @cached_property
    def whole(self) -> Whole:
        arrays = self.of_whole()
        if arrays is None:
            return Whole(self.documents, self.tokens, self.index.frequencies)
        told = self.manifest["shard"]["whole"]
        return Whole(told["documents"], told["tokens"], arrays["frequencies"])

    def column_samples(self) -> np.ndarray:
        return self.whole.frequencies

    def originals(self) -> np.ndarray:
        """uint64 (D,), the number in the whole of each document, ascending; 0, 1, ... if it is no shard."""
        arrays = self.of_whole()
        return np.arange(self.documents, dtype=np.uint64) if arrays is None else arrays["numbers"]

    @property
    def longest_document(self) -> int:
        """Tokens of the longest document."""
        return max((entry["longest"] for entry in self.manifest["blocks"]), default=0)

    def document_lengths(self) -> np.ndarray:
        """int64 (D,), tokens of each document, in the original order."""
        lengths = np.empty(self.documents, np.int64)
        for number in range(self.block_count):
            block = self.block(number)
            lengths[block.documents.astype(np.int64)] = np.diff(block.offsets)
        return lengths

    def block_tokens(self) -> np.ndarray:
        """int64 (B,), tokens of each block."""
        return self.index.cells.sum(axis=1, dtype=np.int64)

    def vocabulary(self) -> list[str]:
        """All words, in the order in which results are given."""
        return read_lines(self.path / self.manifest["texts"]["vocabulary"]["file"])

    def document_names(self) -> list[str] | None:
        """Names of all documents in the original order, or None if they have none."""
        entry = self.manifest["texts"].get("documents")
        return read_lines(self.path / entry["file"]) if entry else None

    def planted_topics(self) -> dict[str, np.ndarray] | None:
        """The topics that synthetic documents were drawn from, as `blocks.corpus.synthetic.plant` returns them."""
        return self.map(self.manifest["planted"]) if "planted" in self.manifest else None
