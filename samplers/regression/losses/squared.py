"""The least-squares loss: 1/2 sum_i w_i (y_i - z_i)^2."""

from __future__ import annotations

import numpy as np

from samplers.regression.linear_algebra.columns import combine, scale_rows
from samplers.regression.linear_algebra.free_columns import orthonormal
from samplers.regression.linear_algebra.vectors import combine_rows, inner_product, project_out
from samplers.regression.losses.loss import CoefficientFit, PenalizedColumns
from samplers.regression.quadratic.descent import descend
from samplers.regression.quadratic.problem import quadratic_problem


class SquaredLoss:
    """The `Loss` of least squares.

    y: float64 (n,).
    weights: float64 (n,), at least 0, or None.
    free: float64 (k, n), unpenalized columns.
    """

    def __init__(self, y: np.ndarray, weights: np.ndarray | None, free: np.ndarray) -> None:
        self.roots = None if weights is None else np.sqrt(weights)
        self.free = self._times_roots(free)
        self._free = orthonormal(self.free)
        self._y, self._target = y, self._times_roots(y).copy()
        project_out(self._free.basis, self._target)

    def _times_roots(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.roots is None else rows * self.roots

    def fit(self, scores: np.ndarray, coefficients: np.ndarray) -> CoefficientFit:
        left = self._times_roots(self._y - scores)
        free = self._free.coefficients(left)
        if free.size:
            left -= combine_rows(free, self.free)
        project_out(self._free.basis, left)
        return CoefficientFit(scores, free, left, 0.5 * inner_product(left, left))

    def curvature(self, fit: CoefficientFit, gap: float) -> float:
        return 1.0

    def dual(self, residual: np.ndarray) -> float:
        return inner_product(residual, self._target) - 0.5 * inner_product(residual, residual)

    def minimise(
        self, part: PenalizedColumns, coefficients: np.ndarray, fit: CoefficientFit, goal: float
    ) -> tuple[np.ndarray, CoefficientFit]:
        columns = part.columns if self.roots is None else scale_rows(part.columns, self.roots)
        found, residual = coefficients.copy(), fit.residual.copy()
        problem = quadratic_problem(columns, self._free.basis, part.l1, part.l2, part.norms, positive=part.positive)
        descend(problem, found, residual, goal, part.limit, part.pool)
        scores = np.empty(residual.size)
        combine(part.columns, np.arange(found.size), found, scores)
        return found, self.fit(scores, fit.free)
