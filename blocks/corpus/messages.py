"""What ingestion asks of its workers, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.archives import Member
from blocks.corpus.records import Columns
from blocks.corpus.rules import Rules
from blocks.corpus.uci import Header
from blocks.sources import Opening


class Reading(NamedTuple):
    """How chunks are read; the same for all workers."""

    kind: str  # uci, lines, files, jsonl or csv
    spill: str  # the directory of spill files
    rules: Rules
    skip: bool  # leave bad records out
    text_field: str
    name_field: str | None
    vocabulary: list[str] | None  # fixed, or None to collect one
    vocabulary_bytes: int  # a worker may use for its own
    longest: int  # tokens that a document of a UCI file may have
    opening: Opening = Opening()
    known: str | None = None  # the file of the names that the dataset has, see `blocks.corpus.known`
    skip_known: bool = False


@dataclass
class Chunk:
    """Some whole records of one input; or, without data, some whole files, files of an archive, or rows of a table.

    line: the number of the first line or row.
    """

    number: int
    source: str
    line: int
    data: bytes = field(repr=False)
    header: Header | None = None
    columns: Columns | None = None
    files: list[tuple[str, str]] | None = field(default=None, repr=False)
    members: list[Member] | None = field(default=None, repr=False)
    texts: Sequence[tuple[str, str]] | None = field(default=None, repr=False)  # with the name of each


class Spilled(NamedTuple):
    """Where the documents of a chunk went: lengths uint32 (D,), then ids uint32 (N,), then their names.

    pieces: documents and tokens of each of several such pieces, which lie one after the other; empty if it is one.
    """

    worker: int  # process id: whose numbering the ids have
    offset: int
    documents: int
    tokens: int
    name_bytes: int = 0  # of the names, one per line; 0 if none has one
    first_document: int = 0  # UCI files number their documents, from 0
    entries: int = 0  # lines of a UCI file
    skipped: int = 0
    first_problem: str = ""
    stop_words: int = 0  # tokens dropped as stop words
    known: int = 0  # documents left out because the dataset has them
    unknown: int = 0  # tokens dropped because a fixed vocabulary lacks their word
    pieces: tuple[tuple[int, int], ...] = ()


class Words(NamedTuple):
    """The words of a worker: files with one word per line, and with int64 tokens (V,) and documents (V,)."""

    worker: int
    terms: str | None  # None if ids are those of the vocabulary that all share
    counts: str
    size: int


class Piece(NamedTuple):
    """Documents in a spill file, with the file that holds the uint32 rank of each of its ids; `before` empty ones."""

    path: str
    offset: int
    before: int
    documents: int
    tokens: int
    ranks: str


@dataclass
class Run:
    """Consecutive pieces to be sorted by bucket."""

    path: str
    pieces: list[Piece] = field(repr=False)
    first_document: int
    seed: int
    buckets: int


class SortedRun(NamedTuple):
    """A file of documents uint64, lengths uint32 and ranks uint32 by bucket; bounds int64 (buckets+1,)."""

    path: str
    document_bounds: np.ndarray
    token_bounds: np.ndarray


@dataclass
class Encode:
    """A block to be written: some consecutive buckets of all runs. `number` keys the shuffle and names the file."""

    root: str
    number: int
    segments: list[tuple[str, tuple[int, int, int], tuple[int, int]]] = field(repr=False)
    slice_bounds: np.ndarray = field(repr=False)
    seed: int = 0


def spill_file(folder: str | Path, worker: int) -> Path:
    """Where a worker puts the documents it has parsed."""
    return Path(folder) / f"documents-{worker}"
