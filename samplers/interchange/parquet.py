"""Models as tables in Parquet, by pyarrow.

of topics    topics.parquet (topic, alpha, tokens); words.parquet (word, topic, count, probability of the word in the
             topic); documents.parquet (document, topic, count, share of the topic in the document); rows that are 0
             are left out
of factors   rows.parquet and columns.parquet (name, bias, entries, factors)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from samplers.factorization.model import Factorization, Side
from samplers.topics.model import Rows, TopicModel, row_numbers

_RUN = 1 << 18  # rows that are written together


def write_parquet(model: TopicModel | Factorization, directory: Path) -> None:
    """Write the tables of a model into an empty directory; raises RequestError if pyarrow is not installed."""
    arrow = _arrow()
    if isinstance(model, Factorization):
        for name, side in (("rows", model.rows), ("columns", model.columns)):
            _write(arrow, directory / f"{name}.parquet", _of_side(arrow, side))
        return
    totals = model.topic_counts + model.vocabulary_size * model.beta
    lengths = np.bincount(row_numbers(model.documents), model.documents.counts, model.documents.offsets.size - 1)
    topics = {"topic": np.arange(model.topics), "alpha": model.alpha / model.states, "tokens": model.topic_counts}
    _write(arrow, directory / "topics.parquet", iter([topics]))
    _write(arrow, directory / "words.parquet", _of_words(model, totals))
    _write(arrow, directory / "documents.parquet", _of_documents(model, lengths + model.alpha.sum()))


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise RequestError("pyarrow is not installed", 'Install it with: pip install "ooc[parquet]"') from None
    return pyarrow


def _write(arrow: Any, path: Path, batches: Iterator[dict[str, Any]]) -> None:
    writer = None
    for batch in batches:
        table = arrow.table(batch)
        writer = writer or arrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def _of_words(model: TopicModel, totals: np.ndarray) -> Iterator[dict[str, Any]]:
    for words, topics, counts in _entries(model.words, model.vocabulary()):
        yield {"word": words, "topic": topics, "count": counts, "probability": (counts + model.beta) / totals[topics]}


def _of_documents(model: TopicModel, totals: np.ndarray) -> Iterator[dict[str, Any]]:
    names = model.document_names() or list(map(str, range(model.documents.offsets.size - 1)))
    rows = row_numbers(model.documents)
    for first, (documents, topics, counts) in enumerate(_entries(model.documents, names)):
        mine = rows[first * _RUN : first * _RUN + topics.size]
        yield {
            "document": documents,
            "topic": topics,
            "count": counts,
            "share": (counts + model.alpha[topics]) / totals[mine],
        }


def _entries(rows: Rows, names: Sequence[str]) -> Iterator[tuple[list[str], np.ndarray, np.ndarray]]:
    """Name, topic and count of some entries at a time; at least once."""
    numbers = row_numbers(rows)
    for first in range(0, max(numbers.size, 1), _RUN):
        run = slice(first, first + _RUN)
        yield [names[row] for row in numbers[run].tolist()], rows.topics[run].astype(np.int32), rows.counts[run]


def _of_side(arrow: Any, side: Side) -> Iterator[dict[str, Any]]:
    for first in range(0, len(side), _RUN):
        run = slice(first, first + _RUN)
        factors = np.ascontiguousarray(side.factors[run])
        yield {
            "name": [str(name) for name in side.names[run]],
            "bias": side.biases[run],
            "entries": side.entries[run],
            "factors": arrow.FixedSizeListArray.from_arrays(arrow.array(factors.reshape(-1)), factors.shape[1]),
        }
