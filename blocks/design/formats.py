"""Line formats of a design matrix, and parsing of file headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from blocks.corpus import record_parsers
from blocks.delimited import DelimitedDialect
from blocks.design.design_rows import MOST_COLUMNS, MOST_ROWS
from blocks.errors import RequestError, quoted
from blocks.text_inputs import TextInput, first_line_end

LABEL, LEFT_OUT = -1, -2  # used in place of a column index
_FIELDS = {  # number of fields on a line, by the words of the banner
    (b"coordinate", b"pattern"): 2,
    (b"coordinate", b"real"): 3,
    (b"coordinate", b"integer"): 3,
    (b"array", b"real"): 1,
    (b"array", b"integer"): 1,
}
_MIRRORED = {b"general": 0, b"symmetric": 1, b"skew-symmetric": -1}


class SvmlightFormat(NamedTuple):
    """Format of svmlight lines.

    columns: upper bound on the number of columns.
    first: index of the first column, 0 or 1.
    """

    columns: int = MOST_COLUMNS
    first: int = 1


class MatrixMarketFormat(NamedTuple):
    """A MatrixMarket file: its shape, the number of lines with entries, and the count of numbers on a line.

    first: for a dense matrix, the index of a chunk's first entry among all entries, which gives its position.
    mirrored: factor of the entry across the diagonal, 0 if the file is not symmetric.
    """

    rows: int
    columns: int
    entries: int
    fields: int
    first: int = 0
    mirrored: int = 0

    @property
    def is_dense(self) -> bool:
        return self.fields == 1


class TableFormat(NamedTuple):
    """Format of a table.

    decimal: `.` or `,`.
    names: field names.
    places: design column of each field, or LABEL or LEFT_OUT.
    """

    dialect: DelimitedDialect
    decimal: str
    names: Sequence[str]
    places: Sequence[int]

    @property
    def columns(self) -> int:
        return sum(place >= 0 for place in self.places)


class TableColumnChoice(NamedTuple):
    """Which columns of a table are used.

    known: the columns to use, in order; None for all except the target and the dropped columns.
    """

    target: str | None
    dropped: Collection[str]
    known: Sequence[str] | None


Form = SvmlightFormat | MatrixMarketFormat | TableFormat
NUMBERS = TableFormat(DelimitedDialect(), ".", ["number"], [LABEL])  # labels: one number on each line


def market_header(source: TextInput) -> MatrixMarketFormat:
    """Read the lines before the entries.

    Raises RequestError if the matrix is not real, or is dense and symmetric.
    """
    banner = source.take(first_line_end)
    words = banner.lower().split()
    fields = _FIELDS.get(tuple(words[2:4])) if words[:2] == [b"%%matrixmarket", b"matrix"] else None  # type: ignore[arg-type]
    mirrored = _MIRRORED.get(b" ".join(words[4:]))
    if fields is None or mirrored is None or (fields == 1 and mirrored):
        raise RequestError(
            f"{source.name}, line 1: expected the header of a real MatrixMarket matrix, got {quoted(banner)}",
            "The header must be like `%%MatrixMarket matrix coordinate real general`, as scipy.io.mmwrite writes it.",
        )
    while (line := source.take(first_line_end)).startswith(b"%") or line.isspace():
        pass
    sizes = line.split()
    if len(sizes) != (2 if fields == 1 else 3) or not all(size.isdigit() for size in sizes):
        raise RequestError(
            f"{source.name}, line {source.line - 1}: expected `rows columns entries`, got {quoted(line)}"
        )
    rows, columns, *entries = map(int, sizes)
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        raise RequestError(
            f"{source.name}, line {source.line - 1}: at most {MOST_ROWS} rows and {MOST_COLUMNS} columns are possible"
        )
    return MatrixMarketFormat(rows, columns, entries[0] if entries else rows * columns, fields, mirrored=mirrored)


def lines_with_entries(data: bytes) -> int:
    """Return the number of nonblank lines."""
    if not data.startswith(b"\n") and not any(mark in data for mark in (b"\n\n", b" \n", b"\t\n")):
        return data.count(b"\n") + (not data.endswith(b"\n"))
    return sum(map(bool, map(bytes.strip, data.split(b"\n"))))


def table_header(source: TextInput, dialect: DelimitedDialect, decimal: str, choice: TableColumnChoice) -> TableFormat:
    """Read the column names of a table.

    Raises RequestError if a name is missing or repeated.
    """
    names = record_parsers.header_row(source, dialect)
    remedy = record_parsers.delimiter_remedy(names, dialect) or "Names are in its line 1."
    return table_format(source.name, names, dialect, decimal, choice, ", line 1", remedy)


def table_format(
    source: str,
    columns: Sequence[str],
    dialect: DelimitedDialect,
    decimal: str,
    choice: TableColumnChoice,
    place: str = "",
    remedy: str = "",
) -> TableFormat:
    """Return the format of a table with these column names.

    place: position of the names, for messages.
    remedy: remedy for missing names.
    """
    names = [" ".join(name.split()) for name in columns]
    there = Counter(names)
    if twice := [name for name in names if there[name] > 1]:
        raise RequestError(f"{source}{place}: two columns are named {twice[0]!r}", "Rename one of them.")
    target, dropped, known = choice
    for name in [*([target] if target else []), *dropped, *(known or [])]:
        if name not in there:
            some = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise RequestError(f"{source} has no column {name!r}; its columns are {some}", remedy)
    taken = known or [name for name in names if name != target and name not in dropped]
    place_of = dict(zip(taken, range(len(taken)), strict=True)) | ({target: LABEL} if target else {})
    return TableFormat(dialect, decimal, names, [place_of.get(name, LEFT_OUT) for name in names])
