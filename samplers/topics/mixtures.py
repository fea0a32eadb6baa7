"""Topic mixtures of documents: those that a model was trained with, and the files that any are written to.

Of a document of the training there are two mixtures theta_k = (n_k + alpha_k) / (N + abar). In the trained one n_k
counts the document's tokens by the topics that training ended with (the mean over states, of an averaged model); in
the folded-in one of `samplers.topics.inference` it is the expectation under the trained topics of words. Of a document
without tokens both are the prior, alpha_k / abar.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.files import allocate, disk_errors, scratch_directory
from blocks.npz import write_npz
from blocks.outputs import is_passed_on, output
from samplers.interchange.parquet import require_arrow, write_table
from samplers.topics import fold_in
from samplers.topics.model import TopicModel, read_only

FORMATS = (".npz", ".csv", ".jsonl", ".parquet")
_RUN = 1 << 20  # numbers of a table that are written together


class Output(NamedTuple):
    """A flat file with a row for each document."""

    path: str
    dtype: str
    columns: int


def allocate_mixtures(directory: Path, documents: int, topics: int, top: int | None) -> tuple[Output, ...]:
    """Create files for mixtures float32 (D, K), or for topics uint32 and weights float32 (D, top). Raises RequestError
    if the model has fewer than `top` topics."""
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


def write_trained(model: TopicModel, path: Path, suffix: str, top: int | None = None) -> None:
    """Write the trained mixtures of a model; see `write_mixtures`."""
    with scratch_directory(path) as scratch:
        write_mixtures(path, suffix, trained(model, scratch, top), model.document_lengths(), model.document_names())


def publish_trained(model: TopicModel, path: Path, top: int | None = None) -> None:
    """Publish a file with the trained mixtures of a model, in the format of its extension."""
    check_format(path)
    with disk_errors(path), output(path) as beside:
        write_trained(model, beside, suffix_of(path), top)


def suffix_of(path: Path) -> str:
    """Return the extension that gives the format of a file; .csv for standard output and pipes without one."""
    return path.suffix or (".csv" if is_passed_on(path) else "")


def check_format(path: Path) -> None:
    """Raise RequestError if the file extension is unknown, or its library is not installed."""
    if suffix_of(path) not in FORMATS:
        raise RequestError(f"{path}: unknown file extension {suffix_of(path)!r}", f"Use one of {', '.join(FORMATS)}.")
    if path.suffix == ".parquet":
        require_arrow()


def write_mixtures(
    path: Path, suffix: str, result: list[np.ndarray], tokens: np.ndarray, names: Sequence[str] | None
) -> None:
    """Write mixtures in the format that a suffix stands for.

    result: what `trained` or `infer` returned. tokens: int64 (D,), tokens of each document. names: of documents, None
    for their numbers from 1 on.

    .npz: tokens int64 (D,); mixtures float32 (D, K), or topics uint32 (D, T), weights float32 (D, T) and rest float32
    (D,), what is missing to 1; and names (D,) if there are any.
    .csv: a header, then a line for each document: name, tokens and K weights, or T pairs of topic and weight, and rest.
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
        write_npz(path, arrays | ({"names": np.array(names, str)} if names is not None else {}))
    elif suffix == ".parquet":
        write_table(path, _runs(columns, names))
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            if suffix == ".jsonl":
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(columns, names))
            else:
                writer = csv.writer(file)
                writer.writerow(["name", *_header(columns)])
                writer.writerows(_line(row) for row in _rows(columns, names))


def _runs(columns: dict[str, np.ndarray], names: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Yield names and rows of the columns for batches of documents."""
    documents = columns["tokens"].size
    step = max(1, _RUN // sum(math.prod(array.shape[1:]) for array in columns.values()))
    for first in range(0, max(documents, 1), step):  # a table without rows has columns, too
        run = slice(first, min(first + step, documents))
        yield {
            "name": names[run] if names is not None else [str(row + 1) for row in range(run.start, run.stop)],
            **{name: array[run] for name, array in columns.items()},
        }


def _rows(columns: dict[str, np.ndarray], names: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Yield the documents one by one, numbers with 6 significant digits, as fixed decimals would lose small shares."""
    for run in _runs(columns, names):
        values = [run["name"], *(array.tolist() for array in list(run.values())[1:])]
        for row in zip(*values, strict=True):
            yield {name: _short(value) for name, value in zip(run, row, strict=True)}


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _header(columns: dict[str, np.ndarray]) -> list[str]:
    if "mixture" in columns:
        return ["tokens", *(f"topic_{k}" for k in range(columns["mixture"].shape[1]))]
    pairs = (f"{name}_{t + 1}" for t in range(columns["topics"].shape[1]) for name in ("topic", "weight"))
    return ["tokens", *pairs, "rest"]


def _line(row: dict[str, Any]) -> list[Any]:
    if "mixture" in row:
        return [row["name"], row["tokens"], *row["mixture"]]
    pairs = chain.from_iterable(zip(row["topics"], row["weights"], strict=True))
    return [row["name"], row["tokens"], *pairs, row["rest"]]
