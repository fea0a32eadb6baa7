"""Building blocks of the Vega-Lite specifications of all charts.

The page contains the Vega libraries, 0.9 MB (Bokeh has 1.3 MB, Plotly 4.8 MB). Colours are CSS custom properties, so
that the style sheet alone switches between light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocks.errors import RequestError

HEIGHT = 200
MOST_POINTS = 300  # maximum number of points of a curve; longer curves are thinned
_QUIET = {"labelColor": "var(--muted)", "titleColor": "var(--muted)", "gridColor": "var(--grid)"}
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_QUIET,
        "domainColor": "var(--grid)",
        "tickColor": "var(--grid)",
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelOverlap": "greedy",
        "labelSeparation": 4,
        "tickCount": 5,
    },
    "legend": {**_QUIET, "orient": "top", "title": None, "labelFontSize": 11, "columns": 4},
    "mark": {"color": "var(--series-1)"},
    "line": {"strokeWidth": 1.8},
    "range": {"category": [f"var(--series-{number})" for number in range(1, 7)]},
}


def chart_specification(**spec: Any) -> dict[str, Any]:
    """Return a Vega-Lite specification that is as wide as the HTML element that contains the chart."""
    return {"width": "container", "height": HEIGHT, "autosize": {"type": "fit-x", "contains": "padding"}, **spec}


def library() -> str:
    """Return the script of Vega-Embed, Vega-Lite and Vega; raise RequestError if vl-convert is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise RequestError(
            "reports need the package vl-convert-python, which is not installed",
            "Install it with: pip install 'ooc[report]'",
        ) from None
    bundle: str = vl_convert.javascript_bundle("window.embed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def thin_points(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most MOST_POINTS evenly spaced points, including the last point."""
    step = -(-len(points) // MOST_POINTS) or 1
    return list(points[::-1][::step])[::-1]


def number_channel(field: str, title: str, **more: Any) -> dict[str, Any]:
    """Return an encoding channel for a field of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def name_channel(field: str, **more: Any) -> dict[str, Any]:
    """Return an encoding channel for a field of names."""
    return {"field": field, "type": "nominal", **more}


def chart_data(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the data of a chart in Vega-Lite's form."""
    return {"values": list(rows)}
