"""Parse tables of numbers: CSV and TSV files, one row of the design per line."""

from __future__ import annotations

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.corpus.record_parsers import QUOTE_REMEDY
from blocks.delimited import InvalidRow
from blocks.design.design_rows import LARGEST, DenseDesignRows
from blocks.design.formats import LABEL, LEFT_OUT, TableFormat
from blocks.errors import RequestError, quoted
from blocks.number_fields import BREAK, is_number, parse_number, trim_blanks

_AT, _LINE, _ROW = 0, 1, 2  # positions in the state of `read_cells`
_BAD = _NONE = -1


def read(data: bytes, source: str, line: int, form: TableFormat) -> DenseDesignRows:
    """Parse whole lines.

    line: number of the first line.
    Raises RequestError, naming file and line, for a bad line.
    """
    text = np.frombuffer(data, np.uint8)
    most = data.count(b"\n")
    cells, y = np.empty((most, form.columns)), np.empty(most if LABEL in form.places else 0)
    state = np.zeros(3, np.int64)
    dialect = form.dialect
    marks = ord(dialect.delimiter), ord(dialect.quote) if dialect.quote else _NONE, ord(form.decimal)
    if not read_cells(text, marks, np.array(form.places), LARGEST, cells, y, state):
        what, remedy = _wrong(data[state[_AT] :], form)
        raise RequestError(f"{source}, line {line + state[_LINE]}: {what}", remedy)
    return DenseDesignRows(cells[: state[_ROW]], y[: state[_ROW]])


_REMEDIES = {  # keyed by whether the bad field is in the target column
    False: "Fill in missing values, code categories as columns of 0 and 1, or use --drop {}.",
    True: "Remove rows without a target, and code the two classes of a logistic regression as 0 and 1.",
}


def _wrong(data: bytes, form: TableFormat) -> tuple[str, str]:
    """Return what is wrong with the first row, which the kernel could not parse, and a remedy."""
    _, first = next(form.dialect.rows_apart(data))
    try:
        (row,) = form.dialect.rows(first.decode("utf-8", "replace"))
    except InvalidRow as error:
        return str(error), QUOTE_REMEDY
    if len(row) != len(form.places):
        return f"{len(row)} fields, expected {len(form.places)} as in the header", "Correct the line."
    for field, name, place in zip(row, form.names, form.places, strict=True):
        if place != LEFT_OUT and not is_number(field.strip().encode(), LARGEST, ord(form.decimal)):
            what = (
                f"expected a finite float32 number, got {quoted(field.encode())}"
                if field.strip()
                else "the field is empty"
            )
            return f"column {name!r}: {what}", _REMEDIES[place == LABEL].format(name)
    return "the line cannot be read", "Correct the line."


@unmanaged_kernel
def read_cells(text, marks, places, largest, cells, y, state):
    """Read rows up to the end of the text or to a bad row; return whether the end was reached.

    text: uint8, whole rows.
    marks: the delimiter, the quote (or -1) and the decimal mark, as bytes.
    places: int64 (F,), column of each field, or LABEL or LEFT_OUT.
    cells: float64 (R, p), filled.
    y: float64 (R,), filled.
    state: int64 (3,), updated: start of the next row, number of its line from 0, number of rows found.
    """
    at, line, row = state
    while at < text.size:
        after, lines = field_end(text, at, marks[0], marks[1])
        first, last = trim_blanks(text, at, after)
        if after == _BAD or first < last or text[after] != BREAK:
            after, lines = read_row(text, at, marks, places, largest, cells[row], y[row : row + 1])
            if after == _BAD:
                state[:] = at, line, row
                return False
            row += 1
        else:
            after += 1
        at = after
        line += lines + 1
    state[:] = at, line, row
    return True


@unmanaged_kernel
def read_row(text, at, marks, places, largest, cells, y):
    """Read the row that starts at `at` into cells float64 (p,) and, if it has a label, y float64 (1,).

    marks: see `read_cells`.
    Returns the start of the next row, or -1 if this row is bad, and the number of line breaks in quoted fields.
    """
    breaks = 0
    for field in range(places.size):
        end, lines = field_end(text, at, marks[0], marks[1])
        breaks += lines
        if end == _BAD:
            return _BAD, breaks
        if places[field] != LEFT_OUT:
            first, last = trim_blanks(text, at, end)
            if last - first >= 2 and text[first] == marks[1] and text[last - 1] == marks[1]:
                first, last = trim_blanks(text, first + 1, last - 1)
            value, good = parse_number(text, first, last, marks[2])
            if not good or abs(value) > largest:
                return _BAD, breaks
            if places[field] == LABEL:
                y[0] = value
            else:
                cells[places[field]] = value
        if (text[end] == BREAK) != (field == places.size - 1):
            return _BAD, breaks
        at = end + 1
    return at, breaks


@unmanaged_kernel
def field_end(text, at, separator, quote):
    """Return the end of the field that starts at `at`, and the number of line breaks between its quotes.

    The end is -1 if its quote is not closed, or if text follows the closing quote.

    text: uint8, ends with a line break.
    """
    lines, last = 0, text.size - 1
    if text[at] == quote:
        at += 1
        while at < last and (text[at] != quote or text[at + 1] == quote):
            lines += text[at] == BREAK
            at += 1 + (text[at] == quote)
        if at >= last or text[at + 1] not in (separator, BREAK):
            return _BAD, lines
        return at + 1, lines
    while text[at] != separator and text[at] != BREAK:
        at += 1
    return at, lines
