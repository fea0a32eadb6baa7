"""Tables of numbers: CSV and TSV files, a row of the design each line."""

from __future__ import annotations

import csv
import io

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.corpus.uci import quoted
from blocks.design.formats import LABEL, LEFT_OUT, Table
from blocks.design.rows import LARGEST, DenseRows
from blocks.errors import RequestError
from blocks.fields import BREAK, QUOTE, is_number, number_at, trimmed

_AT, _LINE, _ROW = 0, 1, 2  # places in the state of `read_cells`
_BAD = -1

csv.field_size_limit(1 << 30)


def read(data: bytes, source: str, line: int, form: Table) -> DenseRows:
    """The rows of whole lines, the first of number `line`; RequestError, with file and line, for one that is bad."""
    text = np.frombuffer(data, np.uint8)
    most = data.count(b"\n")
    cells, y = np.empty((most, form.columns)), np.empty(most if LABEL in form.places else 0)
    state = np.zeros(3, np.int64)
    if not read_cells(text, ord(form.separator), np.array(form.places), LARGEST, cells, y, state):
        rest = io.StringIO(data[state[_AT] :].decode("utf-8", "replace"))
        what, remedy = _wrong(next(csv.reader(rest, delimiter=form.separator)), form)
        raise RequestError(f"{source}, line {line + state[_LINE]}: {what}", remedy)
    return DenseRows(cells[: state[_ROW]], y[: state[_ROW]])


def _wrong(row: list[str], form: Table) -> tuple[str, str]:
    """What is wrong with a row that the kernel could not read, and what to do."""
    if len(row) != len(form.places):
        return f"{len(row)} fields, but the header has {len(form.places)}", "Mend the line."
    for field, name, place in zip(row, form.names, form.places, strict=True):
        if place != LEFT_OUT and not is_number(field.strip().encode(), LARGEST):
            what = f"{quoted(field.encode())} is not a number that float32 can hold" if field.strip() else "it is empty"
            remedy = f"Fill it in, give a column of 0 and 1 for each value, or leave it out with --drop {name}."
            return f"column {name!r}: {what}", remedy
    return "the line cannot be read", "Mend it."


@unmanaged_kernel
def read_cells(text, separator, places, largest, cells, y, state):
    """Read rows up to the end of the text, or to a bad one; returns whether it was the end.

    text: uint8, whole rows. places: int64 (F,), column of each field, or LABEL or LEFT_OUT. Filled: cells float64
    (R, p), y float64 (R,). state: int64 (3,): where the next row begins, the number of its line from 0, rows found.
    """
    at, line, row = state
    while at < text.size:
        after, lines = field_end(text, at, separator)
        first, last = trimmed(text, at, after)
        if first < last or text[after] != BREAK:
            after, lines = read_row(text, at, separator, places, largest, cells[row], y[row : row + 1])
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
def read_row(text, at, separator, places, largest, cells, y):
    """Read the row that begins at `at` into cells float64 (p,) and, if it has a label, y float64 (1,).

    Returns where the next row begins, or -1 if this one is bad, and the line breaks between its quotes.
    """
    breaks = 0
    for field in range(places.size):
        end, lines = field_end(text, at, separator)
        breaks += lines
        if places[field] != LEFT_OUT:
            first, last = trimmed(text, at, end)
            if last - first >= 2 and text[first] == QUOTE and text[last - 1] == QUOTE:
                first, last = trimmed(text, first + 1, last - 1)
            value, good = number_at(text, first, last)
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
def field_end(text, at, separator):
    """Where the field that begins at `at` ends, and the line breaks between its quotes."""
    inside, lines = False, 0
    while at < text.size - 1 and (inside or (text[at] != separator and text[at] != BREAK)):
        inside ^= text[at] == QUOTE
        lines += text[at] == BREAK
        at += 1
    return at, lines
