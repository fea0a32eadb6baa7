"""Choose a lambda of a path by the held-out errors of cross-validation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.design.row_files import draw_folds
from samplers.regression.linear_algebra.vectors import inner_product, inner_products
from samplers.regression.losses.poisson import poisson_deviances

RULES = ("min", "1se")  # how to choose a penalty: the smallest error, or the one-standard-error rule


class CrossValidationErrors(NamedTuple):
    """Cross-validation results for N lambdas: mean errors over the folds, with standard errors, float64 (N,)."""

    errors: np.ndarray
    standard_errors: np.ndarray
    best: int
    chosen: int  # the largest lambda whose error is within one standard error of the best


def held_out_weights(weights: np.ndarray, folds: int, seed: int, classes: np.ndarray | None) -> list[np.ndarray]:
    """Return the weights of the held-out rows of each fold, float64 (n,), 0 for other rows.

    weights: weights of all rows, float64 (n,); rows with weight 0 are in no fold.
    classes: (n,), for stratified folds.
    Raises RequestError if there are fewer than 2 folds, or more folds than rows with a positive weight.
    """
    used = np.flatnonzero(weights)
    drawn = np.full(weights.size, -1)
    drawn[used] = draw_folds(used.size, folds, seed, None if classes is None else classes[used])
    return [np.where(drawn == fold, weights, 0.0) for fold in range(folds)]


def held_out_error(loss: str, y: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    """Return the mean squared error; for "logistic" and "multinomial" the mean negative log-likelihood, for "poisson"
    the mean deviance.

    y: float64 (n,); for "multinomial" the class of each row, int64 (n,).
    scores: (n,); for "multinomial" (K, n).

    weights: weights of the rows, 0 for rows that are not held out.
    """
    if loss == "squared":
        of_rows = (y - scores) ** 2
    elif loss == "logistic":
        of_rows = np.logaddexp(0, scores) - y * scores
    elif loss == "poisson":
        of_rows = poisson_deviances(y, scores)
    else:
        of_rows = np.logaddexp.reduce(scores, axis=0) - scores[y, np.arange(y.size)]
    return inner_product(weights, of_rows) / float(weights.sum())


def validate(errors: np.ndarray, weights: np.ndarray) -> CrossValidationErrors:
    """Return the best lambda, the lambda chosen by the one-standard-error rule, and the mean errors.

    errors: float64 (N, K), errors for N descending lambdas and K folds.
    weights: (K,), weights of the folds (Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, section
        7.10; folds are weighted as in glmnet).
    """
    mean = inner_products(errors, weights) / weights.sum()
    spread = inner_products((errors - mean[:, None]) ** 2, weights) / weights.sum()
    standard = np.sqrt(spread / (errors.shape[1] - 1))
    best = int(np.argmin(mean))
    return CrossValidationErrors(mean, standard, best, int(np.argmax(mean <= mean[best] + standard[best])))
