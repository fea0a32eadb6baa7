"""Losses of regressions, as functions of the scores z = X b + U a of the rows, where X are the penalized columns, and U
the unpenalized columns, including the intercept.

    Squared    1/2 sum_i w_i (y_i - z_i)^2
    Logistic   sum_i w_i (log(1 + exp(z_i)) - y_i z_i), where all y_i are 0 or 1
    Poisson    sum_i w_i (exp(z_i) - y_i - y_i (z_i - log y_i)), where all y_i are at least 0

A residual is minus the derivative of the loss with respect to the score of a row, divided by the root of its weight:
root w_i (y_i - z_i), root w_i (y_i - p_i) with p_i = 1 / (1 + exp(-z_i)), or root w_i (y_i - exp(z_i)). It is
orthogonal to the columns of U (rows times root w_i), since the coefficients a are always optimal for the current b.
Scaled by s so that no |x_j . root w r| s exceeds the penalty, it is a feasible point of the dual problem.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from samplers.regression.linear_algebra.columns import DenseColumns, SparseColumns
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.threads.thread_pool import ALONE, ThreadPool


class CoefficientFit(NamedTuple):
    """Coefficients b, together with the optimal coefficients a for this b."""

    scores: np.ndarray  # float64 (n,), X b
    free: np.ndarray  # float64 (k,), a
    residual: np.ndarray  # float64 (n,)
    loss: float


class PenalizedColumns(NamedTuple):
    """Some of the columns, and their penalties sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2."""

    columns: SparseColumns | DenseColumns
    # float64 (W,), norms of the columns (rows times roots of weights) after projecting out free columns
    norms: np.ndarray
    l1: np.ndarray  # float64 (W,)
    l2: np.ndarray  # float64 (W,)
    limit: SolverLimit
    positive: bool  # whether coefficients must be at least 0
    pool: ThreadPool = ALONE  # thread pool for the columns


def admissible_slopes(slopes: np.ndarray, *, positive: bool) -> np.ndarray:
    """Return the slopes of columns, (m,), as far as coefficients can follow them: if coefficients must be at least 0,
    negative slopes become 0.
    """
    return np.maximum(slopes, 0.0) if positive else slopes


class Loss(Protocol):
    """A loss of n rows with k unpenalized columns."""

    roots: np.ndarray | None  # float64 (n,), square roots of the weights; None if all weights are 1
    free: np.ndarray  # float64 (k, n), unpenalized columns times the roots

    def fit(self, scores: np.ndarray, coefficients: np.ndarray) -> CoefficientFit:
        """Return the fit for the scores X b, float64 (n,).

        coefficients: float64 (k,), initial a.
        """

    def curvature(self, fit: CoefficientFit, gap: float) -> float:
        """Return a constant M, such that dual objectives rise by at least |r - r*|^2 / (2 M) from r, a multiple of up
        to 1 of the fit's residual, to the solution r*.

        gap: duality gap between the fit and r. If second derivatives are bounded, M is their maximum for a row of
            weight 1.
        """

    def dual(self, residual: np.ndarray) -> float:
        """Return the dual objective of a residual without the penalty term."""

    def minimise(
        self, part: PenalizedColumns, coefficients: np.ndarray, fit: CoefficientFit, goal: float
    ) -> tuple[np.ndarray, CoefficientFit]:
        """Improve the coefficients of some columns until the duality gap on them is `goal`, the limit is reached, or
        nothing improves.
        """
