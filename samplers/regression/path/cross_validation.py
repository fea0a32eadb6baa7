"""Which lambda of a path predicts best: what the solutions of all folds but one lose on the rows of that one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.design.row_files import draw_folds
from samplers.regression.linear_algebra.vectors import inner, products


class Validation(NamedTuple):
    """Of N values of lambda. The errors are means over the folds, with their standard errors, float64 (N,)."""

    errors: np.ndarray
    standard_errors: np.ndarray
    best: int
    chosen: int  # the largest lambda whose error is within one standard error of the best


def held_out_weights(weights: np.ndarray, folds: int, seed: int, classes: np.ndarray | None) -> list[np.ndarray]:
    """Return the weights of the rows that each fold holds out, float64 (n,), 0 for all other rows.

    weights: of all rows, float64 (n,); rows of weight 0 are in no fold. classes: (n,), of which each fold gets its
    share. Raises RequestError for fewer than 2 folds, or more folds than rows with a weight.
    """
    used = np.flatnonzero(weights)
    drawn = np.full(weights.size, -1)
    drawn[used] = draw_folds(used.size, folds, seed, None if classes is None else classes[used])
    return [np.where(drawn == fold, weights, 0.0) for fold in range(folds)]


def held_out_error(loss: str, y: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    """The mean squared error, or for "logistic" the mean of minus the log of the probability of y. float64 (n,).

    weights: of the rows, 0 for those that are not held out.
    """
    of_rows = (y - scores) ** 2 if loss == "squared" else np.logaddexp(0, scores) - y * scores
    return inner(weights, of_rows) / float(weights.sum())


def validate(errors: np.ndarray, weights: np.ndarray) -> Validation:
    """errors: float64 (N, K), of K folds that weigh (K,), lambda falling (Hastie, Tibshirani and Friedman, The Elements
    of Statistical Learning, section 7.10; folds weigh as in glmnet)."""
    mean = products(errors, weights) / weights.sum()
    spread = products((errors - mean[:, None]) ** 2, weights) / weights.sum()
    standard = np.sqrt(spread / (errors.shape[1] - 1))
    best = int(np.argmin(mean))
    return Validation(mean, standard, best, int(np.argmax(mean <= mean[best] + standard[best])))
