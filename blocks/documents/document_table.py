"""Read the document table: Parquet files of consecutive documents in original order.

Files may be untrusted: their sizes, row counts and types must match the manifest, and what pyarrow reads is validated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from blocks.arrow_tables import open_parquet, pyarrow_module, valid_batch
from blocks.errors import RequestError, WorkFailed
from blocks.schemas import Count, FileEntry

_ROWS = 1 << 16  # of a batch


class TableColumnEntry(TypedDict):
    """Manifest entry for a column."""

    name: str
    kind: Literal["boolean", "integer", "number", "date", "time", "text"]


class TableFileEntry(FileEntry):
    """Manifest entry for a file of the table."""

    documents: Count


class DocumentTableEntry(TypedDict):
    """Manifest entry for the document table.

    text: name of the text column, if texts were kept.
    """

    columns: list[TableColumnEntry]
    text: NotRequired[str | None]
    files: list[TableFileEntry]


def arrow_type(kind: str, arrow: Any) -> Any:
    """Return the pyarrow type for a column type."""
    return {
        "boolean": arrow.bool_(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "date": arrow.date32(),
        "time": arrow.timestamp("us"),
        "text": arrow.string(),
    }[kind]


class DocumentTable:
    """The document table of a dataset. Attributes: `kinds`, column types by name; `text`, name of the text column, or
    None; `rows`, number of documents; `bytes`, total size of the files.

    root: directory of the dataset.
    entry: a `DocumentTableEntry`.
    documents: number of documents of the dataset.
    Raises WorkFailed if the table has a different number of documents.
    """

    def __init__(self, root: Path, entry: dict[str, Any], documents: int) -> None:
        self._root, self._files = root, entry["files"]
        self.kinds: dict[str, str] = {column["name"]: column["kind"] for column in entry["columns"]}
        self.text: str | None = entry.get("text")
        self.bytes = sum(file["bytes"] for file in self._files)
        self._ends = list(accumulate(file["documents"] for file in self._files))
        self.rows = self._ends[-1] if self._ends else 0
        if self.rows != documents or len(self.kinds) != len(entry["columns"]) or self.text not in (None, *self.kinds):
            raise self._damaged(root / "manifest.json", f"its table has {self.rows} rows, expected {documents}")

    def problems(self) -> Iterator[str]:
        """Read all files of the table, and yield a description of each problem."""
        try:
            for _ in self.batches(list(self.kinds)):
                pass
        except WorkFailed as error:
            yield error.what

    def require(self, name: str) -> None:
        """Raise RequestError, listing the existing columns, unless there is a column of this name."""
        if name not in self.kinds:
            there = ", ".join(f"{each} ({kind})" for each, kind in self.kinds.items())
            raise RequestError(f"there is no column {name!r}; the columns are {there}", "Choose one of them.")

    def batches(self, columns: Sequence[str], last: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield batches: index of the first document, and pyarrow arrays by column name.

        last: number of documents to read, None for all.
        """
        for name in columns:
            self.require(name)
        first, end = 0, self.rows if last is None else last
        for number in range(len(self._files)):
            if first >= end:
                return
            with self._opened(number) as file:
                for batch in file.iter_batches(batch_size=_ROWS, columns=list(columns), use_threads=False):
                    rows = min(batch.num_rows, end - first)
                    yield first, self._arrays(batch.slice(0, rows), columns)
                    first += rows
            if first < min(self._ends[number], end):
                raise self._lacks_rows(number)

    def take(self, numbers: np.ndarray | Sequence[int], columns: Sequence[str]) -> dict[str, list[Any]]:
        """Return values of some documents as Python objects, in the order of the given indices."""
        for name in columns:
            self.require(name)
        wanted = np.asarray(numbers, np.int64)
        found: dict[str, list[Any]] = {name: [None] * wanted.size for name in columns}
        order = np.argsort(wanted, kind="stable")
        starts = [0, *self._ends]
        for number, (begin, end) in enumerate(zip(starts, self._ends, strict=False)):
            some = order[np.searchsorted(wanted[order], begin) : np.searchsorted(wanted[order], end)]
            if some.size:
                with self._opened(number) as file:
                    if not self._take_of(file, wanted - begin, some, found):
                        raise self._lacks_rows(number)
        return found

    def _take_of(self, file: Any, rows: np.ndarray, places: np.ndarray, found: dict[str, list[Any]]) -> bool:
        """Read the requested documents that are in one file; returns False if the file has fewer rows than expected.

        rows: int64, rows of the requested documents in this file.
        places: positions of these documents in the result.
        """
        told = file.metadata
        ends = np.cumsum([told.row_group(group).num_rows for group in range(told.num_row_groups)])
        groups = np.searchsorted(ends, rows[places], side="right")
        for group in np.unique(groups).tolist():
            begin = int(ends[group - 1]) if group else 0
            inside = places[groups == group]
            for batch in file.iter_batches(
                batch_size=_ROWS, row_groups=[group], columns=list(found), use_threads=False
            ):
                here = inside[(rows[inside] >= begin) & (rows[inside] < begin + batch.num_rows)]
                arrays = self._arrays(batch, list(found))
                for name, values in found.items():
                    taken = arrays[name].take(pyarrow_module().array(rows[here] - begin)).to_pylist()
                    for place, value in zip(here.tolist(), taken, strict=True):
                        values[place] = value
                begin += batch.num_rows
            if begin != ends[group]:
                return False
        return True

    def _arrays(self, batch: Any, columns: Sequence[str]) -> dict[str, Any]:
        valid_batch(batch)
        return {name: batch.column(place) for place, name in enumerate(batch.schema.names) if name in columns}

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        """Open a file.

        Raises WorkFailed if it is missing or damaged, or if its rows or columns do not match the manifest.
        """
        entry, arrow = self._files[number], pyarrow_module()
        path = self._root / entry["file"]
        try:
            if path.stat().st_size != entry["bytes"]:
                raise self._damaged(path, f"it has {path.stat().st_size} bytes, expected {entry['bytes']}")
            with path.open("rb") as opened:
                file = open_parquet(opened)
                columns = [(field.name, field.type) for field in file.schema_arrow]
                expected = [(name, arrow_type(kind, arrow)) for name, kind in self.kinds.items()]
                told = file.metadata
                rows = {told.num_rows, sum(told.row_group(group).num_rows for group in range(told.num_row_groups))}
                if columns != expected or rows != {entry["documents"]}:
                    raise self._damaged(path, "its rows or columns do not match the manifest")
                yield file
        except FileNotFoundError:
            raise self._damaged(path, "the file is missing") from None
        except (arrow.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
            raise self._damaged(path, " ".join(str(error).split())) from None

    def _lacks_rows(self, number: int) -> WorkFailed:
        entry = self._files[number]
        return self._damaged(self._root / entry["file"], f"it has fewer than {entry['documents']:,} rows")

    def _damaged(self, path: Path, why: str) -> WorkFailed:
        return WorkFailed(f"{path} is damaged: {why}", f"List all damaged files with: ooc verify {self._root}")
