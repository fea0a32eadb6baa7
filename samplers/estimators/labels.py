"""Class labels, as numbers or strings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.targets import read_target, read_weights

_NAMES = "OSU"  # dtype kinds of arrays


def _names_or_numbers(y: np.ndarray) -> np.ndarray:
    """Return labels (n,), either all strings or all numbers.

    Raises RequestError for other labels.
    """
    if y.dtype.kind != "O" or all(isinstance(each, str) for each in y.tolist()):
        return y
    for row, each in enumerate(y.tolist()):
        if not isinstance(each, int | float | np.number) or math.isnan(each):
            raise RequestError(
                f"Unknown label type: y is {each!r} in row {row} (counted from 0)",
                "Classes must be whole numbers or strings, of one kind in all rows.",
            )
    return y.astype(np.float64)


def class_indices(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes (at least two), and the class index of each row, int64 (n,).

    Raises RequestError if y is invalid.
    """
    y = _names_or_numbers(y)
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise RequestError("Unknown label type: continuous. Classes must be whole numbers or strings.")
    classes, labels = np.unique(y, return_inverse=True)
    if classes.size < 2:
        raise RequestError(f"y must have at least 2 classes, got 1 class: {classes.tolist()[0]!r}")
    return classes, labels


def labels_among(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the class index of each row, int64 (n,).

    Raises RequestError for an unknown label.
    """
    labels = np.searchsorted(classes, y).clip(max=classes.size - 1)
    if (unknown := classes[labels] != y).any():
        raise RequestError(f"y has the class {y[unknown].tolist()[0]!r}; expected one of {classes.tolist()}")
    return labels


def accuracy(predicted: np.ndarray, y: Any, sample_weight: Any) -> float:
    """Return the accuracy, weighted by sample_weight.

    predicted: (n,), predicted classes.
    Raises RequestError if y is invalid.
    """
    y = _names_or_numbers(read_target(y, predicted.size))
    if (y.dtype.kind in _NAMES) != (predicted.dtype.kind in _NAMES):
        raise RequestError(
            f"y has classes such as {y.tolist()[0]!r}, but fit had classes such as {predicted.tolist()[0]!r}",
            "Use classes of the same type as in fit.",
        )
    return float(np.average(predicted == y, weights=read_weights(sample_weight, y.size)))
