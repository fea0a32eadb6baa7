"""Report section of a multi-class linear model: the largest weights of each class, and their norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplers.regression.softmax.model import SoftmaxModel
from samplers.report.charts import chart_data, chart_specification, number_channel
from samplers.report.section import ReportSection

MOST_LISTED = 30  # largest weights listed per class
MOST_CLASSES = 1000  # maximum number of classes listed
_LOSSES = {
    "softmax": "softmax",
    "hinge": "hinge, one-vs-rest",
    "squared": "squared, one-vs-rest",
}


def section(model: SoftmaxModel) -> ReportSection:
    """Return the section of a trained model.

    The softmax does not change if the same number is added to the weights of all classes, so their mean over classes is
    subtracted.
    """
    weights = np.asarray(model.arrays["weights"], np.float32)
    if model.loss == "softmax":
        weights = weights - weights.mean(axis=0)
    labels = [f"{label:g}" for label in model.arrays["labels"][:MOST_CLASSES].tolist()]
    data = {
        "tiles": [
            ("loss", _LOSSES[model.loss]),
            ("classes", f"{len(weights):,}"),
            ("columns", f"{model.columns:,}"),
            ("columns with nonzero weights", f"{np.count_nonzero(np.any(model.arrays['weights'] != 0, axis=0)):,}"),
        ],
        "labels": labels,
        "intercepts": model.arrays["intercepts"][:MOST_CLASSES].tolist(),
        "weights": [_listed(some) for some in weights[:MOST_CLASSES]],
    }
    return ReportSection("softmax", "Classes", data, {"norms": _norms(weights, labels)})


def _listed(weights: np.ndarray) -> list[tuple[str, float]]:
    """Return the names and values of a class's largest weights, in descending order; columns are numbered from 1."""
    order = np.argsort(-np.abs(weights), kind="stable")[:MOST_LISTED]
    return [(f"column {column + 1}", float(f"{weights[column]:.6g}")) for column in order.tolist() if weights[column]]


def _norms(weights: np.ndarray, labels: list[str]) -> dict[str, Any]:
    """Chart the Euclidean norm of the weights of each class."""
    norms = np.sqrt(np.einsum("ij,ij->i", weights, weights, dtype=np.float64)[: len(labels)])
    rows = [{"class": label, "norm": float(norm)} for label, norm in zip(labels, norms, strict=True)]
    encoding = {
        "x": {"field": "class", "type": "nominal", "sort": None, "axis": {"title": "class", "labelAngle": 0}},
        "y": number_channel("norm", "", axis={"title": None}),
        "tooltip": [{"field": "class", "type": "nominal"}, number_channel("norm", "norm", format=".5~g")],
    }
    return chart_specification(
        description="Euclidean norm of the weights of each class", data=chart_data(rows), mark="bar", encoding=encoding
    )
