"""Charts, as Vega-Lite says them. The page holds what draws them: 0.9 MB (Bokeh has 1.3, Plotly 4.8).

Colours are custom properties of the page's style, so that light and dark are a matter of style alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocks.errors import RequestError

HEIGHT = 200
MOST_POINTS = 300  # of a curve
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
    "legend": {**_QUIET, "orient": "top", "title": None, "labelFontSize": 11, "columns": 5},
    "mark": {"color": "var(--series-1)"},
    "line": {"strokeWidth": 1.8},
    "range": {"category": [f"var(--series-{number})" for number in range(1, 7)]},
}


def drawn(**spec: Any) -> dict[str, Any]:
    """A specification of Vega-Lite, as wide as the element that it is in."""
    return {"width": "container", "height": HEIGHT, "autosize": {"type": "fit-x", "contains": "padding"}, **spec}


def library() -> str:
    """The script that draws them: Vega-Embed, Vega-Lite and Vega; RequestError if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise RequestError(
            "reports need the package vl-convert-python, which is not installed",
            "Install it with: pip install 'ooc[report]'",
        ) from None
    bundle: str = vl_convert.javascript_bundle("window.embed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def thinned(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most MOST_POINTS of them, at even distances, the last among them."""
    step = -(-len(points) // MOST_POINTS) or 1
    return list(points[::-1][::step])[::-1]


def quantity(field: str, title: str, **more: Any) -> dict[str, Any]:
    """A channel with numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def category(field: str, **more: Any) -> dict[str, Any]:
    """A channel with names."""
    return {"field": field, "type": "nominal", **more}


def values(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The data of a chart."""
    return {"values": list(rows)}
