"""What a multi-class regression shows: the columns that speak most for and against each class, and how large weights
are."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplers.regression.softmax.model import SoftmaxModel
from samplers.report.charts import drawn, quantity, values
from samplers.report.section import Section

MOST_LISTED = 30  # columns of a class
MOST_CLASSES = 1000  # that are listed
_LOSSES = {
    "softmax": "softmax",
    "hinge": "hinge, one class against the rest",
    "squared": "squares, one against the rest",
}


def section(model: SoftmaxModel) -> Section:
    """Of its weights, less the mean over classes where the loss is the softmax, which does not depend on that."""
    weights = np.asarray(model.arrays["weights"], np.float32)
    if model.loss == "softmax":
        weights = weights - weights.mean(axis=0)
    labels = [f"{label:g}" for label in model.arrays["labels"][:MOST_CLASSES].tolist()]
    data = {
        "tiles": [
            ("loss", _LOSSES[model.loss]),
            ("classes", f"{len(weights):,}"),
            ("columns", f"{model.columns:,}"),
            ("columns with weights", f"{np.count_nonzero(np.any(model.arrays['weights'] != 0, axis=0)):,}"),
        ],
        "labels": labels,
        "intercepts": model.arrays["intercepts"][:MOST_CLASSES].tolist(),
        "weights": [_listed(some) for some in weights[:MOST_CLASSES]],
    }
    return Section("softmax", "Classes", data, {"norms": _norms(weights, labels)})


def _listed(weights: np.ndarray) -> list[tuple[str, float]]:
    """The columns with the largest weights of a class, numbered from 1 as in svmlight files, the largest first."""
    order = np.argsort(-np.abs(weights), kind="stable")[:MOST_LISTED]
    return [(f"column {column + 1}", float(f"{weights[column]:.6g}")) for column in order.tolist() if weights[column]]


def _norms(weights: np.ndarray, labels: list[str]) -> dict[str, Any]:
    """The norm of the weights of each class."""
    norms = np.sqrt(np.einsum("ij,ij->i", weights, weights, dtype=np.float64)[: len(labels)])
    rows = [{"class": label, "norm": float(norm)} for label, norm in zip(labels, norms, strict=True)]
    encoding = {
        "x": {"field": "class", "type": "nominal", "sort": None, "axis": {"title": "class"}},
        "y": quantity("norm", "", axis={"title": None}),
        "tooltip": [{"field": "class", "type": "nominal"}, quantity("norm", "norm", format=".5~g")],
    }
    return drawn(description="Norm of the weights of each class", data=values(rows), mark="bar", encoding=encoding)
