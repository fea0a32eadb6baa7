"""Messages to and answers from the workers that ingest a corpus, besides `LinesChunk`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blocks.archives import ArchiveMember
from blocks.corpus.hold_out import HeldOutShare
from blocks.corpus.rules import Rules
from blocks.documents.kept import Kept
from blocks.documents.writing import SpilledTable
from blocks.ingestion.messages import LinesChunk, SpilledPiece
from blocks.sources import Opening

WORDS = "words"  # the kind of names


class Reading(NamedTuple):
    """How chunks are read; the same for all workers."""

    spill: str  # the directory of spill files
    rules: Rules
    skip: bool  # leave bad records out
    bags: bool  # whether chunks have words that are numbered already
    vocabulary: list[str] | None  # fixed, or None to collect one
    vocabulary_bytes: int  # a worker may use for its own
    longest: int  # tokens that a document of a UCI file may have
    opening: Opening = Opening()
    known: str | None = None  # the file of the names that the dataset has, see `blocks.corpus.known`
    skip_known: bool = False
    kept: Kept | None = None  # columns of the table of documents
    share: HeldOutShare | None = None  # the documents to read, None for all


@dataclass
class FilesChunk:
    """Whole files that the worker reads: path and name of each."""

    number: int
    source: str
    files: list[tuple[str, str]] = field(repr=False)


@dataclass
class MembersChunk:
    """The content of whole files of an archive or a stream."""

    number: int
    source: str
    members: list[ArchiveMember] = field(repr=False)


@dataclass
class TextsChunk:
    """Rows of a table, the first one with number `row`: text, name and values of the kept columns of each."""

    number: int
    source: str
    row: int
    texts: Sequence[tuple[str | list[str], str, Mapping[str, Any] | None]] = field(repr=False)


@dataclass
class BagsChunk:
    """Some documents as words of a fixed vocabulary: ids uint32 (N,), lengths uint32 (D,), and the D names and values
    of the kept columns."""

    number: int
    ids: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)
    names: Sequence[str] = field(repr=False)
    rows: Sequence[Mapping[str, Any]] = field(repr=False)


Chunk = LinesChunk | FilesChunk | MembersChunk | TextsChunk


class Parsed(NamedTuple):
    """Result of parsing a chunk. The document names follow the last piece in the spill file."""

    pieces: Sequence[SpilledPiece]
    name_bytes: int = 0  # of the names, one per line; 0 if none has one
    first_document: int = 0  # UCI files number their documents, from 0
    lines: int = 0  # of a UCI file
    skipped: int = 0
    first_problem: str = ""
    stop_words: int = 0  # tokens dropped as stop words
    known: int = 0  # documents left out because the dataset has them
    unknown: int = 0  # tokens dropped because a fixed vocabulary lacks their word
    table: SpilledTable | None = None  # kept columns

    @property
    def documents(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(piece.entries for piece in self.pieces)
