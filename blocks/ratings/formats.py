"""Formats of rating files, and their detection.

    MovieLens      user::item::rating::timestamp; or CSV with a header; or user, item, rating between tabs or blanks
    Netflix        a line `item:`, then lines user,rating,date for that item
    MatrixMarket   comments, a line of sizes, then lines row column value, numbered from 1

A header with column names determines user, item and rating; without a header they are the first fields, in this order.
Later fields are ignored. Lines without a rating are ratings of 1, such as purchases or views.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from blocks.corpus.record_parsers import invalid_text_reason, is_text
from blocks.corpus.uci import LARGEST
from blocks.delimited import NO_QUOTE, named_character, require_decimal
from blocks.errors import RequestError, quoted
from blocks.number_fields import BLANK, COMMA, POINT, QUOTE
from blocks.plain_numbers import plain_number
from blocks.text_inputs import TextInput, first_line_end

NOTHING = -1
TWO_COLONS = 256  # not a byte value
SIDES = ("user", "item", "rating")
HEADER_REMEDY = "If line 1 is a header, name the columns with --user-column, --item-column and --rating-column."
OPEN_QUOTE = "has a quote that is not closed, or text after a closing quote"
_COMMA_NUMBER = re.compile(r"[-+]?\d+(,\d*)?")
_SECTION = re.compile(rb"\s*(\S+):\s*")
_GENERAL = [[kind, b"general"] for kind in (b"real", b"integer", b"pattern")]  # MatrixMarket banners
_NAMES = {  # column names in lower case, letters and digits only
    "user": "user userid users uid username customer customerid member memberid person personid rater raterid "
    "reader readerid reviewer reviewerid viewer viewerid visitor visitorid",
    "item": "item itemid items iid movie movieid film filmid product productid asin parentasin book bookid isbn "
    "song songid track trackid artist artistid album albumid business businessid anime animeid joke jokeid article "
    "articleid game gameid recipe recipeid",
    "rating": "rating ratings score scores star stars value overall grade bookrating moviesrating count counts plays "
    "playcount weight",
    "time": "time timestamp timestamps date datetime unixreviewtime reviewtime ratedat createdat eventtime",
}
_KNOWN = {side: frozenset(names.split()) for side, names in _NAMES.items()}


class RatingsFormatOptions(NamedTuple):
    """Options for the format of ratings.

    delimiter, quote: see `options_dialect`; None detects the delimiter.
    decimal: `.` or `,`.
    user, item, rating, time: columns by name or number, from 1; None detects them; if rating is `none`, all ratings are
        1.
    timed: whether times are read.
    """

    delimiter: str | None = None
    quote: str | None = None
    decimal: str = "."
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    time: str | None = None
    timed: bool = False


class RatingsFormat(NamedTuple):
    """Format of the lines of an input.

    separator: a byte, TWO_COLONS, or a blank for any run of blanks and tabs.
    order: field indices, from 0, of user, item and rating, -1 if absent.
    sections: whether lines `item:` name the item of the lines that follow.
    quote: a byte, or -1.
    decimal: a byte.
    sizes: rows, columns and entries of a matrix whose users and items are numbers from 1; zeros if they are names.
    two_fields: whether a line may lack the third field.
    time: field index of the time, -1 if times are not read.
    """

    separator: int
    order: tuple[int, int, int]
    sections: bool = False
    quote: int = QUOTE
    decimal: int = POINT
    sizes: tuple[int, int, int] = (0, 0, 0)
    two_fields: bool = False
    time: int = NOTHING

    def split(self, line: bytes) -> list[str]:
        """Return the fields of a line."""
        return _split(line.decode("utf-8", "replace"), self.separator, self.quote)


def check_options(options: RatingsFormatOptions) -> None:
    """Raise RequestError if the options are invalid."""
    require_decimal(options.decimal, options.delimiter if options.delimiter != "::" else None)


def detect_format(source: TextInput, options: RatingsFormatOptions) -> RatingsFormat:
    """Read the lines before the first rating and return the format.

    Raises RequestError if it cannot be determined.
    """
    if source.is_database:
        options = options._replace(delimiter=",", quote=None, decimal=".")
    line = source.peek(first_line_end)
    if line.startswith(b"%%MatrixMarket"):
        return _matrix_market(source, options)
    if _SECTION.fullmatch(line):
        of_section = (0, NOTHING, NOTHING if options.rating == "none" else 1)
        time = _time_field([], options, source.name, 2)
        return RatingsFormat(COMMA, of_section, sections=True, quote=NOTHING, time=time)
    text, where = line.decode("utf-8", "replace"), f"{source.name}, line {source.line}"
    quote = _quote(options)
    separator = _separator(text, where, quote, options)
    fields = _split(text, separator, quote)
    if len(fields) < 2:
        raise RequestError(
            f"{where}: expected `user item rating`, got {quoted(line)}",
            "Fields can be separated by tabs, blanks, commas, semicolons, bars or `::`; give another with --delimiter.",
        )
    order = _order_of_numbers(options) or _order_of_names(fields, options, where)
    headed = order is not None and not _is_number_of(options.user or options.item)
    time = _time_field(fields if headed else [], options, where, 3 if len(fields) > 3 and order is None else NOTHING)
    if order is None:
        order = (0, 1, 2 if len(fields) > 2 and options.rating != "none" else NOTHING)
    elif headed:
        if not is_text(line):
            raise RequestError(f"{where}: {invalid_text_reason(line)[0]}", invalid_text_reason(line, skip="")[1])
        if quote >= 0 and any(field.startswith(chr(quote)) for field in fields):
            raise RequestError(
                f"{where}: {quoted(line)} {OPEN_QUOTE}",
                "Correct the line; or use --quote none if quotes are ordinary characters.",
            )
        source.take(first_line_end)
    two_fields = order[2] == NOTHING and len(fields) == 2 and options.rating != "none"
    return RatingsFormat(separator, order, quote=quote, decimal=ord(options.decimal), two_fields=two_fields, time=time)


def rating_columns(names: Sequence[str], options: RatingsFormatOptions, where: str) -> dict[str, str]:
    """Return the columns of user, item and rating (if any) of a table.

    Raises RequestError if they cannot be determined.
    """
    order = _order_of_numbers(options) or _order_of_names(names, options, where)
    if order is None or max(order) >= len(names):
        raise RequestError(
            f"{where}: cannot tell user, item and rating from the names {', '.join(map(repr, names))}", HEADER_REMEDY
        )
    found = {side: names[place] for side, place in zip(SIDES, order, strict=True) if place != NOTHING}
    time = _time_field(names, options, where, NOTHING)
    if time >= len(names):
        raise _no_time(where, options)
    return found if time == NOTHING else found | {"time": names[time]}


def _time_field(names: Sequence[str], options: RatingsFormatOptions, where: str, default: int) -> int:
    """Return the index of the field with the time, or -1 if times are not read.

    names: names of the columns, none if there is no header.
    default: index if nothing tells it, or -1.
    Raises RequestError if there is no such field.
    """
    if not options.timed:
        return NOTHING
    if options.time is not None and _is_number_of(options.time):
        if int(options.time) < 1:
            raise RequestError("column 0 does not exist: columns are counted from 1", "Add 1 to --time-column.")
        return int(options.time) - 1
    if options.time is not None:
        found = names.index(options.time) if options.time in names else NOTHING
    else:
        found = _sides(names).get("time", default)
    if found == NOTHING:
        raise _no_time(where, options)
    return found


def _no_time(where: str, options: RatingsFormatOptions) -> RequestError:
    wanted = "no column is known to be the time" if options.time is None else f"there is no column {options.time!r}"
    return RequestError(
        f"{where}: {wanted}, and --hold-out last-N needs the time of each rating",
        "Set --time-column to the column of the time: its name in the header, or its number, counted from 1.",
    )


def _quote(options: RatingsFormatOptions) -> int:
    if options.quote == NO_QUOTE:
        return NOTHING
    return QUOTE if options.quote is None else ord(named_character("--quote", options.quote))


def _separator(line: str, where: str, quote: int, options: RatingsFormatOptions) -> int:
    """Return the separator: the first one that puts a rating in its place, or gives a header, or else two fields."""
    if options.delimiter:
        return TWO_COLONS if options.delimiter == "::" else ord(named_character("--delimiter", options.delimiter))
    marks = [TWO_COLONS if mark == "::" else ord(mark) for mark in ("::", "\t", ",", ";", "|") if mark in line]
    marks = [mark for mark in marks if mark != COMMA or options.decimal != ","] or [BLANK]
    found = {mark: fields for mark in marks if len(fields := _split(line, mark, quote)) > 1}
    rated = [mark for mark, fields in found.items() if len(fields) > 2 and _is_rating(fields[2], options.decimal)]
    headed = [mark for mark, fields in found.items() if {"user", "item"} <= _sides(fields).keys()]
    if rated or headed:
        return [*rated, *headed][0]
    for mark in {*marks, BLANK} - {COMMA}:
        fields = _split(line, mark, quote)
        if len(fields) > 2 and _is_rating(fields[2], ",") and "," in fields[2]:
            raise RequestError(
                f"{where}: cannot tell whether the comma in {fields[2]!r} is a decimal comma",
                "If it is a decimal comma, use --decimal , and if it separates fields, use --delimiter ,",
            )
    return [*found, BLANK][0]


def _is_rating(field: str, decimal: str) -> bool:
    return plain_number(field) is not None if decimal == "." else bool(_COMMA_NUMBER.fullmatch(field))


def _split(line: str, separator: int, quote: int) -> list[str]:
    """Return the fields of a line without surrounding blanks and quotes, as `split_line` does."""
    mark = r"[ \t]+" if separator == BLANK else "::" if separator == TWO_COLONS else re.escape(chr(separator))
    unquoted = rf"((?:(?!{mark}).)*+)"
    q = re.escape(chr(quote)) if quote >= 0 else ""
    field = rf"(?:{q}((?:[^{q}]|{q}{q})*+){q}[ \t]*|{unquoted})" if q else rf"(?:((?!))|{unquoted})"
    pattern = re.compile(rf"[ \t]*{field}({mark}|$)")
    line, at, fields = line.strip(" \t\n"), 0, []
    while found := pattern.match(line, at):
        quoted_, plain, more = found.groups()
        fields.append(plain.strip(" \t") if quoted_ is None else quoted_.replace(chr(quote) * 2, chr(quote)))
        at = found.end()
        if not more:
            break
    return fields


def _is_number_of(column: str | None) -> bool:
    return column is not None and column.isdecimal()


def _order_of_numbers(options: RatingsFormatOptions) -> tuple[int, int, int] | None:
    """Return the order of fields given by number, from 1; None if no field is given by number."""
    given = (options.user, options.item, options.rating)
    if not any(map(_is_number_of, given)):
        return None
    if not all(map(_is_number_of, given[:2])) or not (_is_number_of(given[2]) or given[2] in (None, "none")):
        raise RequestError(
            "--user-column, --item-column and --rating-column must be all names or all numbers",
            "Use --user-column and --item-column, and --rating-column or `--rating-column none`.",
        )
    numbers = {side: int(column) for side, column in zip(SIDES, given, strict=True) if column and column.isdecimal()}
    if min(numbers.values()) < 1:
        raise RequestError("column 0 does not exist: columns are counted from 1", "Add 1 to each number.")
    if len(set(numbers.values())) < len(numbers):
        told = " and ".join(f"--{side}-column" for side in numbers)
        raise RequestError(f"{told} must be different columns", "Use a different number for each.")
    user, item, rating = (numbers.get(side, 0) - 1 for side in SIDES)
    return user, item, rating


def _order_of_names(fields: Sequence[str], options: RatingsFormatOptions, where: str) -> tuple[int, int, int] | None:
    """Return the order of fields by requested or well-known column names; None if the fields are not column names."""
    sides = _sides(fields)
    wanted = dict(zip(SIDES, (options.user, options.item, options.rating), strict=True))
    for side, name in wanted.items():
        if name in (None, "none"):
            continue
        if name not in fields:
            raise RequestError(
                f"{where}: no column {name!r}; the columns are {', '.join(map(repr, fields))}", HEADER_REMEDY
            )
        sides[side] = fields.index(name)
    sides.pop("time", None)
    if not {"user", "item"} <= sides.keys():
        if any(name not in (None, "none") for name in wanted.values()):
            raise RequestError(f"{where}: cannot tell which columns are the user and the item", HEADER_REMEDY)
        if "user" in sides and len(fields) == 2:  # with three fields, the last would not be a rating
            raise RequestError(
                f"{where}: {fields[sides['user']]!r} looks like a name of the user column, but "
                "no column looks like the item",
                f"{HEADER_REMEDY} If line 1 is a rating, use --user-column 1 --item-column 2 --rating-column none.",
            )
        return None
    if options.rating == "none":
        sides["rating"] = NOTHING
    elif "rating" not in sides:
        if len(fields) > 2:
            raise RequestError(
                f"{where}: cannot tell which of {', '.join(map(repr, fields))} is the rating",
                "Name it with --rating-column, or use `--rating-column none` if all ratings are 1.",
            )
        sides["rating"] = NOTHING
    return sides["user"], sides["item"], sides["rating"]


def _sides(fields: Sequence[str]) -> dict[str, int]:
    """Return the positions of well-known column names."""
    plain = ["".join(filter(str.isalnum, field.lower())) for field in fields]
    return {
        side: next(place for place, name in enumerate(plain) if name in known)
        for side, known in _KNOWN.items()
        if any(name in known for name in plain)
    }


def _matrix_market(source: TextInput, options: RatingsFormatOptions) -> RatingsFormat:
    banner = source.take(first_line_end)
    if options.timed:
        raise _no_time(source.name, options)
    words = banner.lower().split()
    if words[1:3] != [b"matrix", b"coordinate"] or words[3:] not in _GENERAL:
        raise RequestError(
            f"{source.name}, line 1: expected the header of a sparse general matrix, got {quoted(banner)}",
            "The header must be `%%MatrixMarket matrix coordinate real general`.",
        )
    while (line := source.take(first_line_end)).startswith(b"%") or line.isspace():
        pass
    sizes = line.split()
    if len(sizes) != 3 or not all(size.isdigit() and int(size) < LARGEST for size in sizes):
        raise RequestError(
            f"{source.name}, line {source.line - 1}: expected `rows columns entries`, got {quoted(line)}"
        )
    rows, columns, entries = map(int, sizes)
    order = (0, 1, NOTHING if words[3] == b"pattern" else 2)
    return RatingsFormat(BLANK, order, quote=NOTHING, sizes=(rows, columns, entries))


def last_section(data: bytes) -> bytes:
    """Return the last line `item:` in some whole lines, or nothing."""
    end = data.rfind(b":\n")
    return data[data.rfind(b"\n", 0, end) + 1 : end] + b":\n" if end >= 0 else b""
