"""List the documents in which a topic is strongest, with their columns and text excerpts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.documents.document_table import DocumentTable
from blocks.documents.expressions import DocumentExpression, selected
from blocks.errors import RequestError
from samplers.topics.excerpts import WORDS, TopicWordMarker, plain_excerpt
from samplers.topics.model import SavedTopicModel, TopicModel, read_only
from samplers.topics.prevalence import topic_shares
from samplers.topics.results import describe_topics, one_line, top_entries
from samplers.topics.training_documents import table_if_kept, training_dataset, training_table

_BATCH = 1 << 16  # documents


def strongest_documents(
    model: TopicModel, topic: int, count: int, *, table: DocumentTable | None = None, where: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the training documents with the largest shares of a topic, int64 (n,), and the shares, float64 (n,).

    Only documents with a token of the topic are returned; ties keep document order.

    where: condition on the columns of the table.
    Raises RequestError if there is no such topic, or the condition is invalid.
    """
    if not 0 <= topic < model.topics:
        raise RequestError(f"there is no topic {topic}", f"Topics have numbers from 0 to {model.topics - 1}.")
    rows, shares = np.empty(0, np.int64), np.empty(0)
    for first, chosen in _batches(model, table, where):
        found = _shares(model, topic, first, chosen.size)
        found[~chosen] = 0.0
        rows = np.append(rows, first + np.arange(chosen.size))
        shares = np.append(shares, found)
        best = np.argsort(-shares, kind="stable")[:count]
        rows, shares = rows[best], shares[best]
    return rows[shares > 0], shares[shares > 0]


def _batches(model: TopicModel, table: DocumentTable | None, where: str | None) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index of the first document of each batch, and the mask of the selected documents, bool (n,)."""
    documents = model.documents.offsets.size - 1
    if where is not None and table is not None:
        condition = DocumentExpression(where, "--where", table.kinds, is_condition=True)
        yield from ((first, chosen) for first, chosen, _ in selected(table, condition, [], documents))
        return
    for first in range(0, documents, _BATCH):
        yield first, np.ones(min(_BATCH, documents - first), bool)


def _shares(model: TopicModel, topic: int, first: int, size: int) -> np.ndarray:
    offsets, topics, counts = model.documents
    some = offsets[first : first + size + 1]
    entries = slice(int(some[0]), int(some[-1]))
    shares = np.empty(size)
    own = read_only(some - some[0]), read_only(topics[entries]), read_only(counts[entries])
    topic_shares(*own, read_only(model.alpha), topic, shares)
    return shares


def listed_documents(
    model: SavedTopicModel, topic: int, count: int, *, where: str | None, width: int, data: Path | None
) -> dict[str, Any]:
    """Return the documents in which a topic is strongest, as JSON types.

    width: maximum length of an excerpt in letters, 0 for no excerpts.
    data: path of the training dataset, see `training_dataset`.
    """
    table = training_table(model, data) if where is not None else table_if_kept(model, data)
    rows, shares = strongest_documents(model, topic, count, table=table, where=where)
    names, lengths = model.document_names(), model.document_lengths()
    described = next(each for each in describe_topics(model, top=5, documents=0) if each["topic"] == topic)
    listed = [
        {
            "document": row,
            "name": names[row] if names else str(row + 1),
            "tokens": int(lengths[row]),
            "weight": share,
        }
        for row, share in zip(rows.tolist(), shares.tolist(), strict=True)
    ]
    told = {"topic": topic, "label": described["label"], "words": [word["word"] for word in described["words"]]}
    if table is not None:
        texts = [table.text] if table.text and width else []
        columns = [name for name in table.kinds if name != table.text]
        marker = marker_of(model, topic, data) if texts else None
        for each, values in zip(listed, columns_of(table, rows.tolist(), [*columns, *texts]), strict=True):
            each["columns"] = {name: _json(values[name]) for name in columns}
            if marker and table.text:
                each["text"] = plain_excerpt(marker.excerpt(values[table.text] or "", width))
    return told | {"documents": listed}


def documents_table(told: dict[str, Any]) -> str:
    """Return a list of documents as text."""
    lines = [f"topic {told['topic']}: {told['label'] or ' '.join(told['words'])}"]
    if not told["documents"]:
        lines.append("no document has a token of this topic and fulfils the condition")
    for each in told["documents"]:
        values = [one_line(value) for value in each.get("columns", {}).values() if value is not None]
        about = "  ".join([each["name"], *values])
        lines.append(f"{100 * each['weight']:6.1f}%  {about} ({each['tokens']:,} tokens)")
        if "text" in each:
            lines += textwrap.wrap(each["text"], 110, initial_indent=" " * 9, subsequent_indent=" " * 9)
    return "\n".join(lines)


def marker_of(model: TopicModel, topic: int, data: Path | None) -> TopicWordMarker:
    """Return the marker of a topic's words in texts."""
    return markers(model, [topic], data)[0]


def markers(model: TopicModel, topics: Sequence[int], data: Path | None) -> list[TopicWordMarker]:
    """Return the markers of several topics' words in texts."""
    vocabulary = model.vocabulary()
    words, _ = top_entries(model.words, model.alpha, WORDS, per_row=False)
    made = (
        training_dataset(model, data).manifest["made"].get("options", {}) if isinstance(model, SavedTopicModel) else {}
    )
    return [
        TopicWordMarker([vocabulary[word] for word in words[topic].tolist() if word >= 0], made) for topic in topics
    ]


def add_texts(model: SavedTopicModel, described: list[dict[str, Any]], data: Path | None, width: int = 300) -> None:
    """Add text excerpts to the documents of topics from `describe_topics`, if texts were kept."""
    table = table_if_kept(model, data)
    if table is None or table.text is None:
        return
    rows = [document["document"] for topic in described for document in topic.get("documents", ())]
    texts = iter(columns_of(table, rows, [table.text]))
    for topic, marker in zip(described, markers(model, [each["topic"] for each in described], data), strict=True):
        for document in topic.get("documents", ()):
            document["pieces"] = marker.excerpt(next(texts)[table.text] or "", width)
            document["text"] = plain_excerpt(document["pieces"])


def _json(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def columns_of(table: DocumentTable, rows: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of some columns for some documents."""
    if not names:
        return [{} for _ in rows]
    found = table.take(list(rows), names)
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
