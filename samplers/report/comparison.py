"""Report section of a comparison: prevalence of topics by group, or over time."""

from __future__ import annotations

from typing import Any

from samplers.report.charts import chart_data, chart_specification, name_channel, number_channel
from samplers.report.section import ReportSection

MOST_TOPICS = 40  # maximum number of topics in the heat map
_SERIES, _GROUPS = 12, 60  # maximum numbers of curves, and of groups in the heat map


def section(told: dict[str, Any]) -> ReportSection:
    """Return the section of a comparison from `samplers.topics.group_comparison.comparison_as_json`."""
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
    return ReportSection("comparison", f"Topics by {told['by']}", data, charts)


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
    name_channel("topic"),
    name_channel("group"),
    number_channel("prevalence", "percent", format=".2f"),
    number_channel("low", "from", format=".2f"),
    number_channel("high", "to", format=".2f"),
    number_channel("documents", "documents", format=","),
]


def _heat_map(topics: list[dict[str, Any]], groups: list[Any]) -> dict[str, Any]:
    rows = [row for topic in topics for row in _rows(topic) if row["group"] in groups]
    axis = {"title": None, "grid": False, "domain": False, "ticks": False, "labelLimit": 220, "labelOverlap": False}
    return chart_specification(
        description="Mean share of each topic in the documents of each group",
        height=18 * len(topics) + 20,
        data=chart_data(rows),
        mark={"type": "rect"},
        encoding={
            "x": name_channel("group", sort=groups, axis={**axis, "labelAngle": -60, "labelLimit": 120}),
            "y": name_channel("topic", sort=[_name(topic) for topic in topics], axis=axis),
            "color": {"value": "var(--series-1)"},
            "opacity": number_channel("prevalence", "", legend=None, scale={"domainMin": 0, "range": [0.03, 1]}),
            "tooltip": _TOOLTIP,
        },
    )


def _curve(topic: dict[str, Any], by: str) -> dict[str, Any]:
    x = number_channel("group", by, scale={"zero": False, "nice": False}, axis={"format": "d", "tickMinStep": 1})
    largest = max(100 * group["prevalence"] for group in topic["groups"])
    y = {"scale": {"domain": [0, 1.5 * largest]}}  # the wide interval of a small group would flatten the curve
    band = {
        "mark": {"type": "area", "opacity": 0.2, "clip": True},
        "encoding": {"y": number_channel("low", "", **y), "y2": {"field": "high"}},
    }
    line = {
        "mark": {"type": "line", "point": True},
        "encoding": {"y": number_channel("prevalence", "", **y), "tooltip": _TOOLTIP},
    }
    return chart_specification(
        description=f"Share of topic {_name(topic)} over {by}",
        height=130,
        data=chart_data(_rows(topic)),
        encoding={"x": x},
        layer=[band, line],
    )
