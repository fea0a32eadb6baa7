"""From the bytes of a chunk to documents: lines, JSON Lines, CSV rows, whole files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import orjson

from blocks.delimited import BadRow, Dialect, likely_delimiter, name_of_delimiter
from blocks.encodings import likely_encoding
from blocks.errors import RequestError, quoted
from blocks.sources import Source

SKIP = "Correct the record, or leave out such records with --on-error skip."
_OR_SKIP = "Or leave out such records with --on-error skip."
QUOTE_REMEDY = "Close the quote; or, if quotes are ordinary characters in this file, give --quote none."

_ABSENT = object()

Text = str | list[str]  # a list holds tokens already


@dataclass
class Documents:
    """Documents of a chunk in their order, and what was left out because it was bad."""

    skip: bool  # leave bad records out instead of raising
    texts: list[Text] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    skipped: int = 0
    first_problem: str = ""

    def add(self, text: Text, name: object = None) -> None:
        """Append a document."""
        self.texts.append(text)
        self.names.append("" if name is None else as_name(name))

    def keep(self, which: Sequence[bool]) -> None:
        """Leave the other documents out."""
        self.texts, self.names = list(compress(self.texts, which)), list(compress(self.names, which))

    def bad(self, where: str, problem: str, remedy: str = SKIP) -> None:
        """Count a bad record, or raise RequestError."""
        if not self.skip:
            raise RequestError(f"{where}: {problem}", remedy)
        self.skipped += 1
        self.first_problem = self.first_problem or f"{where}: {problem}"


def as_name(name: object) -> str:
    """The name of a document: one line."""
    return " ".join(str(name).split())


def from_lines(data: bytes, source: str, line: int, found: Documents) -> None:
    """One document per line; an empty line is an empty document."""
    for _, text in _decoded(data, source, line, found):
        found.add(text)


def from_file(data: bytes, source: str, name: str, found: Documents) -> None:
    """One document: a whole file. A binary file is bad at the line of its first bad byte."""
    text = _text(data)
    if text is None:
        found.bad(f"{source}, line {data.count(10, 0, _first_bad(data)) + 1}", *not_text(_around(data)))
    else:
        found.add(text, name)


def from_jsonl(data: bytes, source: str, line: int, fields: JsonFields, found: Documents) -> None:
    """One JSON object per line; lines of white space are passed over."""
    for number, text in _decoded(data, source, line, found):
        if not text or text.isspace():
            continue
        try:
            record = _parsed(text)
        except (json.JSONDecodeError, RecursionError) as error:
            found.bad(f"{source}, line {number}", f"not valid JSON: {error}")
            continue
        if problem := _problem(record, *fields):
            found.bad(f"{source}, line {number}", problem)
            continue
        found.add(_field(record, fields.text), _name(record, fields.name or "id", text))


def _parsed(text: str) -> Any:
    """A JSON value; json is half as fast, but takes NaN and halves of surrogate pairs, and tells where a mistake is."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _field(record: object, name: str) -> Any:
    """The value of a field of an object; `_ABSENT` if there is none of that name."""
    if isinstance(record, dict) and name in record:
        return record[name]
    first, point, rest = name.partition(".")
    return _field(record[first], rest) if point and isinstance(record, dict) and first in record else _ABSENT


def _name(record: dict[str, Any], field: str, text: str) -> object:
    name = _field(record, field)
    if isinstance(name, float):  # a whole number that orjson has rounded?
        name = _field(json.loads(text), field)
    return None if name is _ABSENT else name


def _problem(record: object, text_field: str, name_field: str | None) -> str:
    """What is wrong with a JSON record, or nothing."""
    if not isinstance(record, dict):
        return "not a JSON object"
    for wanted, option in ((text_field, "--text-field"), (name_field, "--name-field")):
        if wanted is not None and _field(record, wanted) is _ABSENT:
            return f"no field {wanted!r} ({option}); the fields are {', '.join(map(repr, record)) or 'none'}"
    text = _field(record, text_field)
    problem = "" if isinstance(text, str) else _token_problem(text)
    return f"field {text_field!r} {problem}" if problem else ""


def _token_problem(tokens: object) -> str:
    """What is wrong with a value that should be a list of tokens, or nothing."""
    if not isinstance(tokens, list) or not set(map(type, tokens)) <= {str}:
        return "is neither a text nor a list of tokens"
    together = "".join(tokens)
    if "\n" in together or "\0" in together or "" in tokens:
        return "has a token that is empty or contains a line break or NUL"
    try:
        together.encode()
    except UnicodeEncodeError:
        return "has a token that is not Unicode text"
    return ""


class JsonFields(NamedTuple):
    """Which fields of JSON objects hold text and name: names, or names with points between them, of fields in objects
    that are fields. name: None takes "id" where there is one."""

    text: str
    name: str | None


@dataclass(frozen=True)
class Columns:
    """Where delimited text holds what: its dialect, the number of columns, and the position of those that are used."""

    dialect: Dialect
    count: int
    text: int
    name: int | None


def header_row(source: Source, dialect: Dialect) -> list[str]:
    """Take the header of a source, if it has one; returns the names of the columns.

    Raises RequestError if its first row is not text.
    """
    header = source.take(dialect.first_row) if dialect.header else source.peek(dialect.first_row)
    text = _text(header)
    if text is None:
        problem, remedy = not_text(header, skip="")
        raise RequestError(f"{source.name}, line 1: {problem}", remedy)
    try:
        rows = dialect.rows(text)
    except BadRow as error:
        raise RequestError(f"{source.name}, line 1: {error}", QUOTE_REMEDY) from None
    names = rows[0] if rows else []
    return names if dialect.header else [str(number) for number in range(1, len(names) + 1)]


def find_columns(source: Source, dialect: Dialect, text_column: str, name_column: str | None) -> Columns:
    """Take a header row; raises RequestError, with the columns there are, if one is missing."""
    names = header_row(source, dialect)
    require_columns(source.name, names, text_column, name_column, delimiter_remedy(names, dialect))
    return Columns(dialect, len(names), names.index(text_column), names.index(name_column) if name_column else None)


def require_columns(
    source: str, names: Sequence[str], text_column: str, name_column: str | None, remedy: str = ""
) -> None:
    """Raise RequestError, with the columns there are, if one is missing."""
    for wanted, option in ((text_column, "--text-column"), (name_column, "--name-column")):
        if wanted is not None and wanted not in names:
            there = ", ".join(map(repr, names)) or "none"
            raise RequestError(
                f"{source} has no column {wanted!r}; its columns are {there}", remedy or f"Choose one with {option}."
            )


def delimiter_remedy(names: Sequence[str], dialect: Dialect) -> str:
    """What to do if the one column of a file is several whose delimiter is another; nothing if it is not."""
    guess = likely_delimiter(names[0], dialect.delimiter) if len(names) == 1 else None
    return f"If they are more than one: --delimiter {name_of_delimiter(guess)}" if guess else ""


def from_csv(data: bytes, source: str, line: int, columns: Columns, found: Documents) -> None:
    """One document per row; blank lines are passed over. Raises RequestError for a quote that is never closed."""
    for row in _rows(data, source, line, columns, found):
        found.add(row[columns.text], None if columns.name is None else row[columns.name])


def from_rows(rows: Iterable[tuple[str, str]], source: str, row: int, found: Documents) -> None:
    """One document per text, with its name; the first is of number `row`."""
    for number, (text, name) in enumerate(rows, row):
        if "\0" in text or "\0" in name:
            found.bad(f"{source}, row {number}", *not_text(b"\0"))
        else:
            found.add(text, name)


def _rows(data: bytes, source: str, line: int, columns: Columns, found: Documents) -> Iterable[list[str]]:
    """The rows of a chunk that are not bad: read together, or one by one if any of them is bad."""
    text = _text(data)
    if text is not None:
        with suppress(BadRow):
            rows = [row for row in columns.dialect.rows(text) if row]
            if all(len(row) == columns.count for row in rows):
                return rows
    return _rows_apart(data, source, line, columns, found)


def _rows_apart(data: bytes, source: str, line: int, columns: Columns, found: Documents) -> Iterator[list[str]]:
    for before, piece in columns.dialect.rows_apart(data):
        where = f"{source}, line {line + before}"
        text = _text(piece)
        if text is None:
            found.bad(f"{source}, line {line + before + piece.count(10, 0, _first_bad(piece))}", *not_text(piece))
            continue
        try:
            (row,) = columns.dialect.rows(text)
        except BadRow as error:
            if not error.closed:
                raise RequestError(f"{where}: {error}", QUOTE_REMEDY) from None
            found.bad(where, str(error), f"{QUOTE_REMEDY} {_OR_SKIP}")
            continue
        if row and len(row) != columns.count:
            found.bad(where, f"{len(row)} columns, but the header has {columns.count}")
        elif row:
            yield row


def _decoded(data: bytes, source: str, line: int, found: Documents) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without those that are not UTF-8 text."""
    data = data.removesuffix(b"\n")
    if (text := _text(data)) is not None:
        yield from enumerate(text.split("\n"), line)
        return
    for number, piece in enumerate(data.split(b"\n"), line):
        if (one := _text(piece)) is not None:
            yield number, one
        else:
            found.bad(f"{source}, line {number}", *not_text(piece))


def _text(data: bytes) -> str | None:
    """The text of some bytes, or None if they are none: not UTF-8, or with a NUL."""
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
    """The line of the first bad byte."""
    at = _first_bad(data)
    return data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at) + 1 or len(data)]


def is_text(data: bytes) -> bool:
    """Whether some bytes are UTF-8 text without a NUL."""
    return _text(data) is not None


def not_text(data: bytes, skip: str = _OR_SKIP) -> tuple[str, str]:
    """Return why a line is not UTF-8 text, and a remedy. skip: last sentence of the remedy."""
    at, likely = _first_bad(data), likely_encoding(data)
    if data[at] == 0 and data.count(0) > len(data) // 4:
        return f"a NUL byte: this may be {likely}", f"If it is, give --encoding {likely}. {skip}"
    if data[at] == 0:
        return "binary data (a NUL byte), not text", SKIP if skip else ""
    around = quoted(data[max(at - 20, 0) : at + 20].decode(likely, "replace").encode())
    return (
        f"byte 0x{data[at]:02x} is not UTF-8; as {likely} it reads {around}",
        f"If that is right, give --encoding {likely}; else the encoding that the file has. {skip}",
    )


def any_names(names: Sequence[str]) -> bool:
    """Whether any document has a name."""
    return any(names)
