"""Delimited text (CSV, TSV): dialect, row ends, and rows.

A field is quoted if its first byte is a quote; elsewhere a quote is an ordinary character (RFC 4180, Python's csv).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from blocks.errors import RequestError

NO_QUOTE = "none"
_DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " ", "colon": ":"}
_GUESSES = "\t;|,"  # delimiters that messages suggest

csv.field_size_limit(1 << 30)


class InvalidRow(Exception):
    """Error for a row that cannot be parsed.

    closed: whether its quotes are closed.
    """

    def __init__(self, problem: str, *, closed: bool = True) -> None:
        super().__init__(problem)
        self.closed = closed


@dataclass(frozen=True)
class DelimitedDialect:
    """Format of rows.

    delimiter: one character.
    quote: one character, or None if no field is quoted.
    header: whether the first row has the column names; otherwise columns are numbered from 1.
    """

    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True

    @cached_property
    def _quoted(self) -> re.Pattern[bytes] | None:
        """Return a pattern for a quoted field, up to its closing quote or the end of the text.

        Searching is more than twice as fast for a pattern that starts with a fixed byte.
        """
        if self.quote is None:
            return None
        quote, delimiter = (re.escape(character.encode()) for character in (self.quote, self.delimiter))
        return re.compile(
            rb"%(q)s(?:(?<!.%(q)s)|(?<=[\n%(d)s]%(q)s))[^%(q)s]*+(?:%(q)s%(q)s[^%(q)s]*+)*+(?:(%(q)s)|\Z)"
            % {b"q": quote, b"d": delimiter},
            re.DOTALL,
        )

    def _fields(self, buffer: bytes | bytearray) -> list[tuple[int, int]]:
        """Return the start and end of each quoted field in a text; an unclosed field ends beyond the text."""
        if self._quoted is None or self.quote is None or self.quote.encode() not in buffer:
            return []
        return [(found.start(), found.end() + (found[1] is None)) for found in self._quoted.finditer(buffer)]

    def whole_row(self, buffer: bytearray) -> int:
        """Return the end of the last complete row of a text that starts with a row; 0 if there is none."""
        end = buffer.rfind(b"\n") + 1
        for first, last in reversed(self._fields(buffer)):
            if end > last:
                break
            if end > first:
                end = buffer.rfind(b"\n", 0, first) + 1
        return end

    def first_row(self, buffer: bytes | bytearray) -> int:
        """Return the end of the first row of a text; 0 if it is incomplete."""
        end = buffer.find(b"\n") + 1
        for first, last in self._fields(buffer):
            if not end or end <= first:
                break
            if end <= last:
                end = buffer.find(b"\n", last) + 1 if last <= len(buffer) else 0
        return end

    def rows_apart(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield each row as (number of line breaks before it, bytes)."""
        at = line = 0
        fields = iter(self._fields(data))
        field = next(fields, None)
        while at < len(data):
            end = data.find(b"\n", at) + 1 or len(data)
            while field and field[0] < end:
                if end <= field[1]:
                    end = (data.find(b"\n", field[1]) + 1 or len(data)) if field[1] <= len(data) else len(data)
                field = next(fields, None)
            yield line, data[at:end]
            line += data.count(b"\n", at, end)
            at = end

    def rows(self, text: str) -> list[list[str]]:
        """Return the fields of all rows; an empty line has no fields.

        Raises InvalidRow.
        """
        try:
            lines = io.StringIO(text, newline="")
            if self.quote is None:
                return list(csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True))
            return list(csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True))
        except csv.Error as error:
            if str(error) == "unexpected end of data":
                raise InvalidRow("a quoted field begins here and is not closed", closed=False) from None
            if "expected after" in str(error):
                raise InvalidRow("text follows the closing quote of a field") from None
            raise InvalidRow(str(error)) from None


def options_dialect(path: str, delimiter: str | None, quote: str | None, header: bool = True) -> DelimitedDialect:
    """Return the dialect of a file according to options.

    delimiter: a character or its name; None for a tab if the file name contains `.tsv`, else a comma.
    quote: a character or `none`; None for the double quote.
    Raises RequestError if one of them is invalid.
    """
    if delimiter is None:
        character = "\t" if ".tsv" in PurePath(path).suffixes else ","
    else:
        character = named_character("--delimiter", delimiter)
    if quote == NO_QUOTE:
        return DelimitedDialect(character, None, header)
    mark = '"' if quote is None else named_character("--quote", quote)
    if mark == character:
        raise RequestError(
            f"--quote and --delimiter must differ, got {mark!r} for both", "If no field is quoted, use --quote none."
        )
    return DelimitedDialect(character, mark, header)


def named_character(option: str, given: str) -> str:
    """Return an ASCII character given itself or by name, such as `tab`.

    Raises RequestError if it cannot separate fields.
    """
    character = {**_DELIMITERS, r"\t": "\t"}.get(given.lower(), given)
    if len(character) != 1 or not character.isascii() or character in "\r\n\0":
        raise RequestError(f"{option} must be one ASCII character, or one of {', '.join(_DELIMITERS)}; got {given!r}")
    return character


def require_decimal(decimal: str, delimiter: str | None) -> None:
    """Raise RequestError if the decimal mark is invalid or equals the delimiter (None: not given)."""
    if decimal not in (".", ","):
        raise RequestError(f"--decimal must be . or , (got {decimal!r})")
    if delimiter is not None and named_character("--delimiter", delimiter) == decimal:
        raise RequestError(
            f"--delimiter and --decimal must differ, got {decimal!r} for both",
            "Numbers with a decimal comma must be separated by another character.",
        )


def likely_delimiter(header: str, delimiter: str) -> str | None:
    """Return another delimiter that occurs in a header row, if the expected one does not."""
    if delimiter in header:
        return None
    return next((guess for guess in _GUESSES if guess in header), None)


def name_of_delimiter(delimiter: str) -> str:
    """Return a delimiter as it is written on the command line."""
    return next((name for name, character in _DELIMITERS.items() if character == delimiter), delimiter)
