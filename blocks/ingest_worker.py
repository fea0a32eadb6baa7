"""What a worker process does during ingestion: parse and tokenise chunks, sort runs by bucket, encode blocks.

Bulk goes through files in the spill directory, each written by one worker; answers hold small facts only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from blocks import records, uci
from blocks.compiled import prepare
from blocks.corpus_writer import write_block
from blocks.errors import RequestError
from blocks.files import disk_errors
from blocks.layout import word_major
from blocks.shuffle import partition, shuffled
from blocks.sources import read_whole
from blocks.tokens import Counts, Rules, Tokenizer


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


@dataclass
class Chunk:
    """Some whole records of one input; or, without data, some whole files."""

    number: int
    source: str
    line: int
    data: bytes = field(repr=False)
    header: uci.Header | None = None
    columns: records.Columns | None = None
    files: list[tuple[str, str]] | None = field(default=None, repr=False)


class Spilled(NamedTuple):
    """Where the documents of a chunk went: lengths uint32 (D,), then ids uint32 (N,), then their names."""

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
    unknown: int = 0  # tokens dropped because a fixed vocabulary lacks their word


@dataclass
class Report:
    """Ask a worker for its words and their counts; it forgets them. The answer is a `Words`, or None if it had none."""


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


class IngestWorker:
    """Answers the messages above."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._tokenizer = Tokenizer(reading.rules, reading.vocabulary if reading.kind != "uci" else None)
        self._counts = Counts()
        self._spill: IO[bytes] | None = None
        self._words = 0  # of a UCI file
        self._maps: dict[str, np.ndarray] = {}
        self._tasks: dict[type, Callable[[Any], Any]] = {
            Chunk: self._parse,
            Report: self._report,
            Run: self._sort,
            Encode: self._encode,
        }

    def warm_up(self) -> None:
        """Run every kernel once, on next to nothing."""
        nothing, none = np.empty(0, np.uint32), np.empty(0, np.int64)
        self._counts.add(nothing, nothing, 0)
        uci.parse(b"1 1 1\n", "", 4, uci.Header(1, 1, 1))
        partition(nothing, nothing, 0, 0, 1)
        shuffled(none.astype(np.uint64), nothing, nothing, 0, 0)
        word_major(nothing, np.zeros(1, np.int64), 1)

    def __call__(self, message: Any) -> Any:
        """Do what a message asks."""
        with disk_errors(Path(self._reading.spill)):
            return self._tasks[type(message)](message)

    def _parse(self, chunk: Chunk) -> Spilled:
        if chunk.header is not None:
            bags = uci.parse(chunk.data, chunk.source, chunk.line, chunk.header)
            self._words = chunk.header.words
            self._counts.add(bags.words, bags.lengths, self._words)
            return self._spilled(bags.lengths, bags.words)._replace(
                first_document=bags.first_document, entries=bags.entries
            )
        found = self._documents(chunk)
        ids, lengths, dropped = self._tokenizer(found.texts)
        vocabulary = self._tokenizer.vocabulary
        self._counts.add(ids, lengths, len(vocabulary.fates))
        if self._reading.vocabulary is None and vocabulary.bytes() > self._reading.vocabulary_bytes:
            raise RequestError(
                f"the vocabulary does not fit in memory: {len(vocabulary)} different words so far, at {chunk.source}",
                "Raise --memory, use fewer --workers, or make words fewer with --token-pattern or --ngrams 1.",
            )
        names = "".join(name + "\n" for name in found.names) if records.any_names(found.names) else ""
        return self._spilled(lengths, ids, names.encode("utf-8", "replace"))._replace(
            skipped=found.skipped, first_problem=found.first_problem, stop_words=dropped[1], unknown=dropped[3]
        )

    def _documents(self, chunk: Chunk) -> records.Documents:
        reading = self._reading
        found = records.Documents(reading.skip)
        if chunk.files is not None:
            for path, name in chunk.files:
                records.from_file(read_whole(path), path, name, found)
        elif chunk.columns is not None:
            records.from_csv(chunk.data, chunk.source, chunk.line, chunk.columns, found)
        elif reading.kind == "jsonl":
            at = (chunk.data, chunk.source, chunk.line)
            records.from_jsonl(*at, reading.text_field, reading.name_field, found)
        elif reading.kind == "files":
            records.from_file(chunk.data, chunk.source, chunk.source, found)
        else:
            records.from_lines(chunk.data, chunk.source, chunk.line, found)
        return found

    def _spilled(self, lengths: np.ndarray, ids: np.ndarray, names: bytes = b"") -> Spilled:
        if self._spill is None:
            self._spill = spill_file(self._reading.spill, os.getpid()).open("wb")
        offset = self._spill.tell()
        for array in (lengths, ids):
            self._spill.write(array.data)
        self._spill.write(names)
        self._spill.flush()
        return Spilled(os.getpid(), offset, lengths.size, ids.size, len(names))

    def _report(self, _: Report) -> Words | None:
        if self._spill is None:
            return None
        self._spill.close()
        folder, me = Path(self._reading.spill), os.getpid()
        vocabulary = self._tokenizer.vocabulary
        size = self._words or (len(vocabulary) if self._reading.vocabulary is None else len(self._reading.vocabulary))
        terms = None
        if self._reading.kind != "uci" and self._reading.vocabulary is None:
            terms = folder / f"terms-{me}"
            together = "\n".join(vocabulary)
            if together.count("\n") != max(len(vocabulary) - 1, 0):
                raise RequestError("--token-pattern matches line breaks", "A token may not hold a line break.")
            terms.write_bytes(together.encode("utf-8", "replace"))
        self._counts.add(np.empty(0, np.uint32), np.empty(0, np.uint32), size)
        counts = folder / f"counts-{me}"
        counts.write_bytes(self._counts.tokens[:size].tobytes() + self._counts.documents[:size].tobytes())
        vocabulary.clear()
        del self._counts
        return Words(me, str(terms) if terms else None, str(counts), size)

    def _sort(self, run: Run) -> SortedRun:
        documents = sum(piece.before + piece.documents for piece in run.pieces)
        lengths = np.zeros(documents, np.uint32)
        ranks = np.empty(sum(piece.tokens for piece in run.pieces), np.uint32)
        document = token = 0
        for piece in run.pieces:
            document += piece.before
            if piece.documents:
                with Path(piece.path).open("rb") as file:
                    file.seek(piece.offset)
                    lengths[document : document + piece.documents] = np.fromfile(file, np.uint32, piece.documents)
                    ids = np.fromfile(file, np.uint32, piece.tokens)
                if piece.tokens:
                    ranks[token : token + piece.tokens] = self._ranks(piece.ranks)[ids]
            document += piece.documents
            token += piece.tokens
        *columns, document_bounds, token_bounds = partition(ranks, lengths, run.first_document, run.seed, run.buckets)
        with Path(run.path).open("wb") as file:
            for column in columns:
                file.write(column.data)
        return SortedRun(run.path, document_bounds, token_bounds)

    def _ranks(self, path: str) -> np.ndarray:
        if path not in self._maps:
            self._maps[path] = np.memmap(path, np.uint32, "r")
        return self._maps[path]

    def _encode(self, block: Encode) -> dict[str, Any]:
        columns: list[list[np.ndarray]] = [[], [], []]
        for path, (first, last, in_file), (begin, end) in block.segments:
            with Path(path).open("rb") as file:
                columns[0].append(np.fromfile(file, np.uint64, last - first, offset=8 * first))
                file.seek(0)
                columns[1].append(np.fromfile(file, np.uint32, last - first, offset=8 * in_file + 4 * first))
                file.seek(0)
                columns[2].append(np.fromfile(file, np.uint32, end - begin, offset=12 * in_file + 4 * begin))
        documents, lengths, ranks = map(np.concatenate, columns)
        shuffled_block = shuffled(documents, lengths, ranks, block.seed, block.number)
        return write_block(Path(block.root), block.number, *shuffled_block, block.slice_bounds)


def spill_file(folder: str | Path, worker: int) -> Path:
    """Where a worker puts the documents it has parsed."""
    return Path(folder) / f"documents-{worker}"


def start(reading: Reading) -> IngestWorker:
    """The handler of `blocks.workers.Workers`; compiles what all workers need before they are forked."""
    worker = IngestWorker(reading)
    prepare("ingestion", worker.warm_up)
    return worker
