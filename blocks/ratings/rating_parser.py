"""Parse lines of ratings into names of users and items, and numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, unmanaged_kernel
from blocks.corpus.record_parsers import invalid_text_reason, is_text
from blocks.errors import RequestError, quoted
from blocks.ingestion.messages import LineChunk
from blocks.ingestion.word_table import END, END_BYTE
from blocks.number_fields import BLANK, BREAK, COMMA, TAB, is_blank, is_number, line_end, parse_number, trim_blanks
from blocks.ratings.formats import HEADER_REMEDY, OPEN_QUOTE, SIDES, TWO_COLONS, RatingsFormat
from blocks.ratings.input_chunks import TableRatingsChunk
from blocks.ratings.times import ParsedTimes, parse_times

_COLON = 58
_AT, _LINE, _FOUND = 0, 1, 2  # positions in the state of `split_lines`
_SKIP = "Correct the line, or skip such lines with --on-error skip."


class UserOrItemNames(NamedTuple):
    """Names of users or items.

    joined: names, one per line, END after the last.
    places: index of each rating's name, int (N,), None if each rating has its own.
    """

    joined: bytes
    places: np.ndarray | None = None


class RatingFields(NamedTuple):
    """Ratings of a chunk: users, items, ratings float64 (N,), and N times, None if they are not read."""

    users: UserOrItemNames
    items: UserOrItemNames
    values: np.ndarray
    times: ParsedTimes | None = None


class RatingsParser:
    """Parses chunks.

    low, high: range of ratings.
    skip: skip and count bad lines. Attributes: `skipped`, the number of skipped lines, and `first_problem`, the message
        for the first of them.
    """

    def __init__(self, low: float, high: float, *, skip: bool) -> None:
        self._range, self._skip = (low, high), skip
        self.skipped, self.first_problem = 0, ""

    def read(self, chunk: LineChunk | TableRatingsChunk) -> RatingFields:
        """Parse a chunk.

        Raises RequestError, naming file and line.
        """
        if isinstance(chunk, TableRatingsChunk):
            return self._rows(chunk)
        return self._lines(chunk.data, chunk.source, chunk.line, chunk.form)

    def _lines(self, data: bytes, source: str, line: int, form: RatingsFormat) -> RatingFields:
        data = self._text_alone(data if data.endswith(b"\n") else data + b"\n", source, line)
        text = np.frombuffer(data, np.uint8)
        most = data.count(b"\n")
        names, values = np.empty((most, 7), np.int64), np.empty(most)
        state, fields = np.zeros(5, np.int64), np.zeros((4, 2), np.int64)
        marks = (form.separator, form.quote, form.decimal, form.two_fields)
        rules = (marks, form.sections, *form.sizes[:2], *self._range)
        wrong: dict[int, tuple[str, str]] = {}  # message and remedy for each bad line, by line number
        while not split_lines(text, (*form.order, form.time), rules, fields, names, values, state):
            end = data.index(b"\n", state[_AT])
            wrong[int(state[_LINE])] = _wrong(data[state[_AT] : end], form, self._range)
            if not self._skip:
                break
            state[_AT], state[_LINE] = end + 1, state[_LINE] + 1
        found = int(state[_FOUND])
        names, values, times = names[:found], values[:found], None
        if form.time >= 0:
            spelled = _list_of(join_names(text, names[:, 4:6], form.quote).tobytes())
            times = parse_times(spelled, line + names[:, 6])
            good = ~np.isnan(times.values)
            wrong |= {int(names[at, 6]): _wrong_time(spelled[at]) for at in np.flatnonzero(~good).tolist()}
            names, values, times = names[good], values[good], times.only(good)
        for number in sorted(wrong):
            self._note(f"{source}, line {line + number}", *wrong[number])
        users, items = (join_names(text, names[:, side : side + 2], form.quote) for side in (0, 2))
        return RatingFields(UserOrItemNames(users.tobytes()), UserOrItemNames(items.tobytes()), values, times)

    def _rows(self, chunk: TableRatingsChunk) -> RatingFields:
        (users, of_users), (items, of_items) = chunk.users, chunk.items
        low, high = self._range
        good, times = (chunk.values >= low) & (chunk.values <= high), chunk.times
        if times is not None:
            good &= ~np.isnan(times.values)
        if isinstance(users, bytes) and isinstance(items, bytes) and good.all():
            return RatingFields(
                UserOrItemNames(users + END_BYTE, of_users),
                UserOrItemNames(items + END_BYTE, of_items),
                chunk.values,
                times,
            )
        users, items = map(_listed, (users, items))
        for names, places in ((users, of_users), (items, of_items)):
            good &= np.fromiter(map(_is_name, names), bool, len(names))[places]
        for at in np.flatnonzero(~good).tolist():
            user, item, value = users[of_users[at]], items[of_items[at]], chunk.values[at]
            wrong = _wrong_row(user, item, value, self._range)
            self._note(f"{chunk.source}, row {chunk.row + at}", *(wrong or _wrong_time("")))
        kept = None if times is None else times.only(good)
        return RatingFields(_used(users, of_users[good]), _used(items, of_items[good]), chunk.values[good], kept)

    def _text_alone(self, data: bytes, source: str, line: int) -> bytes:
        """Return the lines; lines that are not valid UTF-8 become empty."""
        if is_text(data):
            return data
        lines = data.split(b"\n")
        for number, piece in enumerate(lines):
            if not is_text(piece):
                self._note(f"{source}, line {line + number}", *invalid_text_reason(piece))
                lines[number] = b""
        return b"\n".join(lines)

    def _note(self, where: str, what: str, remedy: str) -> None:
        problem = f"{where}: {what}"
        if not self._skip:
            raise RequestError(problem, remedy)
        self.skipped += 1
        self.first_problem = self.first_problem or problem


def _list_of(joined: bytes) -> list[str]:
    """Return names that are one per line, with END after the last."""
    return joined[:-1].decode().split("\n")[:-1]


def _listed(names: bytes | list[str]) -> list[str]:
    return names.decode().split("\n")[:-1] if isinstance(names, bytes) else names


def _is_name(name: str) -> bool:
    return bool(name) and not any(mark in name for mark in "\0\n\r")


def _wrong_time(text: str) -> tuple[str, str]:
    """Return what is wrong with a time, and a remedy."""
    if not text:
        return "the time is missing, or is neither a number nor a date", _SKIP
    return f"{text!r} is not a time: expected a number, or a date such as 2015-09-30 or 2015-09-30 17:05:00", _SKIP


def _wrong_row(user: str, item: str, value: float, allowed: tuple[float, float]) -> tuple[str, str] | None:
    """Return the message and the remedy for a bad user, item or rating in a row of a table; None if all are valid."""
    for side, name in (("user", user), ("item", item)):
        if not _is_name(name):
            return (
                f"{quoted(name.encode())} is not a valid {side} name" if name else f"the {side} is missing",
                _SKIP,
            )
    if not np.isfinite(value):
        return "the rating is missing, or not a finite number", _SKIP
    if not allowed[0] <= value <= allowed[1]:
        return f"the rating {value:g} is not between {allowed[0]:g} and {allowed[1]:g}", _SKIP
    return None


def _used(names: list[str], places: np.ndarray) -> UserOrItemNames:
    """Return the names that occur in at least one rating."""
    numbers, places = np.unique(places, return_inverse=True)
    joined = "".join(names[number] + "\n" for number in numbers.tolist())
    return UserOrItemNames(joined.encode() + END_BYTE, places)


def _wrong(line: bytes, form: RatingsFormat, allowed: tuple[float, float]) -> tuple[str, str]:
    """Return what is wrong with a line that the kernel could not parse, and a remedy."""
    fields, order = form.split(line), (*form.order, form.time)
    if len(fields) <= max(order) or not all(fields[place] for place in order if place >= 0):
        wanted = " ".join((*SIDES, "time")[side] for side in np.argsort(order).tolist() if order[side] >= 0)
        return f"expected `{wanted}`, got {quoted(line)}", _SKIP
    if form.two_fields and len(fields) > 2:
        return (
            f"{quoted(line)} has more fields than line 1, which has only a user and an item",
            f"{_SKIP} If line 1 is the bad one, use --user-column 1 --item-column 2 --rating-column 3.",
        )
    for side, (place, size) in enumerate(zip(order[:2], form.sizes[:2], strict=True)):
        if size and not (fields[place].isdecimal() and 1 <= int(fields[place]) <= size):
            return f"the {SIDES[side]} must be from 1 to {size}, as the header says; got {fields[place]!r}", _SKIP
    if order[2] >= 0 and (found := _wrong_rating(fields[order[2]], form.decimal, allowed)):
        return found
    return f"{quoted(line)} {OPEN_QUOTE}", f"{_SKIP} Use --quote none if quotes are ordinary characters."


def _wrong_rating(rating: str, decimal: int, allowed: tuple[float, float]) -> tuple[str, str] | None:
    try:
        value = float(rating.replace(",", ".") if decimal == COMMA else rating)
    except ValueError:
        return f"{rating!r} is not a rating", f"{_SKIP} {HEADER_REMEDY}"
    if not np.isfinite(value):
        return f"the rating must be a finite number, got {rating!r}", _SKIP
    if not is_number(rating.encode(), point=decimal):
        return f"{rating!r} is not a rating", _SKIP
    if not allowed[0] <= value <= allowed[1]:
        return f"the rating {value:g} is not between {allowed[0]:g} and {allowed[1]:g}", _SKIP
    return None


@unmanaged_kernel
def split_lines(text, order, rules, fields, names, values, state):
    """Read ratings up to the end of the text or to a bad line; return whether the end was reached.

    text: uint8, whole lines.
    order: field indices of user, item, rating and time.
    rules: fields of the `RatingsFormat`, and the minimum and maximum rating.
    fields: int64 (4, 2), workspace.
    names: int64 (n, 7), filled with start and end of the user, the item and the time of each rating, and the number of
        its line.
    values: float64 (n,), filled.
    state: int64 (5,), from which the kernel resumes: start of the next line, its number from 0, number of ratings
        found, start and end of the section's name.
    """
    marks, sections, rows, columns, low, high = rules
    at, line, found, section, section_end = state
    while at < text.size:
        end = line_end(text, at)
        first, last = trim_blanks(text, at, end)
        if sections and first < last and text[last - 1] == _COLON:
            section, section_end = first, last - 1
        elif first < last:
            value, good = 1.0, split_line(text, first, last, marks, order, fields)
            if good and rows:
                good = is_index(text, fields[0], rows) and is_index(text, fields[1], columns)
            if good and order[2] >= 0:
                value, good = parse_number(text, fields[2, 0], fields[2, 1], marks[2])
            if not good or not low <= value <= high:
                state[:] = at, line, found, section, section_end
                return False
            names[found, 0], names[found, 1] = fields[0]
            names[found, 2], names[found, 3] = section, section_end
            if order[1] >= 0:
                names[found, 2], names[found, 3] = fields[1]
            names[found, 4], names[found, 5] = fields[3]
            names[found, 6] = line
            values[found] = value
            found += 1
        at = end + 1
        line += 1
    state[:] = at, line, found, section, section_end
    return True


@unmanaged_kernel
def split_line(text, at, end, marks, order, fields):
    """Find the fields of a line, between `at` and `end`, that `order` requests; return whether all exist.

    marks: separator, quote, decimal mark, and whether nothing may follow these fields.
    fields: int64 (4, 2), filled with start and end of each field, without surrounding blanks and quotes. A field that
        contains doubled quotes starts at its opening quote.
    """
    separator, quote, _, two_fields = marks
    wanted = max(order[0], order[1], order[2], order[3]) + 1
    for number in range(wanted):
        while at < end and is_blank(text[at]) and text[at] != separator:
            at += 1
        if at < end and text[at] == quote:
            first, last, at = quoted_field(text, at, end, quote)
            while at < end and separator != BLANK and is_blank(text[at]) and text[at] != separator:
                at += 1
            if at < end and not is_separator(text, at, separator):
                return False
        else:
            begin = at
            while at < end and not is_separator(text, at, separator):
                at += 1
            first, last = trim_blanks(text, begin, at)
        for side in range(4):
            if order[side] == number:
                fields[side, 0], fields[side, 1] = first, last
                if first == last:
                    return False
        if at >= end and number < wanted - 1:
            return False
        at += 1 + (separator == TWO_COLONS)
        while separator == BLANK and at < end and is_blank(text[at]):
            at += 1
    return not two_fields or at > end


@inlined
def is_separator(text, at, separator):
    """Return whether a field separator starts at `at`.

    text: uint8, ends with a line break.
    """
    if separator == TWO_COLONS:
        return text[at] == _COLON and text[at + 1] == _COLON
    return text[at] == separator or (separator == BLANK and text[at] == TAB)


@unmanaged_kernel
def quoted_field(text, at, end, quote):
    """Return the start and end of a quoted field's contents (see `split_line`), and the position after the field.

    at: position of the opening quote. If the field is not closed before `end`, the contents are empty and the position
        is that of the opening quote.
    """
    last, doubled = at + 1, False
    while last < end and (text[last] != quote or (last + 1 < end and text[last + 1] == quote)):
        doubled |= text[last] == quote
        last += 1 + (text[last] == quote)
    if last >= end:
        return at, at, at
    return at + 1 - doubled, last, last + 1


@unmanaged_kernel
def is_index(text, place, size):
    """Return whether a field is an integer from 1 to `size` without leading zeros.

    place: start and end.
    """
    number = 0
    for at in range(place[0], place[1]):
        if not 48 <= text[at] <= 57 or (number == 0 and text[at] == 48) or number > size:
            return False
        number = 10 * number + (text[at] - 48)
    return 1 <= number <= size


@kernel
def join_names(text, places, quote):
    """Return the names, each followed by a line break, then END, uint8.

    text: uint8.
    places: int64 (n, 2), start and end of each name; in a name that starts with a quote, each pair of quotes becomes
        one quote.
    """
    size = 1
    for name in range(len(places)):
        size += places[name, 1] - places[name, 0] + 1
    joined = np.empty(size, np.uint8)
    at = 0
    for name in range(len(places)):
        begin, end = places[name]
        doubled = begin < end and text[begin] == quote
        letter = begin + doubled
        while letter < end:
            joined[at] = text[letter]
            at += 1
            letter += 1 + (doubled and text[letter] == quote)
        joined[at] = BREAK
        at += 1
    joined[at] = END
    return joined[: at + 1]
