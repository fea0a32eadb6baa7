"""Cut the inputs of a corpus into chunks for workers, in the order of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, pairwise, repeat
from typing import NamedTuple

from blocks.archives import ArchiveMember, archive_members
from blocks.arrow_tables import ArrowTable, arrow_table, column_texts, python_values
from blocks.corpus import record_parsers, uci
from blocks.corpus.json_arrays import begins_array, elements_as_lines
from blocks.corpus.messages import ArchiveMembersChunk, Chunk, FilesChunk, ParsedDocumentChunk, TableTextsChunk
from blocks.corpus.request import CorpusRequest, ValidatedRequest
from blocks.delimited import DelimitedDialect, options_dialect
from blocks.documents.kept_columns import KeptColumns
from blocks.errors import RequestError
from blocks.ingestion.messages import NOBODY, LineChunk, SpilledRows
from blocks.input_directories import FoundTextFiles
from blocks.text_inputs import (
    CHUNK,
    Cut,
    InputOpenOptions,
    Progress,
    TextInput,
    first_line_end,
    input_name,
    input_size,
    is_stream,
    last_line_end,
    read_whole,
)

_MOST_FILES = 512  # maximum number of files in a chunk
_EMPTY = 1 << 19  # maximum number of empty documents in a piece, so that they fit in memory


class UciFile(NamedTuple):
    """A UCI or LDA-C input: its header and its first chunk."""

    name: str
    header: uci.UciHeader
    first_chunk: int


def input_chunks(
    asked: ValidatedRequest, most_words: int, uci_files: list[UciFile], opening: InputOpenOptions, progress: Progress
) -> Iterator[Chunk]:
    """Yield the chunks of all inputs.

    most_words: maximum number of words in a UCI file.
    uci_files: list to which an entry is appended for each UCI file.
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
    opening: InputOpenOptions,
    most_words: int,
    progress: Progress,
) -> Iterator[LineChunk]:
    """Yield the chunks of UCI and LDA-C files, and append an entry to `found` for each file."""
    following = 0
    for path in inputs:
        source = TextInput(path, progress, **opening._asdict())
        is_ldac = uci.is_ldac(source.peek(first_line_end))
        cut = last_line_end if is_ldac else uci.whole_documents
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
            yield LineChunk(following, source.name, line, data, header)
            following += 1


def _ldac_header(source: TextInput, words: int | None) -> uci.UciHeader:
    if words is None:
        raise RequestError(
            f"{source.name} is an LDA-C file, which contains no words",
            "Set --vocab to the vocabulary file: line 1 is term 0.",
        )
    return uci.UciHeader(0, words, 0, is_ldac=True)


def _row_chunks(
    asked: ValidatedRequest, opening: InputOpenOptions, progress: Progress
) -> Iterator[LineChunk | TableTextsChunk]:
    """Yield chunks of whole lines, or of rows of CSV, Parquet and Arrow files."""
    request = asked.request
    numbers = count()
    fields = record_parsers.JsonFieldNames(request.text_field, request.name_field) if request.kind == "jsonl" else None
    kept = asked.kept
    for path in request.inputs:
        if request.kind == "csv" and (table := arrow_table(path, progress, opening.query)):
            yield from _arrow_chunks(numbers, table, request, kept)
            continue
        source = TextInput(path, progress, **opening._asdict(), databases=request.kind == "csv")
        if request.kind == "csv":
            options = request.delimiter, request.quote, not request.no_header
            dialect = DelimitedDialect() if source.is_database else options_dialect(path, *options)
            columns = record_parsers.find_columns(source, dialect, request.text_column, request.name_column, kept)
            yield from _lines(numbers, source, dialect.whole_row, columns)
            continue
        if request.kind == "jsonl" and begins_array(source.peek(len)):
            lines = partial(elements_as_lines, name=source.name, longest=opening.longest)
            source.change(lines, f"{source.name}, elements as lines")
        yield from _lines(numbers, source, last_line_end, fields)


def _lines(numbers: Iterator[int], source: TextInput, cut: Cut, form: object) -> Iterator[LineChunk]:
    for line, data in source.chunks(cut):
        yield LineChunk(next(numbers), source.name, line, data, form)


def _arrow_chunks(
    numbers: Iterator[int], table: ArrowTable, request: CorpusRequest, kept: KeptColumns | None
) -> Iterator[TableTextsChunk]:
    record_parsers.require_columns(table.name, table.columns, request.text_column, request.name_column)
    columns = kept.names_of(table.name, table.columns) if kept else []
    wanted = [request.text_column, *([request.name_column] if request.name_column else [])]
    for first, found in table.batches([*wanted, *columns]):
        text, *names = map(column_texts, found[: len(wanted)])
        values = zip(*map(python_values, found[len(wanted) :]), strict=True) if columns else repeat(())
        rows = (dict(zip(columns, row, strict=True)) for row in values)
        each = zip(text, names[0] if names else repeat(""), rows, strict=False)
        yield TableTextsChunk(next(numbers), table.name, first + 1, list(each))


def _file_chunks(files: FoundTextFiles, pattern: str, opening: InputOpenOptions, progress: Progress) -> Iterator[Chunk]:
    """Yield chunks of whole files.

    Workers read the files themselves, except streams and members of archives.

    pattern: glob for the names of archive members.
    """
    numbers = count()
    together: list[tuple[str, str]] = []
    size = 0
    for path, name in files.found:
        if is_stream(path) or path in files.archives:
            yield from _listed(numbers, together)
            together, size = [], 0
            if path in files.archives:
                yield from _member_chunks(numbers, archive_members(path, pattern, opening, progress))
            else:
                content = ArchiveMember(input_name(path), input_name(path), read_whole(path, opening))
                yield ArchiveMembersChunk(next(numbers), input_name(path), [content])
            continue
        together.append((path, name))
        bytes_ = input_size(path)
        size += bytes_
        progress(bytes_)
        if size >= CHUNK or len(together) == _MOST_FILES:
            yield from _listed(numbers, together)
            together, size = [], 0
    yield from _listed(numbers, together)


def _member_chunks(numbers: Iterator[int], found: Iterator[ArchiveMember]) -> Iterator[ArchiveMembersChunk]:
    together: list[ArchiveMember] = []
    size = 0
    for member in found:
        together.append(member)
        size += len(member.content)
        if size >= CHUNK or len(together) == _MOST_FILES:
            yield ArchiveMembersChunk(next(numbers), together[0].path, together)
            together, size = [], 0
    if together:
        yield ArchiveMembersChunk(next(numbers), together[0].path, together)


def _listed(numbers: Iterator[int], files: list[tuple[str, str]]) -> Iterator[FilesChunk]:
    if files:
        yield FilesChunk(next(numbers), files[0][0], files)


def empty_documents(files: Sequence[UciFile], chunks: Sequence[ParsedDocumentChunk]) -> list[int]:
    """Check the counts of whole UCI files and find the documents without lines.

    chunks: in numerical order.
    Returns the number of empty documents before each chunk, and after the last.
    Raises RequestError if a header does not match its file, or a document occurs in two chunks.
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
                raise uci.unsorted_error(file.name, chunk.first_document + 1)
            before.append(chunk.first_document - following + tail)
            tail = 0
            following = chunk.first_document + chunk.documents
        tail += file.header.documents - following
    return [*before, tail]


def pieces_of(chunks: Sequence[ParsedDocumentChunk], empty: Sequence[int]) -> Iterator[SpilledRows]:
    """Yield all documents in order; long ranges of empty ones are cut.

    empty: from `empty_documents`.
    """
    for number, documents in enumerate(empty):
        for first in range(0, documents, _EMPTY):
            yield SpilledRows(NOBODY, 0, min(_EMPTY, documents - first), 0)
        yield from chunks[number].pieces if number < len(chunks) else ()
