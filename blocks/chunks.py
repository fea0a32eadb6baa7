"""From inputs to chunks for the workers, in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

from blocks import sources
from blocks.corpus import records, uci
from blocks.corpus.messages import Chunk, Spilled
from blocks.errors import RequestError
from blocks.sources import Source, read_whole, size_of

Progress = Callable[[int], object]


class Columns(NamedTuple):
    """The columns of CSV inputs to use; a delimiter of None is a tab for .tsv files and a comma for others."""

    text: str
    name: str | None
    delimiter: str | None


class UciFile(NamedTuple):
    """A UCI input: what its header says and its first chunk."""

    name: str
    header: uci.Header
    first_chunk: int


def uci_chunks(inputs: Sequence[str], words: int | None, found: list[UciFile], progress: Progress) -> Iterator[Chunk]:
    """Chunks of UCI files; appends an entry to `found` for each file. words: W, if a vocabulary says so."""
    numbers = count()
    for path in inputs:
        source = Source(path, progress)
        header = uci.read_header(source)
        expected = found[0].header.words if words is None and found else words
        if expected not in (None, header.words):
            against = f"{found[0].name} says" if words is None else "the vocabulary has"
            raise RequestError(
                f"{source.name}, line 2: the header says {header.words} words, {against} {expected}",
                "All inputs need the same vocabulary: line i of it is word i.",
            )
        first = None
        for line, data in source.chunks(uci.whole_documents):
            number = next(numbers)
            first = number if first is None else first
            yield Chunk(number, source.name, line, data, header=header)
        found.append(UciFile(source.name, header, next(numbers) if first is None else first))


def row_chunks(kind: str, inputs: Sequence[str], columns: Columns, progress: Progress) -> Iterator[Chunk]:
    """Chunks of whole lines, or of whole rows of CSV files."""
    numbers = count()
    for path in inputs:
        source = Source(path, progress)
        if kind != "csv":
            for line, data in source.chunks(sources.whole_line):
                yield Chunk(next(numbers), source.name, line, data)
            continue
        delimiter = columns.delimiter or ("\t" if ".tsv" in Path(path).suffixes else ",")
        header = source.take(sources.first_row)
        where = records.find_columns(header, source.name, delimiter, columns.text, columns.name)
        for line, data in source.chunks(sources.whole_row):
            yield Chunk(next(numbers), source.name, line, data, columns=where)


def file_chunks(files: Sequence[tuple[str, str]], progress: Progress) -> Iterator[Chunk]:
    """Whole files, as many together as make a chunk; the workers read them."""
    numbers = count()
    together: list[tuple[str, str]] = []
    size = 0
    for path, name in files:
        if path == "-":
            yield from _listed(numbers, together)
            together, size = [], 0
            yield Chunk(next(numbers), "standard input", 1, read_whole(path))
            continue
        together.append((path, name))
        size += size_of(path)
        progress(size_of(path))
        if size >= sources.CHUNK or len(together) == 512:
            yield from _listed(numbers, together)
            together, size = [], 0
    yield from _listed(numbers, together)


def _listed(numbers: Iterator[int], files: list[tuple[str, str]]) -> Iterator[Chunk]:
    if files:
        yield Chunk(next(numbers), files[0][0], 1, b"", files=files)


def check_uci(files: Sequence[UciFile], chunks: Sequence[Spilled]) -> tuple[list[int], int]:
    """Check the counts of whole UCI files and find the documents without lines.

    chunks: in order of their numbers. Returns the number of empty documents before each chunk, and after the last.
    Raises RequestError if a header does not agree with its file, or a document is in two chunks.
    """
    before: list[int] = []
    tail = 0
    bounds = pairwise([*(file.first_chunk for file in files), len(chunks)])
    for file, (first, last) in zip(files, bounds, strict=True):
        entries = sum(chunk.entries for chunk in chunks[first:last])
        if entries != file.header.entries:
            raise RequestError(
                f"{file.name}: the header says {file.header.entries} lines (line 3), but {entries} follow it",
                "The file is cut short, or its header is wrong.",
            )
        following = 0
        for chunk in chunks[first:last]:
            if chunk.documents == 0:
                before.append(0)
                continue
            if chunk.first_document < following:
                raise uci.not_sorted(file.name, chunk.first_document + 1)
            before.append(chunk.first_document - following + tail)
            tail = 0
            following = chunk.first_document + chunk.documents
        tail += file.header.documents - following
    return before, tail
