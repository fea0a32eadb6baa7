"""Classes that users name, by numbers or strings."""

from __future__ import annotations

import numpy as np

from blocks.errors import RequestError


def classes_of(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order, at least two, and which of them each row is of, int64 (n,). Raises RequestError."""
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise RequestError("Unknown label type: continuous. A class is a whole number or a name.")
    if y.dtype.kind == "O" and not all(isinstance(each, str) for each in y.tolist()):
        if not all(isinstance(each, int | float | np.number) for each in y.tolist()):
            raise RequestError("Unknown label type: unknown. A class is a whole number or a name.")
        y = y.astype(np.float64)
    classes, labels = np.unique(y, return_inverse=True)
    if classes.size < 2:
        raise RequestError(f"y has 1 class, {classes.tolist()[0]!r}: two are needed to tell one from the other")
    return classes, labels


def labels_among(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Which of the classes each row is of, int64 (n,). Raises RequestError for one that is not among them."""
    labels = np.searchsorted(classes, y).clip(max=classes.size - 1)
    if (unknown := classes[labels] != y).any():
        raise RequestError(f"y has the class {y[unknown].tolist()[0]!r}, which is not among {classes.tolist()}")
    return labels
