"""Selection of the input columns that a corpus keeps in its document table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from blocks.documents.column_types import DocumentColumn, column_of_strings, column_of_values, unicode_text
from blocks.errors import RequestError

ALL = "all"
UNKNOWN = "unknown_tokens"  # name in --keep of the number of a document's tokens outside the given vocabulary
TEXT = "text"  # name of a document's text in --keep, whatever its column is called


class KeptColumns(NamedTuple):
    """Columns to keep.

    names: names of columns or fields, or just `ALL`.
    text: name of the text column, TEXT for inputs without columns.
    unknown: whether to add the column UNKNOWN.
    """

    names: tuple[str, ...]
    text: str
    unknown: bool = False

    @property
    def told(self) -> tuple[str, ...]:
        """Return all names, as given to --keep."""
        return (*self.names, *((UNKNOWN,) if self.unknown else ()))

    def names_of(self, source: str, columns: Sequence[str]) -> list[str]:
        """Return the columns of an input to keep.

        Raises RequestError, listing the existing columns, if one is missing.
        """
        names = list(columns) if ALL in self.names and ALL not in columns else list(self.names)
        if missing := [name for name in names if name not in columns]:
            there = ", ".join(map(repr, columns)) or "none"
            raise RequestError(
                f"{source} has no column {missing[0]!r}; its columns are {there}", "Choose columns with --keep."
            )
        if self.unknown and UNKNOWN in columns:
            raise RequestError(
                f"{source} has a column named {UNKNOWN!r}, which is reserved for the number of unknown tokens",
                "Rename the column.",
            )
        if twice := [name for name in names if columns.count(name) > 1]:
            raise RequestError(
                f"{source} has {columns.count(twice[0])} columns named {twice[0]!r}",
                "Rename them, or keep other columns.",
            )
        return names

    def names_in(self, record: Mapping[str, Any]) -> list[str]:
        """Return the fields of a JSON object to keep; fields may be missing."""
        if ALL in self.names:
            return list(dict.fromkeys([*record, self.text]))
        return list(self.names)

    @property
    def has_text(self) -> bool:
        """Return whether document texts are kept."""
        return bool({ALL, self.text} & set(self.names))

    def row(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a document to keep; a text that was given as a list of words is kept as its words."""
        words = values.get(self.text)
        return {**values, self.text: " ".join(words)} if isinstance(words, list) else values

    def columns(self, rows: Sequence[Mapping[str, Any]], *, typed: bool) -> dict[str, DocumentColumn]:
        """Return the columns of some documents, given the values of each.

        typed: whether values have types; CSV files and databases have only strings.
        """
        names = dict.fromkeys(name for row in rows for name in row)
        return {unicode_text(name): self._column(name, (row.get(name) for row in rows), typed) for name in names}

    def _column(self, name: str, values: Iterable[Any], typed: bool) -> DocumentColumn:
        if name == self.text:
            return DocumentColumn([None if value is None else str(value) for value in values], "text")
        return column_of_values(values) if typed else column_of_strings(values)
