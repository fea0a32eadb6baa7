"""A corpus: documents and their words, made by `ooc ingest` from texts or bags of words.

    manifest.json     counts, tables of blocks and slices, checksums, how it was made: the commit point
    vocabulary.txt    word i on line i (UTF-8), in the order of results
    documents.txt     name of document i on line i; absent if the documents have no names
    index.h5          words of each slice, their frequencies, tokens of each cell
    topics.h5         known topics of synthetic documents; absent in others
    documents/        table of the documents with the columns of --keep, in Parquet files; absent without
    whole.h5          of a shard: its documents in the whole dataset, and the word frequencies there
    blocks/00000.h5   documents of a block, and positions of their tokens in word-major order
    slices/00000.h5   runs of the tokens of a slice's words in all blocks (derived from the blocks)

Internally words are numbered by rank: slice by slice, most frequent first. `CorpusIndex.word_ids` gives the line in
vocabulary.txt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from blocks.arrays import Float32, Int64, Uint32, Uint64
from blocks.bounds_checks import require_below, require_cells, require_offsets, require_runs, require_valid
from blocks.documents.document_table import DocumentTable, DocumentTableEntry
from blocks.schemas import ArrayFileEntry, Count, DatasetManifest, FileEntry, ShardEntry
from blocks.stored_dataset import StoredDataset, WholeDatasetEntry, iterate_lines, read_lines

if TYPE_CHECKING:
    from blocks.corpus.incremental_writer import CorpusWriter


class TokenBlock(NamedTuple):
    """Immutable data of one block with D documents and N tokens of n distinct words."""

    documents: Uint64  # (D,), index of each document in the original order
    offsets: Int64  # (D+1,), start of each document in `positions`
    positions: Uint32  # (N,), word-major position of each token; ascending within a document
    words: Uint32  # (n,), ranks of the words that occur, ascending
    word_offsets: Int64  # (n+1,), start of each word's tokens in word-major order


class WordSlice(NamedTuple):
    """Tokens of the W words of a slice, as runs in the word-major order of each block."""

    run_offsets: Int64  # (W+1,), start of each word's runs
    blocks: Uint32  # (R,), block of each run
    starts: Uint32  # (R,), word-major position of the start of each run
    lengths: Uint32  # (R,), number of tokens in each run
    token_offsets: Int64  # (W+1,), cumulative number of tokens of the slice's words


class CorpusIndex(NamedTuple):
    """Words by rank, and the grid of B blocks and S slices."""

    word_ids: Uint32  # (V,), line in vocabulary.txt (from 0) of the word at each rank
    frequencies: Int64  # (V,), number of tokens of the word at each rank
    document_frequencies: Int64  # (V,), number of documents that contain the word at each rank
    slice_bounds: Int64  # (S+1,), first rank of each slice
    cells: Int64  # (B, S), number of tokens in each cell


class PlantedTopics(NamedTuple):
    """Known topics of synthetic data: the words of each topic, which may repeat, and their probabilities."""

    offsets: Int64  # (K+1,), start of each topic
    words: Uint32  # (n,), line in vocabulary.txt (from 0)
    probabilities: Float32  # (n,)


class CorpusTextFileEntries(TypedDict):
    """Manifest entries of the text files."""

    vocabulary: FileEntry
    documents: NotRequired[FileEntry]


class CorpusCounts(TypedDict):
    """Counts of the whole dataset that a shard belongs to."""

    identity: str
    hash: str
    documents: Count
    tokens: Count


class CorpusShardEntry(ShardEntry):
    """The "shard" entry of a shard's manifest."""

    whole: CorpusCounts


class CorpusBlockEntry(ArrayFileEntry):
    """Manifest entry for a block."""

    documents: Count
    tokens: Count
    longest: Count
    cells: list[Count]


class CorpusManifest(DatasetManifest):
    """Manifest of a corpus."""

    texts: CorpusTextFileEntries
    documents: Count
    tokens: Count
    vocabulary_size: Count
    part_tokens: Annotated[int, Meta(ge=1, lt=1 << 32)]
    blocks: list[CorpusBlockEntry]
    slices: list[ArrayFileEntry]
    planted: NotRequired[ArrayFileEntry]
    shard: NotRequired[CorpusShardEntry]
    table: NotRequired[DocumentTableEntry]


class WholeCorpusCounts(NamedTuple):
    """Counts of the whole dataset that a shard belongs to."""

    documents: int
    tokens: int
    frequencies: np.ndarray  # int64 (V,), number of tokens of the word at each rank


class Dataset(StoredDataset):
    """A corpus opened for reading; a sample is a token.

    Attributes, in addition to the attributes of `StoredDataset`: `documents`, `tokens` and `vocabulary_size`, counts of
    this dataset; `whole`, counts of the complete dataset if this is a shard, else of this dataset.
    """

    kind = "corpus"
    counted = "documents"
    unit = "tokens"
    rate = "tokens_per_s"
    holds = CorpusManifest
    whole_holds = WholeDatasetEntry

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.documents: int = self.manifest["documents"]
        self.tokens: int = self.manifest["tokens"]
        self.vocabulary_size: int = self.manifest["vocabulary_size"]
        self.samples, self.part_size = self.tokens, self.manifest["part_tokens"]
        self.index = self._open_index(self.manifest["index"])

    @staticmethod
    def create(
        path: str | Path,
        *,
        vocabulary: Sequence[str] | None = None,
        vocab_from: str | Path | None = None,
        text_column: str = "text",
        name_column: str | None = None,
        keep: str | Sequence[str] = (),
        seed: int = 0,
        memory: int | str | None = None,
        overwrite: bool = False,
        **options: Any,
    ) -> AbstractContextManager[CorpusWriter]:
        """Write a new corpus document by document, in memory that does not grow with the corpus.

        Use it in a ``with`` block: the corpus appears at `path` when the block ends, unless the block raises. The files
        are byte for byte what `ooc ingest jsonl` writes for the same documents, except for the record of the input.

        Parameters
        ----------
        path : str or Path
            Directory of the corpus, which must not exist.
        vocabulary : sequence of str, optional
            The words to keep, in this order. By default, all words of the documents in alphabetical order.
        vocab_from : str or Path, optional
            A corpus whose vocabulary is used, for example for documents on which a model will be evaluated.
        text_column, name_column : str
            Columns of data frames and pyarrow tables that hold the documents and their names.
        keep : str or sequence of str
            Columns of data frames, or of ``add(..., columns=...)``, to keep in the document table; "text" keeps the
            texts, "all" keeps all columns. Requires pyarrow.
        seed : int
            Seed for shuffling the documents into blocks.
        memory : int or str, optional
            Memory budget of this process, in bytes or as "2GB"; by default a quarter of the free memory.
        overwrite : bool
            Replace an existing dataset at `path`.
        **options
            Tokenization: ``token_pattern``, ``lower``, ``stop_words``, ``ngrams``, ``segment``. Word filters:
            ``min_df``, ``max_df``, ``max_vocab``, ``min_npmi``. Layout on disk:
            ``block_tokens``, ``part_tokens``, ``slices``. See the options of `ooc ingest`.

        Returns
        -------
        context manager of CorpusWriter
            Its method ``add(documents, names=None, columns=None)`` adds documents.

        Raises
        ------
        RequestError
            If `path` exists, an option is invalid, or no documents were added.
        """
        from blocks.corpus.incremental_writer import create_corpus  # which reads corpora

        columns: dict[str, Any] = {"text_column": text_column, "name_column": name_column}
        base = None if vocab_from is None else str(vocab_from)
        columns["keep"] = (keep,) if isinstance(keep, str) else tuple(keep)
        chosen = {**columns, "vocab_from": base, "seed": seed, "overwrite": overwrite, **options}
        return create_corpus(str(path), vocabulary=vocabulary, memory=memory, **chosen)

    def _open_index(self, entry: dict[str, Any]) -> CorpusIndex:
        path, size = self.path / entry["file"], self.vocabulary_size
        index = CorpusIndex(**self.map(entry, CorpusIndex))
        require_valid({array.size for array in index[:3]} == {size}, path, f"its arrays do not match {size} words")
        require_below(path, "words", index.word_ids, size)
        require_offsets(path, "slice_bounds", index.slice_bounds, self.slice_count, size)
        require_cells(path, index.cells, self.block_count, self.slice_count, self.tokens)
        return index._replace(cells=index.cells.reshape(self.block_count, self.slice_count))

    @property
    def block_bounds(self) -> np.ndarray:
        return np.concatenate(([0], np.cumsum([entry["documents"] for entry in self.manifest["blocks"]])))

    def block(self, number: int) -> TokenBlock:
        """Map the data of a block."""
        return self.mapped("blocks", number, TokenBlock, self._check_block)

    def _check_block(self, number: int, path: Path, block: TokenBlock) -> None:
        tokens = int(self.index.cells[number].sum())
        require_offsets(path, "offsets", block.offsets, block.documents.size, tokens)
        require_offsets(path, "word_offsets", block.word_offsets, block.words.size, tokens)
        require_valid(block.positions.size == tokens, path, f"its positions do not match {tokens} tokens")
        require_below(path, "positions", block.positions, tokens)
        require_below(path, "words", block.words, self.vocabulary_size)
        require_below(path, "documents", block.documents, self.documents)

    def slice(self, number: int) -> WordSlice:
        """Map the runs of a slice."""
        return self.mapped("slices", number, WordSlice, self._check_slice)

    def _check_slice(self, number: int, path: Path, runs: WordSlice) -> None:
        words = int(np.diff(self.index.slice_bounds)[number])
        ends = np.cumsum(self.index.cells[:, : number + 1], axis=1)[:, -1]
        cells = np.stack((ends - self.index.cells[:, number], ends), axis=1)
        require_offsets(path, "run_offsets", runs.run_offsets, words, runs.blocks.size)
        require_offsets(path, "token_offsets", runs.token_offsets, words, int(self.index.cells[:, number].sum()))
        require_runs(path, runs.blocks, runs.starts, runs.lengths, cells)

    @cached_property
    def whole(self) -> WholeCorpusCounts:
        arrays = self.of_whole()
        if arrays is None:
            return WholeCorpusCounts(self.documents, self.tokens, self.index.frequencies)
        told, path = self.manifest["shard"]["whole"], self.path / self.manifest["shard"]["index"]["file"]
        require_valid(
            arrays["frequencies"].size == self.vocabulary_size, path, "it has more or fewer words than the shard"
        )
        return WholeCorpusCounts(told["documents"], told["tokens"], arrays["frequencies"])

    def column_samples(self) -> np.ndarray:
        return self.whole.frequencies

    def originals(self) -> np.ndarray:
        """Return the index of each document in the whole dataset, uint64 (D,), ascending; 0, 1, ... if this is not a
        shard."""
        arrays = self.of_whole()
        if arrays is None:
            return np.arange(self.documents, dtype=np.uint64)
        path = self.path / self.manifest["shard"]["index"]["file"]
        require_valid(arrays["numbers"].size == self.documents, path, "it has more or fewer documents than the shard")
        return arrays["numbers"]

    @property
    def longest_document(self) -> int:
        """Return the number of tokens in the longest document."""
        return max((entry["longest"] for entry in self.manifest["blocks"]), default=0)

    def document_lengths(self) -> np.ndarray:
        """Return the number of tokens in each document, int64 (D,), in the original order."""
        lengths = np.empty(self.documents, np.int64)
        for number in range(self.block_count):
            block = self.block(number)
            lengths[block.documents.astype(np.int64)] = np.diff(block.offsets)
        return lengths

    def block_tokens(self) -> np.ndarray:
        """Return the number of tokens in each block, int64 (B,)."""
        return self.index.cells.sum(axis=1, dtype=np.int64)

    def vocabulary(self) -> list[str]:
        """Return all words in the original order."""
        return read_lines(self.path / self.manifest["texts"]["vocabulary"]["file"], self.vocabulary_size)

    @property
    def batches(self) -> list[dict[str, Any]]:
        """Return records of how the documents were ingested and appended. See `blocks.schemas.IngestionRecord`."""
        made = self.manifest["made"]
        return [made, *made.get("appended", [])]

    def document_names(self) -> list[str] | None:
        """Return the names of all documents in the original order; None if they have no names."""
        entry = self.manifest["texts"].get("documents")
        return read_lines(self.path / entry["file"], self.documents) if entry else None

    def each_name(self) -> Iterator[str]:
        """Yield the name of each document; empty if it has no name."""
        entry = self.manifest["texts"].get("documents")
        return iterate_lines(self.path / entry["file"], self.documents) if entry else repeat("", self.documents)

    def table(self) -> DocumentTable | None:
        """Return the document table; None if no columns were kept."""
        entry = self.manifest.get("table")
        return DocumentTable(self.path, entry, self.documents) if entry else None

    def planted_topics(self) -> dict[str, np.ndarray] | None:
        """Return the topics from which synthetic documents were drawn. See `blocks.corpus.synthetic.plant_topics`."""
        if "planted" not in self.manifest:
            return None
        entry = self.manifest["planted"]
        planted, path = self.map(entry, PlantedTopics), self.path / entry["file"]
        require_offsets(path, "offsets", planted["offsets"], planted["offsets"].size - 1, planted["words"].size)
        require_below(path, "words", planted["words"], self.vocabulary_size)
        return planted
