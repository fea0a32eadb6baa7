"""What a worker process does during ingestion: parse and tokenise chunks, sort runs by bucket, encode blocks.

Bulk goes through files in the spill directory, each written by one worker; answers hold small facts only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import IO, Any

import numpy as np

from blocks.compiler import prepare
from blocks.corpus import ldac, records, uci_bags
from blocks.corpus.block_writer import word_major, write_block
from blocks.corpus.known import KnownNames
from blocks.corpus.messages import Chunk, Encode, Reading, Run, SortedRun, Spilled, Words, spill_file
from blocks.corpus.rules import Rules
from blocks.corpus.tokens import Tokenizer
from blocks.corpus.uci import Header
from blocks.errors import RequestError
from blocks.files import disk_errors
from blocks.ingestion.counts import Counts
from blocks.ingestion.messages import Report
from blocks.shuffle import partition, shuffled
from blocks.sources import read_whole

_NONE = np.empty(0, np.uint32)


class IngestWorker:
    """Answers the messages of `blocks.corpus.messages`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._tokenizer = Tokenizer(reading.rules, reading.vocabulary if reading.kind != "uci" else None)
        self._counts = Counts()
        self._spill: IO[bytes] | None = None
        self._words = 0  # of a UCI file
        self._known = KnownNames(reading.known, skip=reading.skip_known) if reading.known else None
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
        self._tokenizer(["a word"])
        self._counts.add(nothing, nothing, 0)
        list(uci_bags.parse(b"1 1 1\n", "", 4, Header(1, 1, 1)))
        partition(nothing, nothing, 0, 0, 1)
        shuffled(none.astype(np.uint64), nothing, nothing, 0, 0)
        word_major(nothing, np.zeros(1, np.int64), 1)

    def __call__(self, message: Any) -> Any:
        """Do what a message asks."""
        with disk_errors(Path(self._reading.spill)):
            return self._tasks[type(message)](message)

    def _parse(self, chunk: Chunk) -> Spilled:
        if chunk.header is not None:
            return self._parse_uci(chunk, chunk.header)
        found, known = self._new_documents(chunk)
        ids, lengths, stopped, unknown = self._tokenizer(found.texts)
        words = len(self._tokenizer.table)
        self._counts.add(ids, lengths, words)
        if self._reading.vocabulary is None and self._tokenizer.bytes() > self._reading.vocabulary_bytes:
            raise RequestError(
                f"the vocabulary does not fit in memory: {words} different words so far, at {chunk.source}",
                "Raise --memory, use fewer --workers, or make words fewer with --token-pattern or --ngrams 1.",
            )
        names = "".join(name + "\n" for name in found.names) if records.any_names(found.names) else ""
        return self._spilled(lengths, ids, names.encode("utf-8", "replace"))._replace(
            skipped=found.skipped, first_problem=found.first_problem, stop_words=stopped, known=known, unknown=unknown
        )

    def _parse_uci(self, chunk: Chunk, header: Header) -> Spilled:
        self._words = header.words
        spilled, first, entries = [self._spilled(_NONE, _NONE)], 0, 0
        at, longest = (chunk.data, chunk.source, chunk.line), self._reading.longest
        found = ldac.parse(*at, header.words, longest) if header.is_ldac else uci_bags.parse(*at, header, longest)
        for bags in found:
            self._counts.add(bags.words, bags.lengths, self._words)
            first = first if entries else bags.first_document
            entries += bags.entries
            spilled.append(self._spilled(bags.lengths, bags.words))
        pieces = tuple((piece.documents, piece.tokens) for piece in spilled[1:])
        documents, tokens = (sum(sizes) for sizes in zip(*pieces, strict=True)) if pieces else (0, 0)
        return spilled[0]._replace(
            documents=documents, tokens=tokens, first_document=first, entries=entries, pieces=pieces
        )

    def _new_documents(self, chunk: Chunk) -> tuple[records.Documents, int]:
        """The documents of a chunk that the dataset does not have, and how many it has; their files are not read."""
        if self._known is None:
            return self._documents(chunk), 0
        files = len(chunk.files or ())
        if chunk.files:
            names = [records.as_name(name) for _, name in chunk.files]
            chunk = replace(chunk, files=list(compress(chunk.files, self._known.are_new(names, chunk.source))))
        found = self._documents(chunk)
        known, read = files - len(chunk.files or ()), len(found.names)
        found.keep(self._known.are_new(found.names, chunk.source))
        return found, known + read - len(found.names)

    def _documents(self, chunk: Chunk) -> records.Documents:
        reading = self._reading
        found = records.Documents(reading.skip)
        if chunk.files is not None:
            for path, name in chunk.files:
                records.from_file(read_whole(path, reading.opening), path, name, found)
        elif chunk.members is not None:
            for member in chunk.members:
                records.from_file(member.content, member.path, member.name, found)
        elif chunk.texts is not None:
            records.from_rows(chunk.texts, chunk.source, chunk.line, found)
        elif chunk.columns is not None:
            records.from_csv(chunk.data, chunk.source, chunk.line, chunk.columns, found)
        elif reading.kind == "jsonl":
            at = (chunk.data, chunk.source, chunk.line)
            records.from_jsonl(*at, reading.text_field, reading.name_field, found)
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
        table = self._tokenizer.table
        size = self._words or len(table)
        terms = None
        if self._reading.kind != "uci" and self._reading.vocabulary is None:
            terms = folder / f"terms-{me}"
            terms.write_bytes(table.words())
        counts = folder / f"counts-{me}"
        self._counts.write(counts, size)
        del self._counts, self._tokenizer
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


def load() -> None:
    """Have all kernels ready, whatever will be read."""
    nothing = Reading("lines", "", Rules(), False, "", None, None, 0, 0)
    prepare(IngestWorker(nothing).warm_up)


def start(reading: Reading) -> IngestWorker:
    """The handler of `blocks.workers.Workers`."""
    load()
    return IngestWorker(reading)
