"""Parse MatrixMarket files.

Sparse (`coordinate`): lines of row, column, value, from 1. Dense (`array`): values by column.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.design.design_rows import LARGEST, WIDE_ENTRY, SparseDesignRows
from blocks.design.formats import MatrixMarketFormat
from blocks.errors import RequestError, quoted
from blocks.number_fields import POINT, is_blank, is_number, line_end, parse_number, split_words, trim_blanks, word_end

_AT, _LINE, _FOUND = 0, 1, 2  # positions in the state of `read_entries`
_MEANING = ("value", "row column", "row column value")


def parse_market_lines(data: bytes, source: str, line: int, form: MatrixMarketFormat) -> SparseDesignRows:
    """Parse whole lines; `records` includes zero entries.

    line: number of the first line.

    Raises RequestError, naming file and line.
    """
    text = np.frombuffer(data, np.uint8)
    found, state = np.empty(data.count(b"\n"), WIDE_ENTRY), np.zeros(3, np.int64)
    shape = (form.rows, form.columns, form.fields, form.first)
    if not read_entries(text, shape, LARGEST, np.empty(3), found, state):
        what, remedy = _wrong(data[state[_AT] : data.index(b"\n", state[_AT])], form)
        raise RequestError(f"{source}, line {line + state[_LINE]}: {what}", remedy)
    found, lines = found[: state[_FOUND]], int(state[_FOUND])
    if form.mirrored:
        found = np.concatenate((found, _mirrored(found, form.mirrored)))
    return SparseDesignRows(found[found["value"].astype(np.float32) != 0], lines, np.empty(0))


def _mirrored(entries: np.ndarray, factor: int) -> np.ndarray:
    """Return the mirror images of entries across the diagonal."""
    mirrored = entries[entries["row"] != entries["column"]]
    mirrored["row"], mirrored["column"] = mirrored["column"].copy(), mirrored["row"].copy()
    mirrored["value"] *= factor
    return mirrored


def _wrong(line: bytes, form: MatrixMarketFormat) -> tuple[str, str]:
    """Return the message and the remedy for a line that the kernel could not parse."""
    fields = split_words(line)
    if len(fields) != form.fields or not all(map(is_number, fields)):
        return f"expected `{_MEANING[form.fields - 1]}`, got {quoted(line)}", "Correct the line."
    if form.fields != 2 and not is_number(fields[-1], LARGEST):
        return f"expected a finite float32 number, got {quoted(fields[-1])}", "Correct the line."
    if form.fields == 1:
        return f"more than the {form.rows * form.columns} values that the header says", "Correct the header."
    return (
        f"row {quoted(fields[0])}, column {quoted(fields[1])} is outside the matrix",
        f"The header says {form.rows} rows and {form.columns} columns; they are numbered from 1.",
    )


@unmanaged_kernel
def read_entries(text, shape, largest, numbers, found, state):
    """Read entries up to the end of the text or to a bad line; return whether the end was reached.

    text: uint8, whole lines.
    shape: number of rows, of columns and of numbers per line, and the index of the first entry among all entries.
    numbers: float64 (3,), workspace.
    found: WIDE_ENTRY (N,), filled.
    state: int64 (3,), updated: start of the next line, its number from 0, number of entries found.
    """
    rows, columns, fields, place = shape
    at, line, entry = state
    while at < text.size:
        end = line_end(text, at)
        begin, stop = trim_blanks(text, at, end)
        if begin < stop:
            good = read_numbers(text, begin, stop, numbers[:fields])
            row, column = numbers[0] - 1, numbers[1] - 1
            if fields == 1:
                row, column = float((place + entry) % rows), float((place + entry) // rows)
            value = 1.0 if fields == 2 else numbers[fields - 1]
            good &= 0 <= row < rows and 0 <= column < columns and row % 1 == 0 and column % 1 == 0
            if not good or abs(value) > largest:
                state[:] = at, line, entry
                return False
            found["row"][entry], found["column"][entry], found["value"][entry] = row, column, value
            entry += 1
        at = end + 1
        line += 1
    state[:] = at, line, entry
    return True


@unmanaged_kernel
def read_numbers(text, at, stop, numbers):
    """Fill `numbers`, float64, from a line between `at` and `stop`; return whether it has exactly that many numbers."""
    for field in range(numbers.size):
        while at < stop and is_blank(text[at]):
            at += 1
        after = word_end(text, at, stop)
        numbers[field], good = parse_number(text, at, after, POINT)
        if not good:
            return False
        at = after
    return at == stop
