"""Parse svmlight (LIBSVM) files: one row per line, `label index:value index:value ...`, indices ascending from 1 or 0.

Comments start with `#`; zeros are dropped. `qid:number` after the label, the query id of a ranking, is ignored.
"""

from __future__ import annotations

import re

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.design.design_rows import LARGEST, WIDE_ENTRY, SparseDesignRows
from blocks.design.formats import SvmlightFormat
from blocks.errors import RequestError, quoted
from blocks.number_fields import POINT, is_blank, is_number, line_end, parse_number, split_words, trim_blanks, word_end

_COLON, _HASH = 58, 35
_PAIR = re.compile(rb"(\d+):(.*)", re.DOTALL)
_QUERY = re.compile(rb"qid:\d+")
_QUERIES = re.compile(rb"^[ \t]*[^\s#]+[ \t]+qid:\d", re.MULTILINE)
_AT, _LINE, _ROW, _FOUND = 0, 1, 2, 3  # positions in the state of `read_rows`
_BAD = -1
_FORM = "A line must be `label index:value index:value ...`."


def read(data: bytes, source: str, line: int, form: SvmlightFormat) -> SparseDesignRows:
    """Parse whole lines.

    line: number of the first line.
    Raises RequestError, naming file and line, for a bad line.
    """
    text = np.frombuffer(data, np.uint8)
    found, state = np.empty(data.count(b":"), WIDE_ENTRY), np.zeros(4, np.int64)
    labels = np.empty(data.count(b"\n"))
    if not read_rows(text, (form.first, form.columns, LARGEST), labels, found, state):
        what, remedy = _wrong(data[state[_AT] : data.index(b"\n", state[_AT])], form)
        raise RequestError(f"{source}, line {line + state[_LINE]}: {what}", remedy)
    queries = b"qid:" in data and bool(_QUERIES.search(data))
    return SparseDesignRows(found[: state[_FOUND]], int(state[_ROW]), labels[: state[_ROW]], queries)


def _wrong(line: bytes, form: SvmlightFormat) -> tuple[str, str]:
    """Return what is wrong with a line that the kernel could not parse, and a remedy."""
    label, *pairs = split_words(line.partition(b"#")[0])
    if b"," in label and all(map(is_number, label.split(b","))):
        return f"expected one label, got {quoted(label)}", "Keep one label, or make a dataset for each label."
    if not is_number(label):
        return f"the label must be a finite number, got {quoted(label)}", _FORM
    before = form.first - 1
    for pair in pairs[1:] if pairs and _QUERY.fullmatch(pairs[0]) else pairs:
        parts = _PAIR.fullmatch(pair)
        if parts is None:
            return f"expected `index:value`, got {quoted(pair)}", _FORM
        if what := _wrong_index(int(parts[1]), before, form):
            return what
        if not is_number(parts[2], LARGEST):
            return f"{quoted(pair)}: the value is not a finite float32 number", "Correct the line."
        before = int(parts[1])
    return f"{quoted(line)} cannot be read", _FORM


def _wrong_index(index: int, before: int, form: SvmlightFormat) -> tuple[str, str] | None:
    if index < form.first:
        return "index 0; indices count from 1", "If the indices of this file count from 0, use --zero-based."
    if index == before:
        return f"index {index} occurs twice", "Keep one of the two, or their sum."
    if index < before:
        return f"index {index} comes after {before}", "Sort the indices of each line."
    last = form.first + form.columns - 1
    if index > last:
        return (
            f"index {index} is above {last}, the index of the last column",
            "Remove columns that the dataset does not have.",
        )
    return None


@unmanaged_kernel
def read_rows(text, bounds, labels, found, state):
    """Read rows up to the end of the text or to a bad line; return whether the end was reached.

    text: uint8, whole lines.
    bounds: first column index, number of columns, and maximum value.
    labels: float64 (R,), filled.
    found: WIDE_ENTRY (N,), filled.
    state: int64 (4,), updated: start of the next line, its number from 0, numbers of rows and entries found.
    """
    at, line, row, entry = state
    while at < text.size:
        end = line_end(text, at)
        stop = at
        while stop < end and text[stop] != _HASH:
            stop += 1
        begin, stop = trim_blanks(text, at, stop)
        if begin < stop:
            after = word_end(text, begin, stop)
            labels[row], good = parse_number(text, begin, after, POINT)
            pairs = after_query(text, after, stop)
            following = read_pairs(text, pairs, stop, row, bounds, found, entry) if good else _BAD
            if following == _BAD:
                state[:] = at, line, row, entry
                return False
            entry = following
            row += 1
        at = end + 1
        line += 1
    state[:] = at, line, row, entry
    return True


@unmanaged_kernel
def after_query(text, at, stop):
    """Return the end of `qid:number` after a label, or `at` if there is no query id."""
    begin = at
    while begin < stop and is_blank(text[begin]):
        begin += 1
    if stop - begin > 4 and text[begin] == 113 and text[begin + 1] == 105 and text[begin + 2] == 100:
        digit = begin + 4
        while digit < stop and 48 <= text[digit] <= 57:
            digit += 1
        if text[begin + 3] == _COLON and digit > begin + 4 and (digit == stop or is_blank(text[digit])):
            return digit
    return at


@unmanaged_kernel
def read_pairs(text, at, stop, row, bounds, found, entry):
    """Read the pairs of a row between `at` and `stop`.

    bounds: see `read_rows`.
    found: WIDE_ENTRY, filled from position `entry` on.
    Returns the position after the last entry, or -1 if a pair is invalid.
    """
    rows, places, values = found["row"], found["column"], found["value"]
    first, columns, largest = bounds
    before, last = first - 1, first + columns - 1
    while True:
        while at < stop and is_blank(text[at]):
            at += 1
        if at == stop:
            return entry
        index, begin = 0, at
        while at < stop and 48 <= text[at] <= 57 and index <= last:
            index = 10 * index + (text[at] - 48)
            at += 1
        is_index = at > begin and before < index <= last
        if not is_index or at == stop or text[at] != _COLON:
            return _BAD
        after = word_end(text, at, stop)
        value, good = parse_number(text, at + 1, after, POINT)
        if not good or abs(value) > largest:
            return _BAD
        rows[entry], places[entry], values[entry] = row, index - first, value
        entry += np.float32(value) != 0
        before, at = index, after
