"""Worker process of corpus ingestion: parse and tokenize chunks, write blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from blocks.compiler import compile_kernels
from blocks.corpus import ldac, record_parsers, uci_bags
from blocks.corpus.block_writer import word_major, write_block
from blocks.corpus.duplicates import ChunkSignatures
from blocks.corpus.known_documents import KnownDocumentNames
from blocks.corpus.messages import (
    WORDS,
    ArchiveMembersChunk,
    BagOfWordsChunk,
    Chunk,
    CorpusReaderSettings,
    FilesChunk,
    ParsedDocumentChunk,
    SignChunkTask,
    TableTextsChunk,
)
from blocks.corpus.tokenization_rules import TokenizationRules
from blocks.corpus.tokenizer import Tokenizer
from blocks.corpus.uci import UciHeader
from blocks.documents.column_types import DocumentColumn, column_of_values
from blocks.documents.kept_columns import UNKNOWN
from blocks.documents.table_writer import SpilledDocumentColumns, WriteTableFileTask, pack_columns, write_table_file
from blocks.errors import RequestError
from blocks.ingestion.messages import LineChunk, SortedRunOffsets, SortRowsTask, WriteBucketsTask
from blocks.ingestion.name_merging import WorkerNameFiles, leave_names
from blocks.ingestion.word_counter import WordCounter
from blocks.ingestion.worker import Arrays, BucketSortingWorker, SpillDtypes
from blocks.shuffle import partition, shuffle_documents
from blocks.text_inputs import read_whole


class CorpusIngestWorker(BucketSortingWorker):
    """Worker for documents.

    A row is a document with its length or, once sorted, its index; an entry is a token (word id or rank).
    """

    parsed = SpillDtypes(("u4",), ("u4",))
    sorted = SpillDtypes(("u8", "u4"), ("u4",))

    def __init__(self, reading: CorpusReaderSettings) -> None:
        super().__init__(reading.spill)
        self._reading = reading
        self._tokenizer = Tokenizer(reading.rules, reading.vocabulary)
        self._counts = WordCounter()
        self._words = 0  # number of words in a UCI file
        self._known = KnownDocumentNames(reading.known, skip=reading.skip_known) if reading.known else None
        self.tasks |= dict.fromkeys((LineChunk, FilesChunk, ArchiveMembersChunk, TableTextsChunk), self._parse)
        self.tasks[BagOfWordsChunk] = self._leave_bags
        self.tasks[SignChunkTask] = self._sign
        self.tasks[WriteTableFileTask] = lambda message: write_table_file(self.root, self.spill, message)
        if reading.bags:
            self.tasks[LineChunk] = self._parse_bags

    def warm_up(self) -> None:
        """Run every kernel once on tiny input, to compile it."""
        nothing, none = np.empty(0, np.uint32), np.empty(0, np.int64)
        self._tokenizer(["a word"])
        self._counts.add(nothing, nothing, 0)
        list(uci_bags.parse_documents(b"1 1 1\n", "", 4, UciHeader(1, 1, 1)))
        partition(nothing, nothing, 0, 0, 1)
        shuffle_documents(none.astype(np.uint64), nothing, nothing, 0, 0)
        word_major(nothing, np.zeros(1, np.int64), 1)

    def _parse(self, chunk: Chunk) -> ParsedDocumentChunk:
        found, known = self._new_documents(chunk)
        typed = not (isinstance(chunk, LineChunk) and isinstance(chunk.form, record_parsers.DelimitedTextLayout))
        ids, lengths, stopped, unknown = self._tokenizer(found.texts)
        words = len(self._tokenizer.table)
        self._counts.add(ids, lengths, words)
        if self._reading.vocabulary is None and self._tokenizer.bytes() > self._reading.vocabulary_bytes:
            raise RequestError(
                f"the vocabulary does not fit in memory: {words} distinct words were found up to {chunk.source}",
                "Increase --memory, reduce --workers, narrow --token-pattern, or use --ngrams 1.",
            )
        columns = found.columns(typed=typed)
        if self._reading.kept and self._reading.kept.unknown:
            columns[UNKNOWN] = column_of_values(unknown.tolist())
        return self._leave_named(ids, lengths, found.names, columns)._replace(
            skipped=found.skipped,
            first_problem=found.first_problem,
            stop_words=stopped,
            known=known,
            unknown=int(unknown.sum()),
        )

    def _sign(self, message: SignChunkTask) -> ChunkSignatures:
        found = record_parsers.ParsedDocuments(self._reading.skip)
        self._read(message.chunk, found)
        names = found.names if record_parsers.has_names(found.names) else None
        return ChunkSignatures(*self._tokenizer.sign(found.texts, message.size), names)

    def _leave_bags(self, chunk: BagOfWordsChunk) -> ParsedDocumentChunk:
        self._counts.add(chunk.ids, chunk.lengths, len(self._tokenizer.table))
        columns = self._reading.kept.columns(chunk.rows, typed=True) if self._reading.kept else {}
        if self._reading.kept and self._reading.kept.unknown:
            columns[UNKNOWN] = column_of_values([0] * len(chunk.names))
        return self._leave_named(chunk.ids, chunk.lengths, chunk.names, columns)

    def _leave_named(
        self, ids: np.ndarray, lengths: np.ndarray, names: Sequence[str], columns: Mapping[str, DocumentColumn]
    ) -> ParsedDocumentChunk:
        text = "".join(name + "\n" for name in names) if record_parsers.has_names(names) else ""
        tail = text.encode("utf-8", "replace")
        values, size = pack_columns(columns) if self._reading.kept else (b"", 0)
        piece = self.leave((lengths, ids), lengths.size, ids.size, tail + values)
        table = None
        if self._reading.kept:
            at = piece.offset + 4 * (piece.rows + piece.entries) + len(tail)
            kinds = {name: column.kind for name, column in columns.items()}
            table = SpilledDocumentColumns(piece.worker, at, len(values), piece.rows, size, kinds)
        return ParsedDocumentChunk([piece], len(tail), table=table)

    def _parse_bags(self, chunk: LineChunk) -> ParsedDocumentChunk:
        header: UciHeader = chunk.form
        self._words = header.words
        at, longest = (chunk.data, chunk.source, chunk.line), self._reading.longest
        pieces, first, lines = [], 0, 0
        for bags in (
            ldac.parse(*at, header.words, longest) if header.is_ldac else uci_bags.parse_documents(*at, header, longest)
        ):
            self._counts.add(bags.words, bags.lengths, self._words)
            first = first if lines else bags.first_document
            lines += bags.entries
            pieces.append(self.leave((bags.lengths, bags.words), bags.lengths.size, bags.words.size))
        return ParsedDocumentChunk(pieces, first_document=first, lines=lines)

    def _new_documents(self, chunk: Chunk) -> tuple[record_parsers.ParsedDocuments, int]:
        """Return the documents of a chunk that are new to the dataset, without reading the known ones, and the number
        of known ones.
        """
        found = record_parsers.ParsedDocuments(self._reading.skip, self._reading.kept)
        if self._known is None:
            self._read(chunk, found)
            if self._reading.left_out:
                left_out, starts = self._left_out
                found.only((~left_out[starts[chunk.number] : starts[chunk.number + 1]]).tolist())
            if self._reading.share:
                found.only(self._reading.share.has(found.texts))
            return found, 0
        files = 0
        if isinstance(chunk, FilesChunk):
            files = len(chunk.files)
            names = [record_parsers.document_name(name) for _, name in chunk.files]
            chunk.files = list(compress(chunk.files, self._known.are_new(names, chunk.source)))
            files -= len(chunk.files)
        self._read(chunk, found)
        read = len(found.names)
        found.only(self._known.are_new(found.names, chunk.source))
        return found, files + read - len(found.names)

    @cached_property
    def _left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which documents are duplicates, bool (D,), and the first document of each chunk, int64 (C+1,)."""
        with np.load(str(self._reading.left_out)) as file:
            return file["left_out"], file["starts"]

    def _read(self, chunk: Chunk, found: record_parsers.ParsedDocuments) -> None:
        match chunk:
            case FilesChunk(files=files):
                for path, name in files:
                    record_parsers.parse_file(read_whole(path, self._reading.opening), path, name, found)
            case ArchiveMembersChunk(members=members):
                for member in members:
                    record_parsers.parse_file(member.content, member.path, member.name, found)
            case TableTextsChunk():
                record_parsers.parse_table_rows(chunk.texts, chunk.source, chunk.row, found)
            case LineChunk(form=record_parsers.DelimitedTextLayout()):
                record_parsers.parse_csv(chunk.data, chunk.source, chunk.line, chunk.form, found)
            case LineChunk(form=record_parsers.JsonFieldNames()):
                record_parsers.parse_json_lines(chunk.data, chunk.source, chunk.line, chunk.form, found)
            case _:
                record_parsers.parse_lines(chunk.data, chunk.source, chunk.line, found)

    def counted(self) -> WorkerNameFiles:
        """Return the words and their counts."""
        table = self._tokenizer.table
        own = None if self._reading.bags or self._reading.vocabulary is not None else table
        counted = leave_names(self.spill, WORDS, own, self._counts, self._words or len(table))
        del self._counts, self._tokenizer
        return counted

    def placed(self, arrays: Arrays, worker: int) -> Arrays:
        lengths, ids = arrays
        return lengths, self.places(WORDS, worker)[ids]

    def by_bucket(self, arrays: list[np.ndarray], run: SortRowsTask) -> tuple[Arrays, SortedRunOffsets]:
        lengths, ranks = arrays
        *sorted_, documents, tokens = partition(ranks, lengths, run.first, run.seed, run.buckets)
        return sorted_, SortedRunOffsets(documents, tokens)

    def write(self, arrays: list[np.ndarray], block: WriteBucketsTask) -> dict[str, Any]:
        documents, lengths, ranks = arrays
        assert block.slice_bounds is not None
        shuffled_block = shuffle_documents(documents, lengths, ranks, block.seed, block.number)
        return write_block(self.root, block.number, *shuffled_block, block.slice_bounds)


def compile_ingestion() -> None:
    """Compile all kernels that any input may need."""
    nothing = CorpusReaderSettings(
        "", TokenizationRules(), skip=False, bags=False, vocabulary=None, vocabulary_bytes=0, longest=0
    )
    compile_kernels(CorpusIngestWorker(nothing).warm_up)


def start(reading: CorpusReaderSettings) -> CorpusIngestWorker:
    """Return the message handler for `blocks.workers.WorkerPool`."""
    compile_ingestion()
    return CorpusIngestWorker(reading)
