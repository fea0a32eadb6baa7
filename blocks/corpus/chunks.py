"""Cut the inputs of a corpus into chunks for workers, in the order of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, pairwise, repeat
from typing import NamedTuple

from blocks.archives import ArchiveMember, members
from blocks.arrow_tables import ArrowTable, arrow_table, python_values, texts
from blocks.corpus import records, uci
from blocks.corpus.json_arrays import begins_array, elements_as_lines
from blocks.corpus.messages import Chunk, FilesChunk, MembersChunk, Parsed, TextsChunk
from blocks.corpus.request import CorpusRequest, Settled
from blocks.delimited import Dialect, dialect_of
from blocks.directories import Files
from blocks.documents.kept import Kept
from blocks.errors import RequestError
from blocks.ingestion.messages import NOBODY, LinesChunk, SpilledPiece
from blocks.sources import (
    CHUNK,
    Cut,
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

_MOST_FILES = 512  # maximum number of files in a chunk
_EMPTY = 1 << 19  # maximum number of empty documents in a piece, so that they fit in memory


class UciFile(NamedTuple):
    """A UCI or LDA-C input: its header and its first chunk."""

    name: str
    header: uci.Header
    first_chunk: int


def chunks_of(
    asked: Settled, most_words: int, uci_files: list[UciFile], opening: Opening, progress: Progress
) -> Iterator[Chunk]:
    """Yield the chunks of all inputs.

    most_words: maximum number of words in a UCI file. uci_files: list to which an entry is appended for each UCI file.
    """
    request = asked.request
    if request.kind == "uci":
        given = len(asked.words) if asked.words else None
        return _uci_chunks(request.inputs, given, uci_files, opening, most_words, progress)
    if request.reading == "files":
        return _file_chunks(asked.files, request.glob, opening, progress)
    return _row_chunks(asked, opening, progress)


def _uci_chunks(
    inputs: Sequence[str],
    words: int | None,
    found: list[UciFile],
    opening: Opening,
    most_words: int,
    progress: Progress,
) -> Iterator[LinesChunk]:
    """Yield the chunks of UCI and LDA-C files, and append an entry to `found` for each file."""
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
                "All inputs must have the same vocabulary, in which line i is word i.",
            )
        uci.require_words(header, source.name, most_words)
        found.append(UciFile(source.name, header, following))
        for line, data in source.chunks(cut):
            yield LinesChunk(following, source.name, line, data, header)
            following += 1


def _ldac_header(source: Source, words: int | None) -> uci.Header:
    if words is None:
        raise RequestError(
            f"{source.name} is an LDA-C file, which contains no words",
            "Give the vocabulary file with --vocab: line 1 is term 0.",
        )
    return uci.Header(0, words, 0, is_ldac=True)


def _row_chunks(asked: Settled, opening: Opening, progress: Progress) -> Iterator[LinesChunk | TextsChunk]:
    """Yield chunks of whole lines, or of rows of CSV, Parquet and Arrow files."""
    request = asked.request
    numbers = count()
    fields = records.JsonFields(request.text_field, request.name_field) if request.kind == "jsonl" else None
    kept = asked.kept
    for path in request.inputs:
        if request.kind == "csv" and (table := arrow_table(path, progress, opening.query)):
            yield from _arrow_chunks(numbers, table, request, kept)
            continue
        source = Source(path, progress, **opening._asdict(), databases=request.kind == "csv")
        if request.kind == "csv":
            options = request.delimiter, request.quote, not request.no_header
            dialect = Dialect() if source.is_database else dialect_of(path, *options)
            columns = records.find_columns(source, dialect, request.text_column, request.name_column, kept)
            yield from _lines(numbers, source, dialect.whole_row, columns)
            continue
        if request.kind == "jsonl" and begins_array(source.peek(len)):
            lines = partial(elements_as_lines, name=source.name, longest=opening.longest)
            source.change(lines, f"{source.name}, elements as lines")
        yield from _lines(numbers, source, whole_line, fields)


def _lines(numbers: Iterator[int], source: Source, cut: Cut, form: object) -> Iterator[LinesChunk]:
    for line, data in source.chunks(cut):
        yield LinesChunk(next(numbers), source.name, line, data, form)


def _arrow_chunks(
    numbers: Iterator[int], table: ArrowTable, request: CorpusRequest, kept: Kept | None
) -> Iterator[TextsChunk]:
    records.require_columns(table.name, table.columns, request.text_column, request.name_column)
    columns = kept.names_of(table.name, table.columns) if kept else []
    wanted = [request.text_column, *([request.name_column] if request.name_column else [])]
    for first, found in table.batches([*wanted, *columns]):
        text, *names = map(texts, found[: len(wanted)])
        values = zip(*map(python_values, found[len(wanted) :]), strict=True) if columns else repeat(())
        rows = (dict(zip(columns, row, strict=True)) for row in values)
        each = zip(text, names[0] if names else repeat(""), rows, strict=False)
        yield TextsChunk(next(numbers), table.name, first + 1, list(each))


def _file_chunks(files: Files, pattern: str, opening: Opening, progress: Progress) -> Iterator[Chunk]:
    """Yield chunks of whole files.

    Workers read the files themselves, except streams and members of archives. pattern: glob for the names of archive
    members.
    """
    numbers = count()
    together: list[tuple[str, str]] = []
    size = 0
    for path, name in files.found:
        if is_stream(path) or path in files.archives:
            yield from _listed(numbers, together)
            together, size = [], 0
            if path in files.archives:
                yield from _member_chunks(numbers, members(path, pattern, opening, progress))
            else:
                content = ArchiveMember(name_of(path), name_of(path), read_whole(path, opening))
                yield MembersChunk(next(numbers), name_of(path), [content])
            continue
        together.append((path, name))
        bytes_ = size_of(path)
        size += bytes_
        progress(bytes_)
        if size >= CHUNK or len(together) == _MOST_FILES:
            yield from _listed(numbers, together)
            together, size = [], 0
    yield from _listed(numbers, together)


def _member_chunks(numbers: Iterator[int], found: Iterator[ArchiveMember]) -> Iterator[MembersChunk]:
    together: list[ArchiveMember] = []
    size = 0
    for member in found:
        together.append(member)
        size += len(member.content)
        if size >= CHUNK or len(together) == _MOST_FILES:
            yield MembersChunk(next(numbers), together[0].path, together)
            together, size = [], 0
    if together:
        yield MembersChunk(next(numbers), together[0].path, together)


def _listed(numbers: Iterator[int], files: list[tuple[str, str]]) -> Iterator[FilesChunk]:
    if files:
        yield FilesChunk(next(numbers), files[0][0], files)


def without_lines(files: Sequence[UciFile], chunks: Sequence[Parsed]) -> list[int]:
    """Check the counts of whole UCI files and find the documents without lines.

    chunks: in numerical order. Returns the number of empty documents before each chunk, and after the last. Raises
    RequestError if a header does not match its file, or a document occurs in two chunks.
    """
    before: list[int] = []
    tail = 0
    bounds = pairwise([*(file.first_chunk for file in files), len(chunks)])
    for file, (first, last) in zip(files, bounds, strict=True):
        lines = sum(chunk.lines for chunk in chunks[first:last])
        if file.header.is_ldac:
            before += [tail, *[0] * (last - first - 1)][: last - first]
            tail = 0 if last > first else tail
            continue
        if lines != file.header.entries:
            raise RequestError(
                f"{file.name}: the header (line 3) says {file.header.entries} lines, but {lines} follow",
                "The file is truncated, or its header is wrong.",
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
    return [*before, tail]


def pieces_of(chunks: Sequence[Parsed], empty: Sequence[int]) -> Iterator[SpilledPiece]:
    """Yield all documents in order; long ranges of empty ones are cut. empty: from `without_lines`."""
    for number, documents in enumerate(empty):
        for first in range(0, documents, _EMPTY):
            yield SpilledPiece(NOBODY, 0, min(_EMPTY, documents - first), 0)
        yield from chunks[number].pieces if number < len(chunks) else ()
