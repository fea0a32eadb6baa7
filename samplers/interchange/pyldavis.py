"""Export the arguments of `pyLDAvis.prepare` as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from blocks.errors import RequestError
from samplers.topics.model import TopicModel, row_numbers
from samplers.topics.relevance import word_totals


def write_pyldavis(model: TopicModel, path: Path) -> None:
    """Write topic_term_dists (K, V), doc_topic_dists (D, K), doc_lengths (D,), vocab (V,) and term_frequency (V,).

    Words and documents without tokens are left out.
    Raises RequestError if there are no documents.
    """
    count = model.documents.offsets.size - 1
    frequencies = word_totals(model) / model.states
    lengths = np.bincount(row_numbers(model.documents), model.documents.counts, count) / model.states
    words, documents = np.flatnonzero(frequencies), np.flatnonzero(lengths)
    if not documents.size:
        raise RequestError("pyLDAvis needs the topic mixtures of documents, which this model does not have")
    vocabulary, shares = model.vocabulary(), model.word_shares()[:, words]
    rest = {
        "doc_lengths": np.rint(lengths[documents]).astype(np.int64).tolist(),
        "vocab": [vocabulary[word] for word in words.tolist()],
        "term_frequency": frequencies[words].tolist(),
    }
    with path.open("w", encoding="utf-8") as file:
        _write_rows(file, '{"topic_term_dists"', (row / row.sum() for row in shares))
        _write_rows(file, ',\n"doc_topic_dists"', _mixtures(model, documents))
        file.write(",\n" + json.dumps(rest, ensure_ascii=False)[1:])


def _mixtures(model: TopicModel, documents: np.ndarray) -> Iterator[np.ndarray]:
    for document in documents.tolist():
        shares, span = np.array(model.alpha), slice(*model.documents.offsets[document : document + 2])
        shares[model.documents.topics[span]] += model.documents.counts[span]
        yield shares / shares.sum()


def _write_rows(file: IO[str], name: str, rows: Iterator[np.ndarray]) -> None:
    file.write(f"{name}: [")
    for number, row in enumerate(rows):
        file.write((",\n" if number else "\n") + json.dumps(row.tolist()))
    file.write("]")
