"""Models as Parquet tables, written with pyarrow.

topic models    topics.parquet (topic, alpha, tokens, and unlisted: the probability in the topic of each word that is
                not listed with it); words.parquet (word, topic, count, probability of the word in the topic);
                documents.parquet (document, tokens, topic, count, share of the topic in the document's trained
                mixture). Words and documents are listed with the topics of their tokens, and words with those in which
                they have a prior of their own. The total share of all other topics of a document is listed under topic
                -1, so that the shares of each document sum to 1
factorizations  rows.parquet and columns.parquet (name, bias, entries, factors)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.stored_dataset import range_parts
from samplers.factorization.model import Factorization, Side
from samplers.topics.labels import label_list
from samplers.topics.model import TopicModel, additions_at, row_numbers

_RUN = 1 << 18  # rows that are written at a time


def write_parquet(model: TopicModel | Factorization, directory: Path) -> None:
    """Write the tables of a model to an empty directory.

    Raises RequestError if pyarrow is not installed.
    """
    if isinstance(model, Factorization):
        for name, side in (("rows", model.rows), ("columns", model.columns)):
            write_table(directory / f"{name}.parquet", _of_side(side))
        return
    totals = model.topic_counts + model.vocabulary_size * model.beta
    topics = {"topic": np.arange(model.topics), "alpha": model.alpha / model.states, "tokens": model.topic_tokens}
    named = {"label": labels} if (labels := label_list(model)) else {}
    write_table(directory / "topics.parquet", iter([topics | {"unlisted": model.beta / totals} | named]))
    write_table(directory / "words.parquet", _of_words(model, totals))
    write_table(directory / "documents.parquet", _of_documents(model))


def write_table(path: Path, batches: Iterator[dict[str, Any]]) -> None:
    """Write at least one batch of columns to a table; an array (n, m) becomes a column of lists."""
    arrow, writer = require_arrow(), None
    for batch in batches:
        table = arrow.table({name: _column(arrow, values) for name, values in batch.items()})
        writer = writer or arrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def _column(arrow: Any, values: Any) -> Any:
    """Return a list of strings, a NumPy array or a pyarrow array as a pyarrow column."""
    if isinstance(values, list):
        return arrow.array(values, arrow.string())
    if isinstance(values, arrow.Array) or values.ndim == 1:
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    return arrow.FixedSizeListArray.from_arrays(arrow.array(flat), values.shape[1])


def require_arrow() -> Any:
    """Return the pyarrow module.

    Raises RequestError if it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise RequestError(
            "the parquet format needs the package pyarrow, which is not installed",
            'Install it with: pip install "ooc[parquet]"',
        ) from None
    return pyarrow


def _of_words(model: TopicModel, totals: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield the rows of words in batches, at least one."""
    numbers, names = row_numbers(model.words), model.vocabulary()
    for first in range(0, max(numbers.size, 1), _RUN):
        run = slice(first, first + _RUN)
        words, topics, counts = numbers[run], model.words.topics[run].astype(np.int32), model.words.counts[run]
        probability = (counts + model.beta) / totals[topics]
        if model.prior is not None:
            counts = np.maximum(counts - additions_at(model.prior, words, topics), 0.0)
        listed = [names[word] for word in words.tolist()]
        yield {"word": listed, "topic": topics, "count": counts, "probability": probability}


def _of_documents(model: TopicModel) -> Iterator[dict[str, Any]]:
    """Yield the rows of documents in batches, at least one."""
    names = model.document_names()
    ends = model.documents.offsets + np.arange(model.documents.offsets.size)  # one row per document besides its topics
    for first, last in list(pairwise(range_parts(ends, _RUN).tolist())) or [(0, 0)]:
        rows, columns = _mixtures(model, first, last)
        numbers = (first + rows).tolist()
        yield {"document": [names[row] if names else str(row + 1) for row in numbers], **columns}


def _mixtures(model: TopicModel, first: int, last: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the rows of documents first, ..., last - 1, as document index (from 0) and columns.

    The topics of a document come first, then topic -1 for the rest of its mixture.
    """
    offsets = model.documents.offsets[first : last + 1]
    topics, counts = (array[offsets[0] : offsets[-1]] for array in model.documents[1:])
    sizes = np.diff(offsets) + 1
    rows, rests = np.repeat(np.arange(sizes.size), sizes), np.cumsum(sizes) - 1
    topic, count, share = np.full(rows.size, -1, np.int32), np.zeros(rows.size, counts.dtype), np.zeros(rows.size)
    listed = np.ones(rows.size, bool)
    listed[rests] = False
    topic[listed], count[listed] = topics, counts
    tokens = np.bincount(rows, count, sizes.size)
    share[listed] = (counts + model.alpha[topics]) / (tokens + model.alpha.sum())[rows[listed]]
    share[rests] = np.maximum(1.0 - np.bincount(rows, share, sizes.size), 0.0)
    lengths = np.rint(tokens / model.states).astype(np.int64)
    return rows, {"tokens": lengths[rows], "topic": topic, "count": count, "share": share}


def _of_side(side: Side) -> Iterator[dict[str, Any]]:
    for first in range(0, len(side), _RUN):
        run = slice(first, first + _RUN)
        yield {
            "name": [str(name) for name in side.names[run]],
            "bias": side.biases[run],
            "entries": side.entries[run],
            "factors": side.factors[run],
        }
