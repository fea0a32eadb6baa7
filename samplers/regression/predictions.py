"""Predict the rows of a design matrix; only blocks of columns with nonzero coefficients are read."""

from __future__ import annotations

import csv
from typing import TextIO

import numpy as np

from blocks.design.design import Design
from blocks.errors import RequestError
from samplers.regression.data.features import block_columns
from samplers.regression.linear_algebra.columns import combine, gather_columns
from samplers.regression.linear_algebra.vectors import inner_product
from samplers.regression.losses.poisson import mean_counts, poisson_deviances
from samplers.regression.model import Coefficients, RegressionModel


def check_columns(model: RegressionModel, design: Design) -> None:
    """Raise RequestError unless the columns of the design match those of the model."""
    remedy = "Ingest it again with --columns-from and the training dataset."
    if design.columns != model.columns:
        raise RequestError(f"{design.path} has {design.columns:,} columns, but the model has {model.columns:,}", remedy)
    if design.column_names() != model.column_names():
        raise RequestError(f"{design.path} and {model.path} have different columns, or different column orders", remedy)


def score(model: Coefficients, design: Design) -> np.ndarray:
    """Return intercept + X coefficients, float64 (n,); missing values are replaced by the training means."""
    total, part = np.full(design.rows, model.intercept), np.empty(design.rows)
    means = np.zeros(design.columns)
    means[model.columns] = model.means
    ends = np.searchsorted(model.columns, design.block_bounds)
    for number in np.flatnonzero(np.diff(ends)).tolist():
        some, first = slice(ends[number], ends[number + 1]), design.block_bounds[number]
        columns = gather_columns(block_columns(design, number, means), model.columns[some] - first)
        combine(columns, np.arange(some.stop - some.start), model.values[some], part)
        total += part
    if design.offsets is not None:
        total += inner_product(design.offsets[model.columns], model.values)
    return total


def probability(scores: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-scores)), float64 (n,)."""
    small = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1.0, small) / (1.0 + small)


def write_predictions(model: RegressionModel, coefficients: Coefficients, design: Design, out: TextIO) -> None:
    """Write one line per row, with row numbers starting at 1: the prediction, for a Poisson regression of the mean; or
    the probability of the larger class, and the more probable class.
    """
    scores, writer = score(coefficients, design), csv.writer(out)
    numbers = range(1, design.rows + 1)
    if model.loss != "logistic":
        predicted = scores if model.loss == "squared" else mean_counts(scores)
        writer.writerow(["row", "prediction"])
        writer.writerows(zip(numbers, (f"{one:.9g}" for one in predicted.tolist()), strict=True))
        return
    writer.writerow(["row", "probability", "class"])
    likelier = np.where(scores > 0, model.classes[1], model.classes[0])
    probabilities = (f"{one:.9g}" for one in probability(scores).tolist())
    writer.writerows(zip(numbers, probabilities, (f"{one:g}" for one in likelier.tolist()), strict=True))


def evaluate_regression(model: RegressionModel, coefficients: Coefficients, design: Design) -> dict[str, float]:
    """Return errors of the predictions of y: `rmse` and `r2`; `log_loss` and `accuracy`; or `mean_deviance` and
    `deviance_explained`.

    Raises RequestError.
    """
    check_columns(model, design)
    if design.y is None:
        raise RequestError(f"{design.path} has no target y", "Ingest it again with --target.")
    scores, y = score(coefficients, design), design.y
    if model.loss == "squared":
        error, spread = float(np.mean((y - scores) ** 2)), float(np.var(y))
        return {"rmse": error**0.5, "r2": 1 - error / spread if spread else float("nan")}
    if model.loss == "poisson":
        if (y < 0).any():
            raise RequestError(f"y of {design.path} has the value {y.min():g}; expected values of at least 0")
        deviance = float(np.mean(poisson_deviances(y, scores)))
        null = float(np.mean(poisson_deviances(y, np.log(np.mean(y))))) if y.any() else 0.0
        return {"mean_deviance": deviance, "deviance_explained": 1 - deviance / null if null else float("nan")}
    if unknown := sorted(set(np.unique(y).tolist()) - set(model.classes)):
        raise RequestError(f"y of {design.path} has the value {unknown[0]:g}; expected one of {model.classes}")
    ones = (y == model.classes[1]).astype(np.float64)
    loss = float(np.mean(np.logaddexp(0, scores) - ones * scores))
    return {"log_loss": loss, "accuracy": float(np.mean((scores > 0) == ones))}
