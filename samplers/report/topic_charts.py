"""Charts of a topic model; a click on any of them selects a topic."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from samplers.report.charts import chart_data, chart_specification, name_channel, number_channel
from samplers.topics.hierarchy import average_linkage, dendrogram_layout

MOST_CORRELATED = 40  # maximum number of topics in the chart of correlations
MOST_JOINED = 60  # maximum number of topics in the hierarchy
MOST_LABELLED = 60  # maximum number of topics with a label on the map
_MAP, _LABEL = (300, 380), (28, 13)  # width and height in pixels of a narrow map and of one label
_LARGEST, _ALL = 1400, 100_000  # square pixels: maximum area of a circle on the map, and of all circles together
_PARITY = {"labelOverlap": "parity"}  # drop every second label until none overlap: evenly spaced, unlike "greedy"


def charts(topics: list[dict[str, Any]], correlations: np.ndarray, distances: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the charts of topics, given in the form of `samplers.report.topics`.

    correlations: float64 (S, S), correlations of the topic shares over documents.
    distances: float64 (S, S), Hellinger distances of topics.
    """
    found = {
        "map": _map(topics),
        "sizes": _bars(topics, "share", "percentage of all tokens", 100.0),
        "largest": _bars(topics, "largest", "documents where dominant", 1.0),
    }
    if len(topics) > 2:
        found |= {"correlations": _correlations(topics, correlations), "tree": _tree(topics, distances)}
    return found


def _named(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fields that all charts need for each topic."""
    return [
        {"slot": slot, "topic": topic["topic"], "words": topic["label"] or ", ".join(topic["top"][:5])}
        for slot, topic in enumerate(topics)
    ]


def _map(topics: list[dict[str, Any]]) -> dict[str, Any]:
    """Chart the map of the topics.

    The page sets two signals: chosen, the slot of the selected topic, and weights, a word's fraction of tokens by slot.
    """
    rows = [
        row | {name: topic[name] for name in ("x", "y", "share")} | label
        for row, topic, label in zip(_named(topics), topics, _labels(topics), strict=True)
    ]
    largest = min(_LARGEST, _ALL / len(topics))
    above = 0 if largest == _LARGEST else -9  # labels are placed above small circles, which they would cover
    plain = {"axis": {"labels": False, "ticks": False, "title": None, "tickCount": 4}, "scale": {"zero": False}}
    chosen = "datum.slot === chosen"
    encoding = {
        "x": number_channel("x", "", **plain),
        "y": number_channel("y", "", **plain),
        "tooltip": [
            number_channel("topic", "topic"),
            number_channel("share", "share of tokens", format=".2%"),
            name_channel("words"),
        ],
    }
    weight = "length(weights) ? 0.08 + 0.9 * (weights[datum.slot] || 0) : 0.55"
    points = {
        "mark": {"type": "circle", "opacity": 1, "fillOpacity": {"expr": weight}, "cursor": "pointer"},
        "encoding": {
            "size": number_channel(
                "share", "", scale={"range": [min(20, largest / 6), largest], "zero": True}, legend=None
            ),
            "color": {"condition": {"test": chosen, "value": "var(--series-2)"}, "value": "var(--series-1)"},
            "stroke": {"condition": {"test": chosen, "value": "var(--text)"}, "value": "var(--background)"},
        },
    }
    labels = {
        "mark": {"type": "text", "fontSize": 10, "color": "var(--text)", "tooltip": None, "dy": above},
        "transform": [{"filter": f"{chosen} || datum.labelled && indexof(datum.near, chosen) < 0"}],
        "encoding": {"text": {"field": "topic"}},
    }
    return chart_specification(
        description="Map of the topics: topics with similar words are close together",
        height=420,
        params=[{"name": "chosen", "value": 0}, {"name": "weights", "value": []}],
        data=chart_data(rows),
        encoding=encoding,
        layer=[points, labels],
    )


def _labels(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each topic, whether it has a label on the map: only if it overlaps no label of a larger topic.

    near: slots of the topics whose label would overlap this one; while such a topic is selected, this label is hidden.
    """
    places = np.array([(topic["x"], topic["y"]) for topic in topics])
    pixels = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), 1e-12) * _MAP
    near = [np.flatnonzero((np.abs(pixels - place) < _LABEL).all(axis=1)).tolist() for place in pixels]
    labelled: set[int] = set()
    for slot in range(len(topics)):
        if len(labelled) < MOST_LABELLED and labelled.isdisjoint(near[slot]):
            labelled.add(slot)
    return [{"labelled": slot in labelled, "near": near[slot]} for slot in range(len(topics))]


def _bars(topics: list[dict[str, Any]], field: str, told: str, factor: float) -> dict[str, Any]:
    """Chart a bar for each topic, in descending order of tokens."""
    rows = [row | {"value": factor * topic[field]} for row, topic in zip(_named(topics), topics, strict=True)]
    labels = (
        {"labelAngle": 0, "title": None, **_PARITY}
        if len(rows) <= 100
        else {"labels": False, "ticks": False, "title": None}
    )
    return chart_specification(
        description=f"Topics by {told}",
        height=150,
        params=[{"name": "chosen", "value": 0}],
        data=chart_data(rows),
        mark={"type": "bar", "cursor": "pointer"},
        encoding={
            "x": name_channel("topic", sort=None, axis=labels),
            "y": number_channel("value", "", axis={"title": None}),
            "color": {
                "condition": {"test": "datum.slot === chosen", "value": "var(--series-2)"},
                "value": "var(--series-1)",
            },
            "tooltip": [name_channel("topic"), number_channel("value", told, format=",.4~g"), name_channel("words")],
        },
    )


def _tree(topics: list[dict[str, Any]], distances: np.ndarray) -> dict[str, Any]:
    """Chart the hierarchy of the largest topics."""
    size = min(len(topics), MOST_JOINED)
    tree = dendrogram_layout(average_linkage(distances[:size, :size]))
    named = _named([topics[slot] for slot in tree.order.tolist()])
    lines = [dict(zip(("x", "y", "x2", "y2"), map(float, line), strict=True)) for line in tree.lines.round(4)]
    leaves = [
        {"slot": slot, "topic": row["topic"], "words": row["words"], "x": 0, "y": place}
        for place, (slot, row) in enumerate(zip(tree.order.tolist(), named, strict=True))
    ]
    titles = [f"{row['topic']}: {row['words']}" for row in named]
    axis: dict[str, Any] = {
        "values": list(range(size)),
        "labelExpr": f"({json.dumps(titles)})[datum.value]",
        "title": None,
    }
    axis |= {
        "grid": False,
        "domain": False,
        "ticks": False,
        "labelLimit": 170,
        "labelOverlap": False,
        "labelPadding": 8,
    }
    axis |= {"tickCount": size, "labelSeparation": 0}
    places = {"scale": {"domain": [size - 0.5, -0.5], "nice": False}}
    rules = {
        "data": chart_data(lines),
        "mark": {"type": "rule", "color": "var(--series-1)", "tooltip": None},
        "encoding": {
            "x": number_channel("x", "Hellinger distance", scale={"domainMin": 0}),
            "x2": {"field": "x2"},
            "y": number_channel("y", "", axis=axis, **places),
            "y2": {"field": "y2"},
        },
    }
    points = {
        "data": chart_data(leaves),
        "mark": {"type": "circle", "size": 60, "opacity": 1, "cursor": "pointer"},
        "encoding": {
            "x": number_channel("x", "Hellinger distance"),
            "y": {"field": "y", "type": "quantitative"},
            "color": {
                "condition": {"test": "datum.slot === chosen", "value": "var(--series-2)"},
                "value": "var(--series-1)",
            },
            "tooltip": [name_channel("topic"), name_channel("words")],
        },
    }
    return chart_specification(
        description="Hierarchy of the topics: average linkage of the distances of their words",
        height=17 * size,
        params=[{"name": "chosen", "value": 0}],
        layer=[rules, points],
    )


def _correlations(topics: list[dict[str, Any]], correlations: np.ndarray) -> dict[str, Any]:
    """Chart the correlations of the largest topics.

    Topics are ordered by the angles of the first two eigenvectors, which puts correlated topics side by side (Friendly
    2002, section 3).
    """
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
    axis = {
        "labelAngle": 0,
        "title": None,
        "grid": False,
        "domain": False,
        "ticks": False,
        "labelFontSize": 9,
        **_PARITY,
    }
    return chart_specification(
        description="Correlations of the topic shares over documents",
        height=420,
        data=chart_data(rows),
        mark={"type": "rect", "cursor": "pointer"},
        encoding={
            "x": name_channel("b", sort=names, axis=axis),
            "y": name_channel("a", sort=names, axis=axis),
            "color": {"condition": {"test": "datum.r > 0", "value": "var(--series-1)"}, "value": "var(--series-2)"},
            "opacity": {
                "field": "strength",
                "type": "quantitative",
                "legend": None,
                "scale": {"domain": [0, largest], "range": [0.04, 1]},
            },
            "tooltip": [
                name_channel("a", title="topic"),
                name_channel("b", title="and"),
                number_channel("r", "correlation"),
            ],
        },
        transform=[{"calculate": "abs(datum.r)", "as": "strength"}],
    )
