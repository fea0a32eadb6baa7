"""Designs for regressions, and the models of runs, as dense arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from designs import ingested, read_back, write
from regressions import RandomRegression

from blocks import Design
from samplers.models import open_any_model
from samplers.regression.model import RegressionModel
from samplers.regression.solver.sparse_regression import LinearModel

ROWS, COLUMNS = 80, 400
PATH: dict[str, Any] = {"length": 12, "least": 0.05, "tolerance": 1e-8, "quiet": True, "workers": 1}
LOSS_OF = {"lasso": "squared", "logistic": "logistic", "poisson": "poisson"}


def make_designs(path: Path) -> Path:
    """Make a sparse design in several blocks, with y for least squares; the same with two values, 1 and 3, for y; and
    with counts. Returns the directory."""
    random = np.random.default_rng(5)
    x = random.standard_normal((ROWS, COLUMNS)) + random.standard_normal(COLUMNS)
    x[:, 1:] = 0.4 * x[:, 1:] + 0.6 * x[:, :-1]
    x[random.random(x.shape) < 0.7] = 0
    x[:, 7], x[:, 8] = 0, 2.5
    x = x.astype(np.float32).astype(np.float64)
    y = x[:, 10:60:10] @ np.arange(1, 6) + random.standard_normal(ROWS)
    counts = random.poisson(np.exp(y / 4)).astype(float)
    for name, labels in (("lasso", y), ("logistic", np.where(y > np.median(y), 3.0, 1.0)), ("poisson", counts)):
        folder = path / f"{name}-input"
        folder.mkdir()
        source, options = write("npz-csc", x, labels, folder)
        ingested("npz", source, path / name, block_bytes=16_000, **options)
    assert Design(path / "lasso").block_count > 3
    return path


def model_of(run: Path) -> RegressionModel:
    model = open_any_model(run)
    assert isinstance(model, RegressionModel)
    return model


def dense_models(run: Path) -> Iterator[tuple[float, LinearModel]]:
    model = model_of(run)
    for lam in model.arrays["lambdas"].tolist():
        found = model.coefficients(lam)
        coefficients = np.zeros(model.columns)
        coefficients[found.columns] = found.values
        yield lam, LinearModel(found.intercept, coefficients)


def problem_of(design: Path, loss: str, **options: Any) -> RandomRegression:
    opened = Design(design)
    assert opened.y is not None
    y = (opened.y == 3).astype(float) if loss == "logistic" else opened.y
    return RandomRegression(read_back(opened), y, loss, {"standardize": True, **options})
