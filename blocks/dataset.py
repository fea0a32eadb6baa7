"""A dataset: the directory that `ooc ingest` makes once and every run reads.

    manifest.json     counts, the table of blocks and slices, checksums, how it was made: the commit point
    vocabulary.txt    word i on line i (UTF-8), in the order in which results are given
    documents.txt     name of document i on line i; absent if the documents have no names
    index.h5          words of each slice, their frequencies, tokens of each cell
    topics.h5         the topics that synthetic documents were drawn from; absent in others
    blocks/00000.h5   the documents of a block and where their tokens lie in word-major order
    slices/00000.h5   for the words of a slice, the runs of their tokens in all blocks (derived from the blocks)

Inside, a word goes by its rank: slice by slice, most frequent first. `Index.word_ids` gives the line in vocabulary.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.arrays import map_arrays
from blocks.errors import WorkFailed
from blocks.files import checksum, read_json

SCHEMA = 1
MANIFEST = "manifest.json"


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


class Dataset:
    """A dataset opened for reading.

    Attributes: `documents`, `tokens`, `vocabulary_size`, `block_count`, `slice_count`, `part_tokens` (the size of the
    parts in which work is dealt and random streams are keyed), `identity` (changes when any data changes).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = read_json(self.path / MANIFEST, what="a dataset made by `ooc ingest`", schema=SCHEMA)
        self.identity: str = self.manifest["identity"]
        self.documents: int = self.manifest["documents"]
        self.tokens: int = self.manifest["tokens"]
        self.vocabulary_size: int = self.manifest["vocabulary_size"]
        self.part_tokens: int = self.manifest["part_tokens"]
        self.block_count = len(self.manifest["blocks"])
        self.slice_count = len(self.manifest["slices"])
        arrays = self._map(self.manifest["index"])
        cells = arrays.pop("cells").reshape(self.block_count, self.slice_count)
        self.index = Index(**arrays, cells=cells)

    def _map(self, entry: dict[str, Any]) -> dict[str, np.ndarray]:
        path = self.path / entry["file"]
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise WorkFailed(
                f"{path} is missing",
                f"Make the dataset again, or restore the file; it had {entry['bytes']} bytes.",
            ) from None
        if found != entry["bytes"]:
            raise WorkFailed(
                f"{path} is damaged: {found} bytes, expected {entry['bytes']}",
                f"See what is left with: ooc verify {self.path}",
            )
        return map_arrays(path, entry["arrays"])

    def block(self, number: int) -> Block:
        """Map the data of a block."""
        return Block(**self._map(self.manifest["blocks"][number]))

    def slice(self, number: int) -> Slice:
        """Map the runs of a slice."""
        return Slice(**self._map(self.manifest["slices"][number]))

    @property
    def longest_document(self) -> int:
        """Tokens of the longest document."""
        return max((entry["longest"] for entry in self.manifest["blocks"]), default=0)

    @property
    def data_bytes(self) -> int:
        """Bytes of the files of blocks and slices."""
        return sum(entry["bytes"] for entry in (*self.manifest["blocks"], *self.manifest["slices"]))

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
        """The topics that synthetic documents were drawn from, as `blocks.synthetic.plant` returns them."""
        return self._map(self.manifest["planted"]) if "planted" in self.manifest else None

    def files(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Every file of the dataset with its manifest entry (bytes and checksum)."""
        planted = self.manifest.get("planted")
        entries = [
            self.manifest["index"],
            *([planted] if planted else []),
            *self.manifest["texts"].values(),
            *self.manifest["blocks"],
            *self.manifest["slices"],
        ]
        for entry in entries:
            yield self.path / entry["file"], entry


def check_file(path: Path, entry: dict[str, Any]) -> str | None:
    """What is wrong with a file, compared with its manifest entry, or None."""
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"{path}: {size} bytes, expected {entry['bytes']}"
        return None if checksum(path) == entry["checksum"] else f"{path}: its checksum does not match"
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"


def parts(offsets: np.ndarray, part_tokens: int) -> np.ndarray:
    """Cut a run of documents or words into parts of about `part_tokens` tokens each.

    offsets: int64 (n+1,), tokens cumulated. Returns int64 (P+1,), the item at which each part begins; the last is n.
    Each part but the last holds at least one item; an item is never split.
    """
    marks = np.arange(part_tokens, offsets[-1], part_tokens)
    inner = np.searchsorted(offsets, marks)
    return np.unique(np.concatenate(([0], inner, [offsets.size - 1])))


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that `write_lines` wrote."""
    return path.read_bytes().decode("utf-8").split("\n")[:-1]  # as bytes: a carriage return may stand in a word
