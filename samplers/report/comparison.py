"""Report section of a comparison: prevalence of topics by group, or over time."""

from __future__ import annotations

from typing import Any

from samplers.report.charts import category, drawn, quantity, values
from samplers.report.section import Section

MOST_TOPICS = 40  # maximum number of topics in the heat map
_SERIES, _GROUPS = 12, 60  # maximum numbers of curves, and of groups in the heat map


def section(told: dict[str, Any]) -> Section:
    """Return the section of a comparison from `samplers.topics.compare.described`."""
    groups = sorted(told["groups"], key=lambda each: -each["documents"])[:_GROUPS]
    kept = {each["group"] for each in groups}
    shown = [each["group"] for each in told["groups"] if each["group"] in kept]
    charts = {"groups": _heat_map(told["topics"][:MOST_TOPICS], shown)}
    curves: dict[str, str] = {}
    if len(told["groups"]) > 2 and all(isinstance(group["group"], int) for group in told["groups"]):
        for topic in told["topics"][:_SERIES]:
            charts[f"topic{topic['topic']}"] = _curve(topic, told["by"])
            curves[f"topic{topic['topic']}"] = _name(topic)
    data = {
        "tiles": [
            ("groups", f"{len(told['groups']):,}"),
            ("documents", f"{sum(group['documents'] for group in told['groups']):,}"),
            ("left out", f"{told['without_value'] + told['without_tokens']:,}"),
        ],
        "by": told["by"],
        "level": f"{told['level']:.0%}",
        "method": told["method"],
        "curves": curves,
        "shown": (min(len(told["topics"]), MOST_TOPICS), len(shown)),
    }
    return Section("comparison", f"Topics by {told['by']}", data, charts)


def _name(topic: dict[str, Any]) -> str:
    return f"{topic['topic']}: {topic['label'] or ', '.join(topic['words'][:3])}"


def _rows(topic: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per group, in percent."""
    return [
        {
            "topic": _name(topic),
            "group": group["group"],
            "documents": group["documents"],
            **{
                name: None if group[name] is None else round(100 * group[name], 4)
                for name in ("prevalence", "low", "high")
            },
        }
        for group in topic["groups"]
    ]


_TOOLTIP = [
    category("topic"),
    category("group"),
    quantity("prevalence", "percent", format=".2f"),
    quantity("low", "from", format=".2f"),
    quantity("high", "to", format=".2f"),
    quantity("documents", "documents", format=","),
]


def _heat_map(topics: list[dict[str, Any]], groups: list[Any]) -> dict[str, Any]:
    rows = [row for topic in topics for row in _rows(topic) if row["group"] in groups]
    axis = {"title": None, "grid": False, "domain": False, "ticks": False, "labelLimit": 220, "labelOverlap": False}
    return drawn(
        description="Mean share of each topic in the documents of each group",
        height=18 * len(topics) + 20,
        data=values(rows),
        mark={"type": "rect"},
        encoding={
            "x": category("group", sort=groups, axis={**axis, "labelAngle": -60, "labelLimit": 120}),
            "y": category("topic", sort=[_name(topic) for topic in topics], axis=axis),
            "color": {"value": "var(--series-1)"},
            "opacity": quantity("prevalence", "", legend=None, scale={"domainMin": 0, "range": [0.03, 1]}),
            "tooltip": _TOOLTIP,
        },
    )


def _curve(topic: dict[str, Any], by: str) -> dict[str, Any]:
    x = quantity("group", by, scale={"zero": False, "nice": False}, axis={"format": "d", "tickMinStep": 1})
    largest = max(100 * group["prevalence"] for group in topic["groups"])
    y = {"scale": {"domain": [0, 1.5 * largest]}}  # the wide interval of a small group would flatten the curve
    band = {
        "mark": {"type": "area", "opacity": 0.2, "clip": True},
        "encoding": {"y": quantity("low", "", **y), "y2": {"field": "high"}},
    }
    line = {
        "mark": {"type": "line", "point": True},
        "encoding": {"y": quantity("prevalence", "", **y), "tooltip": _TOOLTIP},
    }
    return drawn(
        description=f"Share of topic {_name(topic)} over {by}",
        height=130,
        data=values(_rows(topic)),
        encoding={"x": x},
        layer=[band, line],
    )
