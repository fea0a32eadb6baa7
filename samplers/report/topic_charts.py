"""The charts of a topic model, all of which choose a topic by a click."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplers.report.charts import category, drawn, quantity, values

MOST_CORRELATED = 40  # topics in the picture of the correlations
MOST_NAMED = 60  # on the map
_MAP, _LABEL = (300, 380), (28, 13)  # pixels: of a narrow map, and of a label on it
_LARGEST, _ALL = 1400, 100_000  # square pixels of the largest circle on the map, and of all if they were as large


def charts(topics: list[dict[str, Any]], correlations: np.ndarray) -> dict[str, dict[str, Any]]:
    """Of topics as `samplers.report.topics` describes them. correlations: float64 (S, S), of their shares."""
    found = {
        "map": _map(topics),
        "sizes": _bars(topics, "share", "percent of all tokens", 100.0),
        "largest": _bars(topics, "largest", "documents of which it is the largest topic", 1.0),
    }
    return found | ({"correlations": _correlations(topics, correlations)} if len(topics) > 2 else {})


def _named(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the charts know of the topics."""
    return [
        {"slot": slot, "topic": topic["topic"], "words": ", ".join(topic["top"][:5])}
        for slot, topic in enumerate(topics)
    ]


def _map(topics: list[dict[str, Any]]) -> dict[str, Any]:
    """chosen and weights are set by the page: a topic's place, and the shares of a word's tokens by place."""
    named = zip(_named(topics), topics, _labelled(topics), strict=True)
    rows = [row | {name: topic[name] for name in ("x", "y", "share")} | {"labelled": it} for row, topic, it in named]
    largest = min(_LARGEST, _ALL / len(topics))
    above = 0 if largest == _LARGEST else -9  # small circles are not to be hidden
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
            "size": quantity("share", "", scale={"range": [min(20, largest / 6), largest], "zero": True}, legend=None),
            "color": {"condition": {"test": chosen, "value": "var(--series-2)"}, "value": "var(--series-1)"},
            "stroke": {"condition": {"test": chosen, "value": "var(--text)"}, "value": "var(--background)"},
        },
    }
    labels = {
        "mark": {"type": "text", "fontSize": 10, "color": "var(--text)", "tooltip": None, "dy": above},
        "transform": [{"filter": f"datum.labelled || {chosen}"}],
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


def _labelled(topics: list[dict[str, Any]]) -> list[bool]:
    """Which topics, the largest first, have a label on the map: those whose label is not on one of a larger topic."""
    places = np.array([(topic["x"], topic["y"]) for topic in topics])
    pixels = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), 1e-12) * _MAP
    taken: list[int] = []
    for slot, place in enumerate(pixels):
        if len(taken) < MOST_NAMED and (np.abs(pixels[taken] - place) >= _LABEL).any(axis=1).all():
            taken.append(slot)
    return [slot in taken for slot in range(len(topics))]


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
