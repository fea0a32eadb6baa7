"""What a topic model shows: a map of its topics, their words, sizes, correlations and documents."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplers.model import Model
from samplers.relevance import LEVELS, Relevant, relevant_words, word_totals
from samplers.report.charts import category, drawn, quantity, values
from samplers.report.section import Section
from samplers.results import top_entries
from samplers.topic_map import Shares, document_shares, plane, similarities

MOST_TOPICS = 500  # the largest
MOST_CORRELATED = 40  # topics in the picture of the correlations
WORDS, DOCUMENTS, NEIGHBOURS, HOLDERS = 30, 8, 6, 8  # that are shown of a topic; topics of a word
_DIGITS = 6


def section(model: Model) -> Section:
    """Of a trained topic model; its topics are numbered by place here, the largest first."""
    order = np.argsort(-model.topic_counts, kind="stable")[:MOST_TOPICS]
    slots = np.full(model.topics, -1, np.int64)
    slots[order] = np.arange(order.size)
    relevant = relevant_words(model, slots, WORDS)
    shares = document_shares(model.documents, slots)
    mapped = plane(similarities(model, slots))
    listed = np.unique(np.concatenate(relevant.words))
    vocabulary = model.vocabulary()
    words = [vocabulary[word] for word in listed.tolist()]
    totals = word_totals(model)
    tokens = max(float(totals.sum()), 1.0)
    topics = _topics(model, order, relevant, listed, shares, mapped.places)
    for topic, documents in zip(topics, _documents(model, order), strict=True):
        topic["documents"] = documents
    for topic in topics:
        best = np.argsort(-np.array(topic["counts"]), kind="stable")[:10]
        topic["top"] = [words[topic["words"][i]] for i in best]
    data = {
        "tiles": [
            ("topics", f"{model.topics:,}"),
            ("tokens", f"{int(model.documents.counts.sum()) / model.states:,.0f}"),
            ("words", f"{model.vocabulary_size:,}"),
            ("documents", f"{model.documents.offsets.size - 1:,}"),
        ],
        "all": model.topics,
        "kept": mapped.kept,
        "step": float(LEVELS[1]),
        "shown": WORDS,
        "beta": model.beta,
        "states": model.states,
        "vocabulary": words,
        "totals": _rounded(totals[listed]),
        "tokens": tokens,
        "holders": _holders(model, slots, listed),
        "topics": topics,
    }
    charts = {
        "map": _map(topics),
        "sizes": _bars(topics, "share", "percent of all tokens", 100.0),
        "largest": _bars(topics, "largest", "documents of which it is the largest topic", 1.0),
    }
    if order.size > 2:
        charts["correlations"] = _correlations(topics, shares.correlations)
    return Section("topics", "Topics", data, charts)


def _topics(
    model: Model, order: np.ndarray, relevant: Relevant, listed: np.ndarray, shares: Shares, places: np.ndarray
) -> list[dict[str, Any]]:
    """For each topic its number, size, words as places among those that are listed, place on the map, neighbours."""
    total = max(float(model.topic_counts.sum()), 1.0)
    return [
        {
            "topic": k,
            "share": round(float(model.topic_counts[k]) / total, _DIGITS),
            "mass": float(model.topic_counts[k]) + model.vocabulary_size * model.beta,
            "words": np.searchsorted(listed, relevant.words[slot]).tolist(),
            "counts": _rounded(relevant.counts[slot]),
            "x": round(float(places[slot, 0]), _DIGITS),
            "y": round(float(places[slot, 1]), _DIGITS),
            "largest": int(shares.largest[slot]),
            "present": int(shares.present[slot]),
            "neighbours": _neighbours(shares.correlations[slot], slot),
        }
        for slot, k in enumerate(order.tolist())
    ]


def _neighbours(correlations: np.ndarray, slot: int) -> list[tuple[int, float]]:
    """The topics that share most documents with one."""
    order = [other for other in np.argsort(-correlations, kind="stable").tolist() if other != slot]
    return [(other, round(float(correlations[other]), 3)) for other in order[:NEIGHBOURS] if correlations[other] > 0]


def _documents(model: Model, order: np.ndarray) -> list[list[tuple[str, float]]]:
    """The names of the documents in which each topic weighs most, with its share of them."""
    names = model.document_names()
    rows, weights = top_entries(model.documents, model.alpha, DOCUMENTS, per_row=True)
    return [
        [
            (names[row] if names else f"document {row + 1:,}", round(weight, 4))
            for row, weight in zip(rows[k].tolist(), weights[k].tolist(), strict=True)
            if row >= 0
        ]
        for k in order.tolist()
    ]


def _holders(model: Model, slots: np.ndarray, listed: np.ndarray) -> list[list[tuple[int, float]]]:
    """For each word the topics that have most of its tokens, with their shares of these."""
    offsets, topics, counts = model.words
    found = []
    for word in listed.tolist():
        places = slots[topics[offsets[word] : offsets[word + 1]]]
        shares = np.asarray(counts[offsets[word] : offsets[word + 1]], float)
        shares /= shares.sum()
        best = [entry for entry in np.argsort(-shares, kind="stable")[:HOLDERS].tolist() if places[entry] >= 0]
        found.append([(int(places[entry]), round(float(shares[entry]), 3)) for entry in best])
    return found


def _rounded(numbers: np.ndarray) -> list[float]:
    """As short as they can be written."""
    return [int(number) if number == int(number) else round(number, 3) for number in numbers.tolist()]


def _named(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the charts know of the topics."""
    return [
        {"slot": slot, "topic": topic["topic"], "words": ", ".join(topic["top"][:5])}
        for slot, topic in enumerate(topics)
    ]


def _map(topics: list[dict[str, Any]]) -> dict[str, Any]:
    """chosen and weights are set by the page: a topic's place, and the shares of a word's tokens by place."""
    named = zip(_named(topics), topics, strict=True)
    rows = [row | {name: topic[name] for name in ("x", "y", "share")} for row, topic in named]
    plain = {"axis": {"labels": False, "ticks": False, "title": None, "tickCount": 4}, "scale": {"zero": False}}
    chosen = "datum.slot === chosen"
    encoding = {
        "x": quantity("x", "", **plain),
        "y": quantity("y", "", **plain),
        "tooltip": [quantity("topic", "topic"), quantity("share", "of all tokens", format=".2%"), category("words")],
    }
    weight = "length(weights) ? 0.08 + 0.9 * (weights[datum.slot] || 0) : 0.55"
    points = {
        "mark": {"type": "circle", "opacity": 1, "fillOpacity": {"expr": weight}, "cursor": "pointer"},
        "encoding": {
            "size": quantity("share", "", scale={"range": [20, 1400], "zero": True}, legend=None),
            "color": {"condition": {"test": chosen, "value": "var(--series-2)"}, "value": "var(--series-1)"},
            "stroke": {"condition": {"test": chosen, "value": "var(--text)"}, "value": "var(--background)"},
        },
    }
    labels = {
        "mark": {"type": "text", "fontSize": 10, "color": "var(--text)", "tooltip": None},
        "transform": [{"filter": "datum.slot < 60 || datum.slot === chosen"}],
        "encoding": {"text": {"field": "topic"}},
    }
    return drawn(
        description="Map of the topics: the nearer, the more alike their words",
        height=420,
        params=[{"name": "chosen", "value": 0}, {"name": "weights", "value": []}],
        data=values(rows),
        encoding=encoding,
        layer=[points, labels],
    )


def _bars(topics: list[dict[str, Any]], field: str, told: str, factor: float) -> dict[str, Any]:
    """A bar for each topic, the largest first."""
    rows = [row | {"value": factor * topic[field]} for row, topic in zip(_named(topics), topics, strict=True)]
    labels = {"labelAngle": 0, "title": None} if len(rows) <= 100 else {"labels": False, "ticks": False, "title": None}
    return drawn(
        description=f"Topics by {told}",
        height=150,
        params=[{"name": "chosen", "value": 0}],
        data=values(rows),
        mark={"type": "bar", "cursor": "pointer"},
        encoding={
            "x": category("topic", sort=None, axis=labels),
            "y": quantity("value", "", axis={"title": None}),
            "color": {
                "condition": {"test": "datum.slot === chosen", "value": "var(--series-2)"},
                "value": "var(--series-1)",
            },
            "tooltip": [category("topic"), quantity("value", told, format=",.4~g"), category("words")],
        },
    )


def _correlations(topics: list[dict[str, Any]], correlations: np.ndarray) -> dict[str, Any]:
    """Of the largest topics, in the order of the angles of their first two eigenvectors (Friendly 2002, section 3),
    which puts those that go together side by side."""
    size = min(len(topics), MOST_CORRELATED)
    part = correlations[:size, :size]
    vectors = np.linalg.eigh(part)[1]
    order = np.argsort(np.arctan2(vectors[:, -2], vectors[:, -1]), kind="stable").tolist()
    names = [topics[slot]["topic"] for slot in order]
    rows = [
        {"slot": row, "a": topics[row]["topic"], "b": topics[column]["topic"], "r": round(float(part[row, column]), 3)}
        for row in order
        for column in order
        if row != column
    ]
    largest = max(abs(row["r"]) for row in rows) or 1.0
    axis = {"labelAngle": 0, "title": None, "grid": False, "domain": False, "ticks": False, "labelFontSize": 9}
    return drawn(
        description="Correlations of the shares of topics in documents",
        height=420,
        data=values(rows),
        mark={"type": "rect", "cursor": "pointer"},
        encoding={
            "x": category("b", sort=names, axis=axis),
            "y": category("a", sort=names, axis=axis),
            "color": {"condition": {"test": "datum.r > 0", "value": "var(--series-1)"}, "value": "var(--series-2)"},
            "opacity": {
                "field": "strength",
                "type": "quantitative",
                "legend": None,
                "scale": {"domain": [0, largest], "range": [0.04, 1]},
            },
            "tooltip": [category("a", title="topic"), category("b", title="and"), quantity("r", "correlation")],
        },
        transform=[{"calculate": "abs(datum.r)", "as": "strength"}],
    )
