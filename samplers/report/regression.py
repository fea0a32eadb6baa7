"""Report section of a Lasso, or an l1 logistic or Poisson regression: regularization path, duality gap,
cross-validation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samplers.regression.model import RegressionModel
from samplers.report.charts import chart_data, chart_specification, name_channel, number_channel
from samplers.report.section import ReportSection

MOST_COLUMNS = 20  # columns in the chart of the path: the first to enter the model
MOST_LISTED = 100  # largest coefficients listed for each lambda
_LOSSES = {"squared": "least squares", "logistic": "logistic regression", "poisson": "Poisson regression"}


def section(model: RegressionModel) -> ReportSection:
    """Return the section of a solved path or of a single lambda."""
    levels, offsets = np.asarray(model.arrays["lambdas"]), np.asarray(model.arrays["offsets"])
    names = model.column_names()
    first = model.manifest["first_column"]
    told = [_listed(model, number, names, first) for number in range(levels.size)]
    chosen = model.chosen
    data = {
        "tiles": [
            ("model", f"l1 {_LOSSES[model.loss]}"),
            ("columns", f"{model.columns:,}"),
            ("lambdas", f"{levels.size:,}"),
            ("chosen lambda", f"{levels[chosen]:.5g}"),
            ("nonzero coefficients", f"{offsets[chosen + 1] - offsets[chosen]:,}"),
        ],
        "levels": levels.tolist(),
        "sizes": np.diff(offsets).tolist(),
        "intercepts": np.asarray(model.arrays["intercepts"]).tolist(),
        "chosen": chosen,
        "coefficients": told,
        "most": MOST_LISTED,
    }
    charts = {"nonzeros": _along(model, "nonzeros", np.diff(offsets), "nonzero coefficients")}
    if levels.size > 1:
        charts["paths"] = _paths(model, names, first)
    charts["gaps"] = _along(model, "gap", model.arrays["gaps"], "duality gap", logarithmic=True)
    if "held_out_errors" in model.arrays:
        charts["errors"] = _errors(model)
    return ReportSection("regression", "Coefficients", data, charts)


def _name(column: int, names: list[str] | None, first: int) -> str:
    return names[column] if names else f"column {column + first}"


def _listed(model: RegressionModel, number: int, names: list[str] | None, first: int) -> list[tuple[str, float]]:
    """Return the names and values of the largest coefficients at the lambda with index `number`, in descending
    magnitude.
    """
    begin, end = model.arrays["offsets"][number : number + 2]
    columns, found = model.arrays["columns"][begin:end], np.asarray(model.arrays["coefficients"][begin:end])
    order = np.argsort(-np.abs(found), kind="stable")[:MOST_LISTED]
    return [(_name(int(columns[place]), names, first), float(f"{found[place]:.6g}")) for place in order]


def first_to_enter(model: RegressionModel, most: int) -> list[int]:
    """Return the `most` columns that enter the model first as lambda decreases; ties go to the larger coefficient."""
    offsets, columns = model.arrays["offsets"], model.arrays["columns"]
    entered: dict[int, None] = {}
    for number in range(len(offsets) - 1):
        part = slice(offsets[number], offsets[number + 1])
        for place in np.argsort(-np.abs(model.arrays["coefficients"][part]), kind="stable"):
            entered.setdefault(int(columns[part][place]))
        if len(entered) >= most:
            break
    return list(entered)[:most]


def _paths(model: RegressionModel, names: list[str] | None, first: int) -> dict[str, Any]:
    """Chart the coefficients of the columns that enter first against lambda."""
    levels, offsets = model.arrays["lambdas"], model.arrays["offsets"]
    rows = []
    for column in first_to_enter(model, MOST_COLUMNS):
        for number in range(len(levels)):
            begin, end = offsets[number], offsets[number + 1]
            place = begin + np.searchsorted(model.arrays["columns"][begin:end], column)
            there = place < end and model.arrays["columns"][place] == column
            value = float(model.arrays["coefficients"][place]) if there else 0.0
            rows.append({"lambda": float(levels[number]), "of": _name(column, names, first), "value": value})
    hover = {"name": "hover", "select": {"type": "point", "fields": ["of"], "on": "pointerover", "clear": "pointerout"}}
    lines = {
        "mark": {"type": "line", "point": {"size": 14, "filled": True}},
        "params": [hover],
        "encoding": {
            "y": number_channel("value", "", axis={"title": None}),
            "color": name_channel("of", legend=None),
            "opacity": {"condition": {"param": "hover", "value": 0.9}, "value": 0.12},
            "tooltip": [
                name_channel("of", title="column"),
                number_channel("value", "coefficient", format=".5~g"),
                number_channel("lambda", "lambda", format=".4~g"),
            ],
        },
    }
    return chart_specification(
        description="Coefficients of the columns that enter first, against lambda",
        height=320,
        data=chart_data(rows),
        encoding={"x": _lambda()},
        layer=[lines, _mark(model)],
    )


def _along(model: RegressionModel, name: str, found: Any, told: str, *, logarithmic: bool = False) -> dict[str, Any]:
    """Chart one number per lambda, `found`, against lambda."""
    numbers = np.asarray(found, float)
    rows = [
        {"lambda": float(level), name: float(number)}
        for level, number in zip(model.arrays["lambdas"], numbers, strict=True)
    ]
    scale = {"type": "log"} if logarithmic and (numbers > 0).all() else {"zero": True}
    axis = {"title": None, **({"format": ".1~e"} if logarithmic else {})}
    shown = [number_channel("lambda", "lambda", format=".4~g"), number_channel(name, told, format=".4~g")]
    line = {
        "mark": {"type": "line", "point": {"size": 14, "filled": True, "color": "var(--series-1)"}},
        "encoding": {"y": number_channel(name, "", scale=scale, axis=axis), "tooltip": shown},
    }
    layers = [line, _mark(model)]
    return chart_specification(
        description=f"{told}, against lambda", data=chart_data(rows), encoding={"x": _lambda()}, layer=layers
    )


def _errors(model: RegressionModel) -> dict[str, Any]:
    """Chart the cross-validation error against lambda, plus and minus one standard error."""
    errors, spread = model.arrays["held_out_errors"], model.arrays["standard_errors"]
    rows = [
        {"lambda": float(level), "error": float(error), "low": float(error - one), "high": float(error + one)}
        for level, error, one in zip(model.arrays["lambdas"], errors, spread, strict=True)
    ]
    band = {
        "mark": {"type": "area", "opacity": 0.25},
        "encoding": {
            "y": number_channel("low", "", scale={"zero": False}, axis={"title": None}),
            "y2": {"field": "high"},
        },
    }
    shown = [number_channel("lambda", "lambda", format=".4~g"), number_channel("error", "error", format=".5~g")]
    line = {
        "mark": {"type": "line", "point": {"size": 14, "filled": True, "color": "var(--series-1)"}},
        "encoding": {"y": number_channel("error", ""), "tooltip": shown},
    }
    return chart_specification(
        description="Cross-validation error, against lambda",
        data=chart_data(rows),
        encoding={"x": _lambda()},
        layer=[band, line, _mark(model)],
    )


def _lambda() -> dict[str, Any]:
    """Return the horizontal axis, on which lambda decreases."""
    axis = {"title": "lambda", "format": ".3~g", "grid": False}
    return number_channel("lambda", "lambda", scale={"type": "log", "reverse": True, "nice": False}, axis=axis)


def _mark(model: RegressionModel) -> dict[str, Any]:
    """Mark the chosen lambda with a dashed line."""
    return {
        "data": chart_data([{"lambda": float(model.arrays["lambdas"][model.chosen])}]),
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--series-2)"},
        "encoding": {"x": {"field": "lambda", "type": "quantitative"}},
    }
