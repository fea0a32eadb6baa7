"""Topic mixtures of training documents, and file formats for mixtures.

A training document has two mixtures theta_k = (n_k + alpha_k) / (N + abar). In the trained mixture, n_k counts the
document's tokens by their topics at the end of training (for an averaged model, the mean over states); in the folded-in
mixture of `samplers.topics.inference`, n_k is the expected count given the trained topics. For a document without
tokens both are the prior, alpha_k / abar.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.documents.table import DocumentTable, arrow_type
from blocks.errors import RequestError
from blocks.files import allocate, disk_errors, scratch_directory
from blocks.npz import write_npz
from blocks.outputs import is_passed_on, output
from samplers.interchange.parquet import require_arrow, write_table
from samplers.topics import fold_in
from samplers.topics.labels import label_list
from samplers.topics.model import Model, TopicModel, read_only
from samplers.topics.run_documents import table_if_kept

FORMATS = (".npz", ".csv", ".jsonl", ".parquet")
_OURS = frozenset(["name", "names", "tokens", "mixture", "mixtures", "topics", "weights", "rest", "labels"])
_MOST_TEXTS = 1 << 30  # bytes of a column of strings in .npz
_RUN = 1 << 20  # numbers of a table that are written at a time


class Output(NamedTuple):
    """A flat file with one row per document."""

    path: str
    dtype: str
    columns: int


class ColumnsBeside(NamedTuple):
    """Kept columns of documents, to be written with their mixtures. names: names of the columns, without the text
    column. first: index of the first document."""

    table: DocumentTable
    names: list[str]
    first: int

    @property
    def written(self) -> dict[str, str]:
        """Return the name in the file of each column: another one than those of our columns, and of each other."""
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


def columns_beside(table: DocumentTable | None, documents: range) -> ColumnsBeside | None:
    """Return the kept columns of some documents, without the text column, or None if there are none."""
    names = [name for name in table.kinds if name != table.text] if table else []
    return ColumnsBeside(table, names, documents.start) if table and names else None


def _is_ours(name: str) -> bool:
    """Return whether a name may be that of a column of ours."""
    return name in _OURS or name.startswith(("topic_", "weight_"))


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


def allocate_mixtures(directory: Path, documents: int, topics: int, top: int | None) -> tuple[Output, ...]:
    """Create files for mixtures, float32 (D, K), or for topics, uint32 (D, top), and weights, float32 (D, top).

    Raises RequestError if the model has fewer than `top` topics.
    """
    if top is not None and not 1 <= top <= topics:
        raise RequestError(f"--top must be from 1 to {topics}, the number of topics; got {top}")
    kinds = [("mixtures", "float32")] if top is None else [("topics", "uint32"), ("weights", "float32")]
    outputs = tuple(Output(str(directory / name), dtype, top or topics) for name, dtype in kinds)
    for path, dtype, columns in outputs:
        allocate(Path(path), documents * columns * np.dtype(dtype).itemsize)
    return outputs


def mapped(outputs: Sequence[Output], documents: int) -> list[np.ndarray]:
    """Map files as writable arrays (D, columns)."""
    if not documents:  # an empty file cannot be mapped
        return [np.empty((0, columns), dtype) for _, dtype, columns in outputs]
    return [np.asarray(np.memmap(path, dtype, "r+", shape=(documents, columns))) for path, dtype, columns in outputs]


def trained(model: TopicModel, directory: Path, top: int | None = None) -> list[np.ndarray]:
    """Return the trained topic mixtures of the training documents, in the form of `samplers.topics.inference.infer`."""
    documents = model.documents.offsets.size - 1
    if not documents:
        raise RequestError(
            "the model has no topic mixtures of documents", "Import the model together with its documents."
        )
    arrays = mapped(allocate_mixtures(directory, documents, model.topics, top), documents)
    kernel = fold_in.trained_mixtures if top is None else fold_in.trained_top_topics
    kernel(*map(read_only, (*model.documents, model.alpha)), *arrays)
    return arrays


def write_trained(model: TopicModel, path: Path, suffix: str, top: int | None = None, data: Path | None = None) -> None:
    """Write the trained mixtures of a model; see `write_mixtures`. data: see `training_dataset`."""
    with scratch_directory(path) as scratch:
        columns = (
            columns_beside(table_if_kept(model, data), range(model.documents.offsets.size - 1))
            if isinstance(model, Model)
            else None
        )
        found = trained(model, scratch, top), model.document_lengths(), model.document_names()
        write_mixtures(path, suffix, *found, columns, label_list(model))


def publish_trained(model: TopicModel, path: Path, top: int | None = None) -> None:
    """Publish a file with the trained mixtures of a model, in the format of its extension."""
    check_format(path)
    with disk_errors(path), output(path) as beside:
        write_trained(model, beside, suffix_of(path), top)


def suffix_of(path: Path) -> str:
    """Return the extension that determines the format of a file; .csv for standard output and pipes without one."""
    return path.suffix or (".csv" if is_passed_on(path) else "")


def check_format(path: Path) -> None:
    """Raise RequestError if the file extension is unknown or the library for it is not installed."""
    if suffix_of(path) not in FORMATS:
        raise RequestError(f"{path}: unknown file extension {suffix_of(path)!r}", f"Use one of {', '.join(FORMATS)}.")
    if path.suffix == ".parquet":
        require_arrow()


def write_mixtures(
    path: Path,
    suffix: str,
    result: list[np.ndarray],
    tokens: np.ndarray,
    names: Sequence[str] | None,
    beside: ColumnsBeside | None = None,
    labels: Sequence[str] = (),
) -> None:
    """Write mixtures in the format of a file extension, `suffix`.

    result: result of `trained` or `infer`. tokens: int64 (D,), number of tokens of each document. names: names of
    documents, or None for their numbers, counted from 1. beside: kept columns, written after `tokens`. labels: labels
    of topics.

    .npz: tokens int64 (D,); mixtures float32 (D, K), or topics uint32 (D, T), weights float32 (D, T) and rest float32
    (D,), 1 minus the sum of the weights; names (D,) if there are any.
    .csv: a header, then a line per document with name, tokens and K weights, or T pairs of topic and weight, and rest.
    .jsonl: {"name": ..., "tokens": ..., "mixture": [...]} or {..., "topics": [...], "weights": [...], "rest": ...}.
    .parquet: the same columns as .jsonl.
    """
    columns: dict[str, np.ndarray] = {"tokens": tokens}
    if len(result) == 1:
        columns["mixture"] = result[0]
    else:
        rest = 1.0 - result[1].sum(axis=1, dtype=np.float64)
        columns |= {"topics": result[0], "weights": result[1], "rest": np.maximum(rest, 0.0).astype(np.float32)}
    if suffix == ".npz":
        arrays = {"mixtures" if name == "mixture" else name: array for name, array in columns.items()}
        arrays |= beside.arrays(tokens.size) if beside else {}
        arrays |= {"labels": np.array(labels, str)} if labels else {}
        write_npz(path, arrays | ({"names": np.array(names, str)} if names is not None else {}))
    elif suffix == ".parquet":
        write_table(path, _runs(columns, names, beside.typed if beside else None))
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            if suffix == ".jsonl":
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(columns, names, beside))
            else:
                writer = csv.writer(file)
                given = list(beside.written.values()) if beside else []
                writer.writerow(["name", "tokens", *given, *_header(columns, labels)])
                writer.writerows(_line(row, given) for row in _rows(columns, names, beside))


def _runs(
    columns: dict[str, np.ndarray], names: Sequence[str] | None, beside: Callable[[slice], dict[str, Any]] | None
) -> Iterator[dict[str, Any]]:
    """Yield the names and column values of batches of documents. beside: function that returns kept columns."""
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
    columns: dict[str, np.ndarray], names: Sequence[str] | None, beside: ColumnsBeside | None
) -> Iterator[dict[str, Any]]:
    """Yield the documents one by one, shares with 6 significant digits, as fixed decimals would lose small ones."""
    for run in _runs(columns, names, beside.plain if beside else None):
        values = [map(_short, each.tolist()) if isinstance(each, np.ndarray) else each for each in run.values()]
        for row in zip(*values, strict=True):
            yield dict(zip(run, row, strict=True))


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _header(columns: dict[str, np.ndarray], labels: Sequence[str]) -> list[str]:
    if "mixture" in columns:
        size = columns["mixture"].shape[1]
        return [f"topic_{k} ({labels[k]})" if labels and labels[k] else f"topic_{k}" for k in range(size)]
    pairs = (f"{name}_{t + 1}" for t in range(columns["topics"].shape[1]) for name in ("topic", "weight"))
    return [*pairs, "rest"]


def _line(row: dict[str, Any], given: Sequence[str]) -> list[Any]:
    first = [row["name"], row["tokens"], *(row[name] for name in given)]
    if "mixture" in row:
        return [*first, *row["mixture"]]
    pairs = chain.from_iterable(zip(row["topics"], row["weights"], strict=True))
    return [*first, *pairs, row["rest"]]
