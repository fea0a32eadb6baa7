"""From inputs to chunks for the workers, in the order of the inputs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from itertools import count, pairwise
from typing import NamedTuple

from blocks.archives import Member, members
from blocks.arrow_tables import ArrowTable, arrow_table, texts
from blocks.corpus import records, uci
from blocks.corpus.json_arrays import begins_array, elements_as_lines
from blocks.corpus.messages import Chunk, Spilled
from blocks.delimited import Dialect, dialect_of
from blocks.errors import RequestError
from blocks.sources import (
    CHUNK,
    Opening,
    Progress,
    Source,
    first_line,
    is_stream,
    name_of,
    read_whole,
    size_of,
    whole_line,
)

_MOST_FILES = 512  # of a chunk


class Columns(NamedTuple):
    """The columns of delimited inputs to use, and their dialect: see `dialect_of`."""

    text: str
    name: str | None
    delimiter: str | None
    quote: str | None
    header: bool


class UciFile(NamedTuple):
    """A UCI or LDA-C input: what its header says and its first chunk."""

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
    """Chunks of UCI and LDA-C files; appends an entry to `found` for each file.

    words: W, if a vocabulary says so. most_words: that the memory has room for.
    """
    following = 0
    for path in inputs:
        source = Source(path, progress, **opening._asdict())
        is_ldac = uci.is_ldac(source.peek(first_line))
        cut = whole_line if is_ldac else uci.whole_documents
        header = _ldac_header(source, words) if is_ldac else uci.read_header(source)
        expected = found[0].header.words if words is None and found else words
        if expected not in (None, header.words):
            against = f"{found[0].name} says" if words is None else "the vocabulary has"
            raise RequestError(
                f"{source.name}, line 2: the header says {header.words} words, {against} {expected}",
                "All inputs need the same vocabulary: line i of it is word i.",
            )
        uci.require_words(header, source.name, most_words)
        found.append(UciFile(source.name, header, following))
        for line, data in source.chunks(cut):
            yield Chunk(following, source.name, line, data, header=header)
            following += 1


def _ldac_header(source: Source, words: int | None) -> uci.Header:
    if words is None:
        raise RequestError(
            f"{source.name} is an LDA-C file, which does not tell the words",
            "Give them with --vocab: line 1 is term 0.",
        )
    return uci.Header(0, words, 0, is_ldac=True)


def row_chunks(
    kind: str, inputs: Sequence[str], columns: Columns, opening: Opening, progress: Progress
) -> Iterator[Chunk]:
    """Chunks of whole lines, or of rows of CSV, Parquet and Arrow files."""
    numbers = count()
    for path in inputs:
        if kind == "csv" and (table := arrow_table(path, progress, opening.query)):
            yield from _arrow_chunks(numbers, table, columns)
            continue
        source = Source(path, progress, **opening._asdict(), databases=kind == "csv")
        if kind == "jsonl" and begins_array(source.peek(len)):
            lines = partial(elements_as_lines, name=source.name, longest=opening.longest)
            source.change(lines, f"{source.name}, elements as lines")
        if kind != "csv":
            for line, data in source.chunks(whole_line):
                yield Chunk(next(numbers), source.name, line, data)
            continue
        dialect = Dialect() if source.is_database else dialect_of(path, *columns[2:])
        where = records.find_columns(source, dialect, columns.text, columns.name)
        for line, data in source.chunks(dialect.whole_row):
            yield Chunk(next(numbers), source.name, line, data, columns=where)


def _arrow_chunks(numbers: Iterator[int], table: ArrowTable, columns: Columns) -> Iterator[Chunk]:
    records.require_columns(table.name, table.columns, columns.text, columns.name)
    wanted = [columns.text, columns.name] if columns.name else [columns.text]
    for first, found in table.batches(wanted):
        text, *names = map(texts, found)
        rows = list(zip(text, names[0] if names else [""] * len(text), strict=True))
        yield Chunk(next(numbers), table.name, first + 1, b"", texts=rows)


def file_chunks(
    files: Sequence[tuple[str, str]], archives: Container[str], pattern: str, opening: Opening, progress: Progress
) -> Iterator[Chunk]:
    """Whole files, as many together as make a chunk; the workers read them, but for streams and files in archives.

    archives: which of the files are some, whose files are documents if their names match the pattern.
    """
    numbers = count()
    together: list[tuple[str, str]] = []
    size = 0
    for path, name in files:
        if is_stream(path) or path in archives:
            yield from _listed(numbers, together)
            together, size = [], 0
            if path in archives:
                yield from _member_chunks(numbers, members(path, pattern, opening, progress))
            else:
                content = Member(name_of(path), name_of(path), read_whole(path, opening))
                yield Chunk(next(numbers), name_of(path), 1, b"", members=[content])
            continue
        together.append((path, name))
        bytes_ = size_of(path)
        size += bytes_
        progress(bytes_)
        if size >= CHUNK or len(together) == _MOST_FILES:
            yield from _listed(numbers, together)
            together, size = [], 0
    yield from _listed(numbers, together)


def _member_chunks(numbers: Iterator[int], found: Iterator[Member]) -> Iterator[Chunk]:
    together: list[Member] = []
    size = 0
    for member in found:
        together.append(member)
        size += len(member.content)
        if size >= CHUNK or len(together) == _MOST_FILES:
            yield Chunk(next(numbers), together[0].path, 1, b"", members=together)
            together, size = [], 0
    if together:
        yield Chunk(next(numbers), together[0].path, 1, b"", members=together)


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
        if file.header.is_ldac:
            before += [tail, *[0] * (last - first - 1)][: last - first]
            tail = 0 if last > first else tail
            continue
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
