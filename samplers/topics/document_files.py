"""Files with a row for each document: .npz, .csv, .jsonl or .parquet."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.documents.document_table import DocumentTable, arrow_type
from blocks.errors import RequestError
from blocks.npz import write_npz
from blocks.outputs import is_passed_on
from samplers.interchange.parquet import require_arrow, write_table

FORMATS = (".npz", ".csv", ".jsonl", ".parquet")
_OURS = frozenset(
    [
        *("name", "names", "tokens", "mixture", "mixtures", "topics", "weights", "rest", "labels", "log_likelihood"),
        *("deviations", "predicted_tokens", "predictive_log_likelihood", "left_to_right_log_likelihood"),
    ]
)
_MOST_TEXTS = 1 << 30  # bytes of a column of strings in .npz
_RUN = 1 << 20  # numbers of a table that are written at a time

Fields = Sequence[
    tuple[str, str, int | None]
]  # of CSV: name, column, and index in the column's values if it has several


class KeptColumnsBeside(NamedTuple):
    """Kept columns of documents, written beside other values of the documents.

    names: names of the columns, without the text column.
    first: index of the first document.
    """

    table: DocumentTable
    names: list[str]
    first: int

    @property
    def written(self) -> dict[str, str]:
        """Return the name of each column in the file, made distinct from our own columns and from each other."""
        found: dict[str, str] = {}
        for name in self.names:
            told = name
            while _is_ours(told) or told in found.values() or (told != name and told in self.names):
                told = f"column_{told}"
            found[name] = told
        return found

    def typed(self, rows: slice) -> dict[str, Any]:
        """Return the values of some documents as pyarrow arrays, keyed by the names under which they are written."""
        found, arrow = self._taken(rows), require_arrow()
        kinds: Any = self.table.kinds
        return {self.written[name]: arrow.array(found[name], arrow_type(kinds[name], arrow)) for name in self.names}

    def plain(self, rows: slice) -> dict[str, list[Any]]:
        """Return the values of some documents as numbers and strings, None where missing."""
        return {self.written[name]: list(map(_plain, values)) for name, values in self._taken(rows).items()}

    def _taken(self, rows: slice) -> dict[str, list[Any]]:
        return self.table.take(np.arange(self.first + rows.start, self.first + rows.stop), self.names)

    def arrays(self, count: int) -> dict[str, np.ndarray]:
        """Return all values as arrays for .npz: numbers with NaN where missing, or else strings."""
        found = self.plain(slice(0, count))
        return {
            name: _as_array(values, self.table.kinds[of], of)
            for of, (name, values) in zip(self.names, found.items(), strict=True)
        }


def columns_beside(table: DocumentTable | None, documents: range) -> KeptColumnsBeside | None:
    """Return the kept columns of some documents, without the text column, or None if there are none."""
    names = [name for name in table.kinds if name != table.text] if table else []
    return KeptColumnsBeside(table, names, documents.start) if table and names else None


def _is_ours(name: str) -> bool:
    """Return whether a name can be the name of one of our own columns."""
    return name in _OURS or name.startswith(("topic_", "weight_", "sd_"))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _as_array(values: list[Any], kind: str, name: str) -> np.ndarray:
    if kind in ("integer", "number", "boolean"):
        whole = kind == "integer" and None not in values
        return np.array([np.nan if value is None else value for value in values], np.int64 if whole else np.float64)
    texts = ["" if value is None else value for value in values]
    size = 4 * len(texts) * max(map(len, texts), default=0)
    if size > _MOST_TEXTS:
        raise RequestError(
            f"the texts of column {name!r} take {size / 1e9:.1f} GB in .npz, where all have the length of the longest",
            "Write .csv, .jsonl or .parquet instead.",
        )
    return np.array(texts, str)


def suffix_of(path: Path) -> str:
    """Return the extension that determines the format of a file; .csv for standard output and pipes without one."""
    return path.suffix or (".csv" if is_passed_on(path) else "")


def check_format(path: Path) -> None:
    """Raise RequestError if the file extension is unknown or the library for it is not installed."""
    if suffix_of(path) not in FORMATS:
        raise RequestError(f"{path}: unknown file extension {suffix_of(path)!r}", f"Use one of {', '.join(FORMATS)}.")
    if path.suffix == ".parquet":
        require_arrow()


def write_documents(
    path: Path,
    suffix: str,
    columns: Mapping[str, np.ndarray],
    names: Sequence[str] | None,
    beside: KeptColumnsBeside | None,
    *,
    fields: Fields | None = None,
    plural: Mapping[str, str] | None = None,
    more: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a row for each document: name, number of tokens, kept columns, and the other columns.

    columns: (D,) or (D, n); the first is `tokens`.
    names: names of documents, or None to number them from 1.
    beside: kept columns, written after `tokens`.
    fields: columns of a CSV file after these, all others by default.
    plural: names of arrays in .npz that differ from the names of the columns.
    more: additional arrays for .npz.
    """
    if suffix == ".npz":
        arrays = {(plural or {}).get(name, name): array for name, array in columns.items()}
        arrays |= (beside.arrays(columns["tokens"].size) if beside else {}) | dict(more or {})
        write_npz(path, arrays | ({"names": np.array(names, str)} if names is not None else {}))
    elif suffix == ".parquet":
        write_table(path, _runs(columns, names, beside.typed if beside else None))
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            if suffix == ".jsonl":
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(columns, names, beside))
                return
            listed = fields if fields is not None else [(name, name, None) for name in columns if name != "tokens"]
            first = ["name", "tokens", *(beside.written.values() if beside else ())]
            writer = csv.writer(file)
            writer.writerow([*first, *(name for name, _, _ in listed)])
            for row in _rows(columns, names, beside):
                cells = (row[name] if place is None else row[name][place] for _, name, place in listed)
                writer.writerow([*(row[name] for name in first), *cells])


def _runs(
    columns: Mapping[str, np.ndarray], names: Sequence[str] | None, beside: Callable[[slice], dict[str, Any]] | None
) -> Iterator[dict[str, Any]]:
    """Yield the names and column values of batches of documents.

    beside: function that returns kept columns.
    """
    rest = {name: array for name, array in columns.items() if name != "tokens"}
    documents = columns["tokens"].size
    step = max(1, _RUN // sum(math.prod(array.shape[1:]) for array in columns.values()))
    for first in range(0, max(documents, 1), step):  # at least one batch, as an empty table has columns, too
        run = slice(first, min(first + step, documents))
        yield {
            "name": names[run] if names is not None else [str(row + 1) for row in range(run.start, run.stop)],
            "tokens": columns["tokens"][run],
            **(beside(run) if beside else {}),
            **{name: array[run] for name, array in rest.items()},
        }


def _rows(
    columns: Mapping[str, np.ndarray], names: Sequence[str] | None, beside: KeptColumnsBeside | None
) -> Iterator[dict[str, Any]]:
    """Yield the documents one by one, with numbers rounded to 6 significant digits: fixed decimals would lose small
    ones.
    """
    for run in _runs(columns, names, beside.plain if beside else None):
        values = [map(_short, each.tolist()) if isinstance(each, np.ndarray) else each for each in run.values()]
        for row in zip(*values, strict=True):
            yield dict(zip(run, row, strict=True))


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
