"""Messages to the workers that ingest a corpus, and their answers, besides `LineChunk`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blocks.archives import ArchiveMember
from blocks.corpus.held_out_fraction import HeldOutFraction
from blocks.corpus.tokenization_rules import TokenizationRules
from blocks.documents.kept_columns import KeptColumns
from blocks.documents.table_writer import SpilledDocumentColumns
from blocks.ingestion.messages import LineChunk, SpilledRows
from blocks.text_inputs import InputOpenOptions

WORDS = "words"  # the kind of names that workers number


class CorpusReaderSettings(NamedTuple):
    """Settings for reading chunks; the same for all workers."""

    spill: str  # the directory of spill files
    rules: TokenizationRules
    skip: bool  # leave bad records out
    bags: bool  # whether the words in chunks are numbered already
    vocabulary: list[str] | None  # fixed, or None to collect one
    vocabulary_bytes: int  # memory limit of a worker's own vocabulary
    longest: int  # maximum number of tokens in a document of a UCI file
    opening: InputOpenOptions = InputOpenOptions()
    known: str | None = None  # file with the names that the dataset has, see `blocks.corpus.known_documents`
    skip_known: bool = False
    kept: KeptColumns | None = None  # columns of the document table
    share: HeldOutFraction | None = None  # the documents to read, None for all
    left_out: str | None = None  # file with the duplicates to leave out, see `blocks.corpus.duplicates`


@dataclass
class FilesChunk:
    """Message: read and parse whole files, each given by path and name."""

    number: int
    source: str
    files: list[tuple[str, str]] = field(repr=False)


@dataclass
class ArchiveMembersChunk:
    """The contents of whole files from an archive or a stream."""

    number: int
    source: str
    members: list[ArchiveMember] = field(repr=False)


@dataclass
class TableTextsChunk:
    """Rows of a table.

    row: index of the first row.
    texts: text, name and values of the kept columns of each row.
    """

    number: int
    source: str
    row: int
    texts: Sequence[tuple[str | list[str], str, Mapping[str, Any] | None]] = field(repr=False)


@dataclass
class BagOfWordsChunk:
    """Documents as bags of words over a fixed vocabulary.

    ids: uint32 (N,), word ids.
    lengths: uint32 (D,), document lengths.
    names: document names (D).
    rows: values of the kept columns (D).
    """

    number: int
    ids: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)
    names: Sequence[str] = field(repr=False)
    rows: Sequence[Mapping[str, Any]] = field(repr=False)


Chunk = LineChunk | FilesChunk | ArchiveMembersChunk | TableTextsChunk


@dataclass
class SignChunkTask:
    """Message: hash the documents of a chunk, to find duplicates.

    size: number of values of a signature.
    """

    number: int
    chunk: Chunk = field(repr=False)
    size: int


class ParsedDocumentChunk(NamedTuple):
    """Result of parsing a chunk. The document names follow the last piece in the spill file."""

    pieces: Sequence[SpilledRows]
    name_bytes: int = 0  # size of the names, one per line; 0 if no document has a name
    first_document: int = 0  # index of the first document in a UCI file, from 0
    lines: int = 0  # number of lines of a UCI file
    skipped: int = 0
    first_problem: str = ""
    stop_words: int = 0  # tokens dropped as stop words
    known: int = 0  # documents skipped because the dataset already has them
    unknown: int = 0  # tokens dropped because their word is not in the fixed vocabulary
    table: SpilledDocumentColumns | None = None  # kept columns

    @property
    def documents(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(piece.entries for piece in self.pieces)
