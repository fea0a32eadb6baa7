"""From the bytes of a chunk to documents: lines, JSON Lines, CSV rows, whole files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from blocks.errors import RequestError

csv.field_size_limit(1 << 30)

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
        self.names.append("" if name is None else " ".join(str(name).split()))

    def bad(self, where: str, problem: str) -> None:
        """Count a bad record, or raise RequestError."""
        if not self.skip:
            raise RequestError(f"{where}: {problem}", "Correct it, or leave such records out with --on-error skip.")
        self.skipped += 1
        self.first_problem = self.first_problem or f"{where}: {problem}"


def from_lines(data: bytes, source: str, line: int, found: Documents) -> None:
    """One document per line; an empty line is an empty document."""
    for _, text in _decoded(data, source, line, found):
        found.add(text)


def from_file(data: bytes, source: str, name: str, found: Documents) -> None:
    """One document: a whole file. A binary file is bad at the line of its first bad byte."""
    text = _text(data)
    if text is None:
        found.bad(f"{source}, line {data[: _first_bad(data)].count(10) + 1}", _why_bad(data))
    else:
        found.add(text, name)


def from_jsonl(data: bytes, source: str, line: int, text_field: str, name_field: str | None, found: Documents) -> None:
    """One JSON object per line; lines of white space are passed over.

    name_field: None takes "id" where there is one.
    """
    for number, text in _decoded(data, source, line, found):
        if not text or text.isspace():
            continue
        try:
            record = _parsed(text)
        except (json.JSONDecodeError, RecursionError) as error:
            found.bad(f"{source}, line {number}", f"not JSON: {error}")
            continue
        if problem := _problem(record, text_field, name_field):
            found.bad(f"{source}, line {number}", problem)
            continue
        found.add(record[text_field], _name(record, name_field or "id", text))


def _parsed(text: str) -> Any:
    """A JSON value; json is half as fast, but takes NaN and halves of surrogate pairs, and tells where a mistake is."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _name(record: dict[str, Any], field: str, text: str) -> object:
    name = record.get(field)
    return json.loads(text)[field] if isinstance(name, float) else name  # a whole number that orjson has rounded?


def _problem(record: object, text_field: str, name_field: str | None) -> str:
    """What is wrong with a JSON record, or nothing."""
    if not isinstance(record, dict):
        return "not a JSON object"
    for wanted, option in ((text_field, "--text-field"), (name_field, "--name-field")):
        if wanted is not None and wanted not in record:
            return f"there is no field {wanted!r}; there are {', '.join(map(repr, record)) or 'none'} ({option})"
    problem = "" if isinstance(record[text_field], str) else _token_problem(record[text_field])
    return f"field {text_field!r} {problem}" if problem else ""


def _token_problem(tokens: object) -> str:
    """What is wrong with a value that should be a list of tokens, or nothing."""
    if not isinstance(tokens, list) or not set(map(type, tokens)) <= {str}:
        return "holds neither text nor a list of tokens"
    together = "".join(tokens)
    if "\n" in together or "\0" in together or "" in tokens:
        return "has a token that is empty or holds a line break or a NUL"
    try:
        together.encode()
    except UnicodeEncodeError:
        return "has a token that is not Unicode text"
    return ""


@dataclass(frozen=True)
class Columns:
    """Where a CSV file holds what: the delimiter, and the position of the columns."""

    delimiter: str
    count: int
    text: int
    name: int | None


def find_columns(header: bytes, source: str, delimiter: str, text_column: str, name_column: str | None) -> Columns:
    """Read a header row; raises RequestError, with the columns there are, if one is missing."""
    text = _text(header.removeprefix(b"\xef\xbb\xbf"))
    if text is None:
        raise RequestError(f"{source}, line 1: {_why_bad(header)}")
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    for wanted, option in ((text_column, "--text-column"), (name_column, "--name-column")):
        if wanted is not None and wanted not in names:
            raise RequestError(
                f"{source} has no column {wanted!r}; there are {', '.join(map(repr, names)) or 'none'}",
                f"Choose one with {option}.",
            )
    return Columns(delimiter, len(names), names.index(text_column), names.index(name_column) if name_column else None)


def from_csv(data: bytes, source: str, line: int, columns: Columns, found: Documents) -> None:
    """One document per row; blank lines are passed over."""
    for first, text in _decoded_rows(data, source, line, found):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=columns.delimiter)
        while True:
            where = f"{source}, line {first + reader.line_num}"
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                found.bad(where, str(error))
                continue
            if not row:
                continue
            if len(row) != columns.count:
                found.bad(where, f"{len(row)} columns, but the header has {columns.count}")
                continue
            found.add(row[columns.text], None if columns.name is None else row[columns.name])


def _decoded_rows(data: bytes, source: str, line: int, found: Documents) -> Iterator[tuple[int, str]]:
    """The chunk as text; if it has bad bytes, its rows one by one, without the bad ones."""
    if (text := _text(data)) is not None:
        yield line, text
        return
    row, begin = b"", line
    for number, piece in enumerate(data.splitlines(keepends=True), line):
        row += piece
        if row.count(b'"') % 2:
            continue
        if (text := _text(row)) is not None:
            yield begin, text
        else:
            found.bad(f"{source}, line {begin + row[: _first_bad(row)].count(10)}", _why_bad(row))
        row, begin = b"", number + 1


def _decoded(data: bytes, source: str, line: int, found: Documents) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without those that are not UTF-8 text."""
    if line == 1:
        data = data.removeprefix(b"\xef\xbb\xbf")
    data = data.removesuffix(b"\n")
    if (text := _text(data)) is not None:
        yield from enumerate(text.split("\n"), line)
        return
    for number, piece in enumerate(data.split(b"\n"), line):
        if (one := _text(piece)) is not None:
            yield number, one
        else:
            found.bad(f"{source}, line {number}", _why_bad(piece))


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


def _why_bad(data: bytes) -> str:
    at = _first_bad(data)
    return "binary data (a NUL byte), not text" if data[at] == 0 else f"byte 0x{data[at]:02x} is not UTF-8 text"


def any_names(names: Sequence[str]) -> bool:
    """Whether any document has a name."""
    return any(names)
