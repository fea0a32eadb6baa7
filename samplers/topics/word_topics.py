"""Tables of the topics of words: a row for each document, word and topic, streamed to .csv, .jsonl or .parquet.

name, word, tokens (number of tokens of the word in the document that have the topic), topic. Inferred topics have a
column `probability`: all tokens of a word in a document have the same most probable topic.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.stored_dataset import range_parts
from ooc.runs.run import CONFIG
from samplers.interchange.parquet import require_arrow, write_table
from samplers.topics.document_files import suffix_of
from samplers.topics.model import SavedTopicModel
from samplers.topics.token_topics import trained_topics

_FORMATS = (".csv", ".jsonl", ".parquet")
_RUN = 1 << 18  # tokens that are written at a time

Rows = Iterator[dict[str, Any]]  # batches of the columns of a table


def check_table_format(path: Path) -> None:
    """Raise RequestError if the file extension does not belong to a table format, or the library for it is not
    installed.
    """
    if suffix_of(path) not in _FORMATS:
        raise RequestError(
            f"{path}: word topics cannot be written to a {suffix_of(path)!r} file",
            f"Use one of {', '.join(_FORMATS)}.",
        )
    if path.suffix == ".parquet":
        require_arrow()


def inferred_rows(found: dict[str, np.ndarray], names: Sequence[str] | None, vocabulary: Sequence[str]) -> Rows:
    """Yield the rows of the table for inferred documents.

    found: result of `samplers.topics.inference.infer`.
    """
    starts = found["starts"]
    for first, last in list(pairwise(range_parts(starts, _RUN).tolist())) or [(0, 0)]:
        some = slice(int(starts[first]), int(starts[last]))
        documents = np.repeat(np.arange(first, last), np.diff(starts[first : last + 1]))
        words, counts, topics, probabilities = (
            np.array(found[name][some]) for name in ("words", "counts", "word_topics", "probabilities")
        )
        order = np.lexsort((words, documents))
        order = order[counts[order] > 0]
        yield _columns(documents[order], words[order], counts[order], topics[order], names, vocabulary) | {
            "probability": probabilities[order]
        }


def write_trained_words(model: SavedTopicModel, path: Path, run: Path, suffix: str) -> None:
    """Write the topics that the words of the training documents have at the end of training.

    run: run directory.
    Raises RequestError if the run no longer has its state, or is an imported model.
    """
    if not (run / CONFIG).exists():
        raise RequestError(
            f"{run} is a model, not a run, so the topics of single tokens are unknown", "Choose another --format."
        )
    write_words(path, suffix, _trained_rows(model, path.parent, run))


def _trained_rows(model: SavedTopicModel, directory: Path, run: Path) -> Rows:
    names, vocabulary = model.document_names(), model.vocabulary()
    for first, sizes, words, topics in trained_topics(run, directory):
        documents = np.repeat(np.arange(first, first + sizes.size), sizes)
        order = np.lexsort((topics, words, documents))
        keys = np.stack((documents[order], words[order].astype(np.int64), topics[order].astype(np.int64)))
        fresh = np.concatenate(([True], (np.diff(keys) != 0).any(axis=0)))[: order.size]
        starts = np.flatnonzero(fresh)
        counts = np.diff(np.append(starts, order.size)).astype(np.uint32)
        yield _columns(keys[0, starts], keys[1, starts], counts, keys[2, starts], names, vocabulary)


def _columns(
    documents: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray,
    topics: np.ndarray,
    names: Sequence[str] | None,
    vocabulary: Sequence[str],
) -> dict[str, Any]:
    return {
        "name": [names[document] if names else str(document + 1) for document in documents.tolist()],
        "word": [vocabulary[word] for word in words.tolist()],
        "tokens": counts,
        "topic": topics.astype(np.uint32),
    }


def write_words(path: Path, suffix: str, rows: Rows) -> None:
    """Write a table of the topics of words, in the format given by the file extension."""
    if suffix == ".parquet":
        write_table(path, rows)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer, header = csv.writer(file), False
        for batch in rows:
            columns = [values if isinstance(values, list) else _plain(values) for values in batch.values()]
            if suffix == ".csv":
                if not header:
                    writer.writerow(batch)
                    header = True
                writer.writerows(zip(*columns, strict=True))
            else:
                lines = (dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True))
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _plain(values: np.ndarray) -> list[Any]:
    """Return numbers as Python objects, with probabilities rounded to 6 significant digits."""
    return [float(f"{value:.6g}") for value in values.tolist()] if values.dtype.kind == "f" else values.tolist()
