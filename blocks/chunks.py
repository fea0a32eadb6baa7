"""From inputs to chunks for the workers, in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, pairwise
from typing import NamedTuple

from blocks.corpus import records, uci
from blocks.corpus.json_arrays import begins_array, elements_as_lines
from blocks.corpus.messages import Chunk, Spilled
from blocks.delimited import Dialect, dialect_of
from blocks.errors import RequestError
from blocks.sources import CHUNK, Opening, Source, is_stream, name_of, read_whole, size_of, whole_line

Progress = Callable[[int], object]


class Columns(NamedTuple):
    """The columns of delimited inputs to use, and their dialect: see `dialect_of`."""

    text: str
    name: str | None
    delimiter: str | None
    quote: str | None
    header: bool


class UciFile(NamedTuple):
    """A UCI input: what its header says and its first chunk."""

    name: str
    header: uci.Header
    first_chunk: int


def uci_chunks(
    inputs: Sequence[str],
    words: int | None,
    found: list[UciFile],
    opening: Opening,
    most_words: int,
    progress: Progress,
) -> Iterator[Chunk]:
    """Chunks of UCI files; appends an entry to `found` for each file.

    words: W, if a vocabulary says so. most_words: that the memory has room for.
    """
    numbers = count()
    for path in inputs:
        source = Source(path, progress, **opening._asdict())
        header = uci.read_header(source)
        expected = found[0].header.words if words is None and found else words
        if expected not in (None, header.words):
            against = f"{found[0].name} says" if words is None else "the vocabulary has"
            raise RequestError(
                f"{source.name}, line 2: the header says {header.words} words, {against} {expected}",
                "All inputs need the same vocabulary: line i of it is word i.",
            )
        uci.require_words(header, source.name, most_words)
        first = None
        for line, data in source.chunks(uci.whole_documents):
            number = next(numbers)
            first = number if first is None else first
            yield Chunk(number, source.name, line, data, header=header)
        found.append(UciFile(source.name, header, next(numbers) if first is None else first))


def row_chunks(
    kind: str, inputs: Sequence[str], columns: Columns, opening: Opening, progress: Progress
) -> Iterator[Chunk]:
    """Chunks of whole lines, or of whole rows of CSV files."""
    numbers = count()
    for path in inputs:
        source = Source(path, progress, **opening._asdict(), tables=kind == "csv")
        if kind == "jsonl" and begins_array(source.peek(len)):
            lines = partial(elements_as_lines, name=source.name, longest=opening.longest)
            source.change(lines, f"{source.name}, elements as lines")
        if kind != "csv":
            for line, data in source.chunks(whole_line):
                yield Chunk(next(numbers), source.name, line, data)
            continue
        dialect = Dialect() if source.is_table else dialect_of(path, *columns[2:])
        where = records.find_columns(source, dialect, columns.text, columns.name)
        for line, data in source.chunks(dialect.whole_row):
            yield Chunk(next(numbers), source.name, line, data, columns=where)


def file_chunks(files: Sequence[tuple[str, str]], opening: Opening, progress: Progress) -> Iterator[Chunk]:
    """Whole files, as many together as make a chunk; the workers read them, but for streams."""
    numbers = count()
    together: list[tuple[str, str]] = []
    size = 0
    for path, name in files:
        if is_stream(path):
            yield from _listed(numbers, together)
            together, size = [], 0
            yield Chunk(next(numbers), name_of(path), 1, read_whole(path, opening))
            continue
        together.append((path, name))
        bytes_ = size_of(path)
        size += bytes_
        progress(bytes_)
        if size >= CHUNK or len(together) == 512:
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
