"""Ratings as recommenders are given them: lines of user, item and rating, in the usual formats.

    MovieLens     user::item::rating::timestamp; or CSV with a header; or user, item, rating with tabs or blanks between
    Netflix       a line `item:`, then lines user,rating,date of that item
    MatrixMarket  comments, a line of sizes, then lines row column value, numbered from 1

Fields after the rating are not read. Lines of two fields are ratings of 1: something that was bought, or watched.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel, unmanaged_kernel
from blocks.corpus.uci import quoted
from blocks.corpus.word_table import END
from blocks.errors import RequestError
from blocks.fields import BLANK, BREAK, QUOTE, TAB, is_blank, line_end, number_at, trimmed
from blocks.sources import Source, first_line

_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_SECTION = re.compile(rb"\s*(\S+):\s*")
_BOM = b"\xef\xbb\xbf"
_GENERAL = [[kind, b"general"] for kind in (b"real", b"integer", b"pattern")]  # MatrixMarket banners
_COLON = 58
_NOTHING = -1
_AT, _LINE, _FOUND = 0, 1, 2  # places in the state of `split_lines`


class Format(NamedTuple):
    """How the lines of an input are read.

    separator: a byte, or a blank for any run of blanks and tabs. order: which fields, from 0, are the user, the item
    and the rating, -1 for what is not on the line. sections: whether lines `item:` name the item of those that follow.
    """

    separator: int
    order: tuple[int, int, int]
    sections: bool = False


class Fields(NamedTuple):
    """The ratings of a chunk: names of users and items, one a line, END after the last, and float64 (N,) ratings."""

    users: bytes
    items: bytes
    values: np.ndarray


def detect(source: Source) -> Format:
    """Take what comes before the first rating, and say how the ratings are written; RequestError if that is unclear."""
    if source.peek(first_line).startswith(_BOM):
        source.take(lambda _: len(_BOM))
    line = source.peek(first_line)
    if line.startswith(b"%%MatrixMarket"):
        return _matrix_market(source)
    if _SECTION.fullmatch(line):
        return Format(ord(","), (0, _NOTHING, 1), sections=True)
    separator = _separator(line)
    fields = _split(line, separator)
    if len(fields) < 2:
        raise RequestError(
            f"{source.name}, line {source.line}: {quoted(line)} is not `user item rating`",
            "Fields stand between tabs, blanks, commas, semicolons or `::`.",
        )
    rated = len(fields) > 2
    if rated and not _NUMBER.fullmatch(fields[2]):
        source.take(first_line)  # names of the columns
    return Format(separator[0], (0, 1, 2 if rated else _NOTHING))


def _separator(line: bytes) -> bytes:
    """What stands between the fields of a line: the first that gives a rating in its place, or else two fields."""
    there = [mark for mark in (b"::", b"\t", b",", b";") if mark in line] or [b" "]
    rated = [mark for mark in there if len(fields := _split(line, mark)) > 2 and _NUMBER.fullmatch(fields[2])]
    return [*rated, *there][0]


def _split(line: bytes, separator: bytes) -> list[bytes]:
    return [field.strip().strip(b'"') for field in line.split(None if separator == b" " else separator)]


def _matrix_market(source: Source) -> Format:
    banner = source.take(first_line)
    words = banner.lower().split()
    if words[1:3] != [b"matrix", b"coordinate"] or words[3:] not in _GENERAL:
        raise RequestError(
            f"{source.name}, line 1: {quoted(banner)} is not a sparse general matrix",
            "Write it as `%%MatrixMarket matrix coordinate real general`.",
        )
    while (line := source.take(first_line)).startswith(b"%"):
        pass
    if len(line.split()) != 3:
        raise RequestError(f"{source.name}, line {source.line - 1}: {quoted(line)} is not `rows columns entries`")
    return Format(BLANK, (0, 1, _NOTHING if words[3] == b"pattern" else 2))


def last_section(data: bytes) -> bytes:
    """The last line `item:` of some whole lines, or nothing."""
    end = data.rfind(b":\n") if b"\r" not in data else max(data.rfind(b":\n"), data.rfind(b":\r\n"))
    return data[data.rfind(b"\n", 0, end) + 1 : end] + b":\n" if end >= 0 else b""


class Reader:
    """Reads whole lines of one format.

    low, high: the least and the largest rating there may be. skip: leave bad lines out and count them.
    Attributes: `skipped`, and `first_problem`, what was wrong with the first of them.
    """

    def __init__(self, low: float, high: float, *, skip: bool) -> None:
        self._range, self._skip = (low, high), skip
        self.skipped, self.first_problem = 0, ""

    def read(self, data: bytes, source: str, line: int, form: Format) -> Fields:
        """Read lines, the first of number `line`; raises RequestError, with file and line, for one that is bad."""
        data = data if data.endswith(b"\n") else data + b"\n"
        separator = form.separator
        if separator == ord(":"):
            data, separator = data.replace(b"::", b"\t"), TAB
        text = np.frombuffer(data, np.uint8)
        most = data.count(b"\n")
        names, values = np.empty((most, 4), np.int64), np.empty(most)
        state, fields = np.zeros(5, np.int64), np.zeros((3, 2), np.int64)
        rules = (separator, *form.order, form.sections, *self._range)
        while not split_lines(text, rules, fields, names, values, state):
            end = data.index(b"\n", state[_AT])
            self._note(data[state[_AT] : end], f"{source}, line {line + int(state[_LINE])}", form)
            state[_AT], state[_LINE] = end + 1, state[_LINE] + 1
        found = int(state[_FOUND])
        users, items = (join_names(text, names[:found, side : side + 2]) for side in (0, 2))
        return Fields(users.tobytes(), items.tobytes(), values[:found])

    def _note(self, line: bytes, where: str, form: Format) -> None:
        problem = f"{where}: {_wrong(line, form, self._range)}"
        if not self._skip:
            raise RequestError(problem, "Mend the line, or leave such lines out with --on-error skip.")
        self.skipped += 1
        self.first_problem = self.first_problem or problem


def _wrong(line: bytes, form: Format, allowed: tuple[float, float]) -> str:
    """What is wrong with a line that the kernel could not read."""
    marks = {ord(":"): b"::", BLANK: None}
    fields = [field.strip().strip(b'"') for field in line.split(marks.get(form.separator, bytes([form.separator])))]
    rating = form.order[2]
    if len(fields) <= max(form.order) or not all(fields[: max(form.order) + 1]):
        names = {0: "user", 1: "item", 2: "rating"}
        wanted = " ".join(names[side] for side in np.argsort(form.order).tolist() if form.order[side] >= 0)
        return f"{quoted(line)} is not `{wanted}`"
    try:
        value = float(fields[rating])
    except ValueError:
        return f"{quoted(fields[rating])} is not a rating"
    if not np.isfinite(value):
        return f"the rating {quoted(fields[rating])} is not a finite number"
    return f"the rating {value:g} is not between {allowed[0]:g} and {allowed[1]:g}"


@unmanaged_kernel
def split_lines(text, rules, fields, names, values, state):
    """Read ratings up to the end of the text, or to a bad line; returns whether it was the end.

    text: uint8, whole lines. rules: separator, order and sections of the `Format`, least and largest rating. fields:
    int64 (3, 2), work. Filled: names int64 (n, 4), where the user and the item of each rating begin and end, and values
    float64 (n,). state: int64 (5,), from which the kernel goes on: where the next line begins, its number from 0,
    ratings found, where the section's name begins and ends.
    """
    separator, user, item, rating, sections, low, high = rules
    at, line, found, section, section_end = state
    wanted = max(user, item, rating) + 1
    while at < text.size:
        end = line_end(text, at)
        first, last = trimmed(text, at, end)
        if sections and first < last and text[last - 1] == _COLON:
            section, section_end = first, last - 1
        elif first < last:
            value, good = 1.0, split_line(text, first, last, separator, wanted, fields)
            if good and rating >= 0:
                value, good = number_at(text, fields[rating, 0], fields[rating, 1])
            if not good or not low <= value <= high:
                state[:] = at, line, found, section, section_end
                return False
            names[found, 0], names[found, 1] = fields[user]
            names[found, 2], names[found, 3] = section, section_end
            if item >= 0:
                names[found, 2], names[found, 3] = fields[item]
            values[found] = value
            found += 1
        at = end + 1
        line += 1
    state[:] = at, line, found, section, section_end
    return True


@unmanaged_kernel
def split_line(text, at, end, separator, wanted, fields):
    """Find the first `wanted` fields of a line that lies between `at` and `end`; returns whether all are there.

    fields: int64 (3, 2), filled with where each begins and ends, without blanks and quotes around it.
    """
    for number in range(wanted):
        begin = at
        while at < end and text[at] != separator and not (separator == BLANK and text[at] == TAB):
            at += 1
        first, last = trimmed(text, begin, at)
        if last - first >= 2 and text[first] == QUOTE and text[last - 1] == QUOTE:
            first, last = first + 1, last - 1
        if first == last:
            return False
        fields[number, 0], fields[number, 1] = first, last
        at += 1
        while separator == BLANK and at < end and is_blank(text[at]):
            at += 1
    return True


@kernel
def join_names(text, places):
    """Names one after the other, a line break after each, then END.

    text: uint8. places: int64 (n, 2), where each begins and ends. Returns uint8.
    """
    size = 1
    for name in range(len(places)):
        size += places[name, 1] - places[name, 0] + 1
    joined = np.empty(size, np.uint8)
    at = 0
    for name in range(len(places)):
        for letter in range(places[name, 0], places[name, 1]):
            joined[at] = text[letter]
            at += 1
        joined[at] = BREAK
        at += 1
    joined[at] = END
    return joined
