"""Report section of a matrix factorization: singular values, biases, and similar items."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplers.factorization.model import FactorModel
from samplers.factorization.recommendation import similar_items
from samplers.report.charts import chart_data, chart_specification, name_channel, number_channel
from samplers.report.section import ReportSection

MOST_ITEMS = 500  # maximum number of items listed, those with the most ratings
SIMILAR = 10  # similar items listed per item
_BINS = 40


def section(model: FactorModel) -> ReportSection:
    """Return the section of a trained factorization."""
    items = np.argsort(-model.columns.entries, kind="stable")[:MOST_ITEMS]
    names = model.columns.names
    alike = [row for _, best in similar_items(model, items, SIMILAR) for row in best.lists()]
    data = {
        "tiles": [
            ("factors", f"{model.rank:,}"),
            ("users", f"{len(model.rows):,}"),
            ("items", f"{len(model.columns):,}"),
            ("ratings", f"{int(model.rows.entries.sum()):,}"),
            ("mean rating", f"{model.mean:.4g}"),
        ],
        "all": len(model.columns),
        "items": [
            {
                "name": names[item],
                "entries": int(model.columns.entries[item]),
                "bias": round(float(model.columns.biases[item]), 4),
                "alike": [(names[other], round(score, 3)) for other, score in similar],
            }
            for item, similar in zip(items.tolist(), alike, strict=True)
        ],
        "biased": model.biased,
    }
    charts = {"strengths": _strengths(model)}
    if model.biased:
        charts["biases"] = _biases(model)
    return ReportSection("factors", "Factors", data, charts)


def _strengths(model: FactorModel) -> dict[str, Any]:
    """Chart the singular values of W H', the product of all factors, because they do not depend on the basis of the
    factors."""
    products = [side.factors.T.astype(float) @ side.factors for side in (model.rows, model.columns)]
    squares = np.linalg.eigvals(products[0] @ products[1]).real
    strengths = np.sqrt(np.sort(np.maximum(squares, 0.0))[::-1])
    told = [{"factor": rank + 1, "strength": strength} for rank, strength in enumerate(strengths.tolist())]
    return chart_specification(
        description="Singular values of the product of the user and item factors",
        data=chart_data(told),
        mark="bar",
        encoding={
            "x": name_channel("factor", sort=None, axis={"labels": False, "ticks": False, "title": None}),
            "y": number_channel("strength", "", axis={"title": None}),
            "tooltip": [name_channel("factor", title="number"), number_channel("strength", "value", format=".4~g")],
        },
    )


def _biases(model: FactorModel) -> dict[str, Any]:
    """Chart histograms of the user and item biases."""
    told = []
    for name, side in (("users", model.rows), ("items", model.columns)):
        biases = np.asarray(side.biases)[np.asarray(side.entries) > 0]
        heights, edges = np.histogram(biases, _BINS)
        told += [
            {"of": name, "from": low, "to": high, "share": height / max(biases.size, 1)}
            for height, low, high in zip(heights.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]
    return chart_specification(
        description="Distribution of the user and item biases",
        data=chart_data(told),
        mark={"type": "bar", "opacity": 0.6},
        encoding={
            "x": number_channel("from", "", axis={"title": None, "grid": False}, bin={"binned": True}),
            "x2": {"field": "to"},
            "y": number_channel("share", "", axis={"title": None, "format": "%"}, stack=None),
            "color": name_channel("of", title=None),
            "tooltip": [
                name_channel("of", title="biases of"),
                number_channel("from", "from", format=".3~g"),
                number_channel("to", "to", format=".3~g"),
                number_channel("share", "share", format=".2%"),
            ],
        },
    )
