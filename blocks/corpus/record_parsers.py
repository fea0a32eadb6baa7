"""Parse the bytes of a chunk into documents: lines, JSON Lines, CSV rows, or whole files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import orjson

from blocks.delimited import DelimitedDialect, InvalidRow, likely_delimiter, name_of_delimiter
from blocks.documents.column_types import DocumentColumn
from blocks.documents.kept_columns import KeptColumns
from blocks.encodings import likely_encoding
from blocks.errors import RequestError, quoted
from blocks.text_inputs import TextInput

SKIP = "Correct the record, or skip such records with --on-error skip."
_OR_SKIP = "Or skip such records with --on-error skip."
QUOTE_REMEDY = "Close the quote; or, if quotes are ordinary characters in this file, use --quote none."

_ABSENT = object()

Text = str | list[str]  # a list holds tokens already


@dataclass
class ParsedDocuments:
    """The documents of a chunk in order, and the bad records that were skipped."""

    skip: bool  # leave bad records out instead of raising
    kept: KeptColumns | None = None
    texts: list[Text] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)  # values of the kept columns
    skipped: int = 0
    first_problem: str = ""

    def add(self, text: Text, name: object = None, row: Mapping[str, Any] | None = None) -> None:
        """Append a document.

        row: values of its columns; if omitted, its text is its only column.
        """
        self.texts.append(text)
        self.names.append("" if name is None else document_name(name))
        if self.kept is not None:
            alone = {self.kept.text: text} if self.kept.has_text else {}
            self.rows.append(self.kept.row(alone if row is None else row))

    def only(self, which: Sequence[bool]) -> None:
        """Drop all other documents.

        which: documents to keep.
        """
        self.texts, self.names = list(compress(self.texts, which)), list(compress(self.names, which))
        self.rows = list(compress(self.rows, which))

    def columns(self, *, typed: bool) -> dict[str, DocumentColumn]:
        """Return the kept columns of the documents.

        typed: whether values keep their types (JSON, Parquet); otherwise they are text whose types are inferred (CSV).
        """
        return self.kept.columns(self.rows, typed=typed) if self.kept is not None else {}

    def bad(self, where: str, problem: str, remedy: str = SKIP) -> None:
        """Count a bad record, or raise RequestError."""
        if not self.skip:
            raise RequestError(f"{where}: {problem}", remedy)
        self.skipped += 1
        self.first_problem = self.first_problem or f"{where}: {problem}"


def document_name(name: object) -> str:
    """Return a document name as a single line."""
    return " ".join(str(name).split())


def parse_lines(data: bytes, source: str, line: int, found: ParsedDocuments) -> None:
    """Parse one document per line; an empty line is an empty document."""
    for _, text in _decoded(data, source, line, found):
        found.add(text)


def parse_file(data: bytes, source: str, name: str, found: ParsedDocuments) -> None:
    """Parse a whole file as one document.

    A binary file is a bad record, located at the line of its first invalid byte.
    """
    text = _text(data)
    if text is None:
        found.bad(f"{source}, line {data.count(10, 0, _first_bad(data)) + 1}", *invalid_text_reason(_around(data)))
    else:
        found.add(text, name)


def parse_json_lines(data: bytes, source: str, line: int, fields: JsonFieldNames, found: ParsedDocuments) -> None:
    """Parse one JSON object per line; blank lines are ignored."""
    for number, text in _decoded(data, source, line, found):
        if not text or text.isspace():
            continue
        try:
            record = _parsed(text)
        except (json.JSONDecodeError, RecursionError) as error:
            found.bad(f"{source}, line {number}", f"not valid JSON: {error}")
            continue
        if problem := _problem(record, fields.text, fields.name):
            found.bad(f"{source}, line {number}", problem)
            continue
        row = None
        if found.kept is not None:
            row = _kept_values(record, found.kept)
            if any(isinstance(value, float) and abs(value) >= 1 << 63 for value in row.values()):
                row = _kept_values(json.loads(text), found.kept)  # a whole number that orjson has rounded?
        found.add(_field(record, fields.text), _name(record, fields.name or "id", text), row)


def _parsed(text: str) -> Any:
    """Parse a JSON value.

    Falls back to the slower json module, which accepts NaN and lone surrogates and locates errors.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _field(record: object, name: str) -> Any:
    """Return the value of a field of an object; `_ABSENT` if it does not exist."""
    if isinstance(record, dict) and name in record:
        return record[name]
    first, point, rest = name.partition(".")
    return _field(record[first], rest) if point and isinstance(record, dict) and first in record else _ABSENT


def _kept_values(record: dict[str, Any], kept: KeptColumns) -> dict[str, Any]:
    """Return the fields to keep that an object has."""
    return {name: value for name in kept.names_in(record) if (value := _field(record, name)) is not _ABSENT}


def _name(record: dict[str, Any], field: str, text: str) -> object:
    name = _field(record, field)
    if isinstance(name, float):  # may be an integer that orjson has rounded
        name = _field(json.loads(text), field)
    return None if name is _ABSENT else name


def _problem(record: object, text_field: str, name_field: str | None) -> str:
    """Return what is wrong with a JSON record, or an empty string."""
    if not isinstance(record, dict):
        return "not a JSON object"
    for wanted, option in ((text_field, "--text-field"), (name_field, "--name-field")):
        if wanted is not None and _field(record, wanted) is _ABSENT:
            return f"no field {wanted!r} ({option}); the fields are {', '.join(map(repr, record)) or 'none'}"
    text = _field(record, text_field)
    problem = "" if isinstance(text, str) else token_problem(text)
    return f"field {text_field!r} {problem}" if problem else ""


def token_problem(tokens: object) -> str:
    """Return what is wrong with a value that should be a list of tokens, or an empty string."""
    if not isinstance(tokens, list) or not set(map(type, tokens)) <= {str}:
        return "is neither a string nor a list of tokens"
    together = "".join(tokens)
    if "\n" in together or "\0" in together or "" in tokens:
        return "has a token that is empty or contains a line break or NUL"
    try:
        together.encode()
    except UnicodeEncodeError:
        return "has a token that is not Unicode text"
    return ""


class JsonFieldNames(NamedTuple):
    """Names of the JSON fields that hold the text and the name of a document; dotted paths for nested fields.

    name: None uses "id" if it exists.
    """

    text: str
    name: str | None


@dataclass(frozen=True)
class DelimitedTextLayout:
    """Layout of delimited text: its dialect, the number of columns, and the positions of the columns to read."""

    dialect: DelimitedDialect
    count: int
    text: int
    name: int | None
    kept: Mapping[str, int] = field(default_factory=dict)


def header_row(source: TextInput, dialect: DelimitedDialect) -> list[str]:
    """Read and consume the header row of a source, if it has one.

    Returns the column names.

    Raises RequestError if the first row is not text.
    """
    header = source.take(dialect.first_row) if dialect.header else source.peek(dialect.first_row)
    text = _text(header)
    if text is None:
        problem, remedy = invalid_text_reason(header, skip="")
        raise RequestError(f"{source.name}, line 1: {problem}", remedy)
    try:
        rows = dialect.rows(text)
    except InvalidRow as error:
        raise RequestError(f"{source.name}, line 1: {error}", QUOTE_REMEDY) from None
    names = rows[0] if rows else []
    return names if dialect.header else [str(number) for number in range(1, len(names) + 1)]


def find_columns(
    source: TextInput,
    dialect: DelimitedDialect,
    text_column: str,
    name_column: str | None,
    kept: KeptColumns | None = None,
) -> DelimitedTextLayout:
    """Read the header row and find the columns.

    Raises RequestError, listing the existing columns, if one is missing.
    """
    names = header_row(source, dialect)
    require_columns(source.name, names, text_column, name_column, delimiter_remedy(names, dialect))
    places = {name: names.index(name) for name in (kept.names_of(source.name, names) if kept else ())}
    name = names.index(name_column) if name_column else None
    return DelimitedTextLayout(dialect, len(names), names.index(text_column), name, places)


def require_columns(
    source: str, names: Sequence[str], text_column: str, name_column: str | None, remedy: str = ""
) -> None:
    """Raise RequestError, listing the existing columns, if a column is missing."""
    for wanted, option in ((text_column, "--text-column"), (name_column, "--name-column")):
        if wanted is not None and wanted not in names:
            there = ", ".join(map(repr, names)) or "none"
            raise RequestError(
                f"{source} has no column {wanted!r}; its columns are {there}", remedy or f"Choose one with {option}."
            )


def delimiter_remedy(names: Sequence[str], dialect: DelimitedDialect) -> str:
    """Return a remedy if a file's only column looks like several columns with another delimiter."""
    guess = likely_delimiter(names[0], dialect.delimiter) if len(names) == 1 else None
    return f"If this is more than one column, use --delimiter {name_of_delimiter(guess)}." if guess else ""


def parse_csv(data: bytes, source: str, line: int, columns: DelimitedTextLayout, found: ParsedDocuments) -> None:
    """Parse one document per row; blank lines are ignored.

    Raises RequestError for an unclosed quote.
    """
    for row in _rows(data, source, line, columns, found):
        kept = {name: row[place] for name, place in columns.kept.items()}
        found.add(row[columns.text], None if columns.name is None else row[columns.name], kept)


def parse_table_rows(
    rows: Iterable[tuple[Text, str, Mapping[str, Any] | None]], source: str, row: int, found: ParsedDocuments
) -> None:
    """Parse one document per text, with its name and the values of its columns.

    row: index of the first document.
    """
    for number, (text, name, values) in enumerate(rows, row):
        if "\0" in text or "\0" in name:
            found.bad(f"{source}, row {number}", *invalid_text_reason(b"\0"))
        else:
            found.add(text, name, values)


def _rows(
    data: bytes, source: str, line: int, columns: DelimitedTextLayout, found: ParsedDocuments
) -> Iterable[list[str]]:
    """Return the valid rows of a chunk, parsed together, or one by one if any row is bad."""
    text = _text(data)
    if text is not None:
        with suppress(InvalidRow):
            rows = [row for row in columns.dialect.rows(text) if row]
            if all(len(row) == columns.count for row in rows):
                return rows
    return _rows_apart(data, source, line, columns, found)


def _rows_apart(
    data: bytes, source: str, line: int, columns: DelimitedTextLayout, found: ParsedDocuments
) -> Iterator[list[str]]:
    for before, piece in columns.dialect.rows_apart(data):
        where = f"{source}, line {line + before}"
        text = _text(piece)
        if text is None:
            found.bad(
                f"{source}, line {line + before + piece.count(10, 0, _first_bad(piece))}", *invalid_text_reason(piece)
            )
            continue
        try:
            (row,) = columns.dialect.rows(text)
        except InvalidRow as error:
            if not error.closed:
                raise RequestError(f"{where}: {error}", QUOTE_REMEDY) from None
            found.bad(where, str(error), f"{QUOTE_REMEDY} {_OR_SKIP}")
            continue
        if row and len(row) != columns.count:
            found.bad(where, f"{len(row)} columns, but the header has {columns.count}")
        elif row:
            yield row


def _decoded(data: bytes, source: str, line: int, found: ParsedDocuments) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line, skipping lines that are not UTF-8."""
    data = data.removesuffix(b"\n")
    if (text := _text(data)) is not None:
        yield from enumerate(text.split("\n"), line)
        return
    for number, piece in enumerate(data.split(b"\n"), line):
        if (one := _text(piece)) is not None:
            yield number, one
        else:
            found.bad(f"{source}, line {number}", *invalid_text_reason(piece))


def _text(data: bytes) -> str | None:
    """Decode bytes; None if they are not UTF-8 or contain NUL."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _first_bad(data: bytes) -> int:
    nul = data.find(b"\0")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return min(error.start, nul) if nul >= 0 else error.start
    return nul


def _around(data: bytes) -> bytes:
    """Return the line with the first invalid byte."""
    at = _first_bad(data)
    return data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at) + 1 or len(data)]


def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 text without NUL."""
    return _text(data) is not None


def invalid_text_reason(data: bytes, skip: str = _OR_SKIP) -> tuple[str, str]:
    """Return why a line is not UTF-8 text, and a remedy.

    skip: final sentence of the remedy.
    """
    at, likely = _first_bad(data), likely_encoding(data)
    if data[at] == 0 and data.count(0) > len(data) // 4:
        return f"a NUL byte: this may be {likely}", f"If it is, use --encoding {likely}. {skip}"
    if data[at] == 0:
        return "binary data (a NUL byte), not text", SKIP if skip else ""
    around = quoted(data[max(at - 20, 0) : at + 20].decode(likely, "replace").encode())
    return (
        f"byte 0x{data[at]:02x} is not UTF-8; as {likely} it reads {around}",
        f"If that is correct, use --encoding {likely}; otherwise, set --encoding to the file's encoding. {skip}",
    )


def has_names(names: Sequence[str]) -> bool:
    """Return whether any document has a name."""
    return any(names)
