"""Losses whose second derivatives depend on the scores, such as the logistic and the Poisson loss.

Their second-order approximation is weighted least squares, whose solution gives the direction of a step (proximal
Newton: Lee, Sun and Saunders, SIAM J. Optim. 2014; subproblems as in GLMNET).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from samplers.regression.linear_algebra.columns import combine, correlate, scale_rows
from samplers.regression.linear_algebra.free_columns import orthonormal
from samplers.regression.linear_algebra.vectors import combine_rows, inner_product, project_out
from samplers.regression.losses.logistic import LogisticTarget
from samplers.regression.losses.loss import CoefficientFit, PenalizedColumns, admissible_slopes
from samplers.regression.losses.newton_kernels import (
    EQUAL,
    HALVINGS,
    dual_objective,
    find_target,
    fit_free,
    memory_for,
    next_length,
)
from samplers.regression.losses.poisson import PoissonTarget
from samplers.regression.quadratic.descent import descend
from samplers.regression.quadratic.problem import penalty_of, quadratic_problem

_INEXACT = 0.2  # relative to the gap: the gap of the least-squares problem of a step
_ARMIJO = 1e-4  # minimum ratio of a step's decrease to the decrease that the slope promises
_PATIENCE = 5  # maximum number of steps that lower the objective by no more than rounding


class DualPoint(NamedTuple):
    """A dual feasible residual, and its lower bound on the objective."""

    bound: float
    residual: np.ndarray  # float64 (n,)


def better(one: DualPoint, other: DualPoint) -> DualPoint:
    return other if other.bound > one.bound else one


class NewtonLoss:
    """A `Loss` that is minimized by proximal Newton steps.

    target: y of the rows, as the loss needs it.
    weights: float64 (n,), at least 0, or None for 1.
    free: float64 (k, n), unpenalized columns. Attributes: `offset`, float64 (n,) or None, added to the scores of the
        rows; it may be set before a regression is solved.
    """

    offset: np.ndarray | None = None

    def __init__(self, target: LogisticTarget | PoissonTarget, weights: np.ndarray | None, free: np.ndarray) -> None:
        self.roots = None if weights is None else np.sqrt(weights)
        self.free = free if self.roots is None else free * self.roots
        self._target, self._columns = target, free
        self._roots = np.ones(target.y.size) if self.roots is None else self.roots

    def curvature(self, fit: CoefficientFit, gap: float) -> float:
        scores = fit.scores + combine_rows(fit.free, self._columns) if fit.free.size else fit.scores
        return self._target.curvature(fit, scores if self.offset is None else scores + self.offset, self._roots, gap)

    def fit(self, scores: np.ndarray, coefficients: np.ndarray) -> CoefficientFit:
        return self._fit(scores, coefficients)[0]

    def _fit(self, scores: np.ndarray, free: np.ndarray) -> tuple[CoefficientFit, np.ndarray]:
        """Return the fit, and the second derivative for each row, float64 (n,)."""
        residual, curvatures, free = np.empty(scores.size), np.empty(scores.size), free.copy()
        work = memory_for(self._columns)
        moved = scores if self.offset is None else scores + self.offset
        loss = fit_free(free, moved, self._columns, self._target, self._roots, residual, curvatures, work)
        return CoefficientFit(scores, free, residual, loss), curvatures

    def dual(self, residual: np.ndarray) -> float:
        bound = float(dual_objective(self._target, residual, self._roots))
        return bound if self.offset is None else bound - inner_product(residual * self._roots, self.offset)

    def minimise(
        self, part: PenalizedColumns, coefficients: np.ndarray, fit: CoefficientFit, goal: float
    ) -> tuple[np.ndarray, CoefficientFit]:
        fit, curvatures = self._fit(fit.scores, fit.free)
        objective = least = fit.loss + _penalty(part, coefficients)
        best = own = self._dual_point(part, coefficients, fit.residual)
        stalled = 0
        while objective - best.bound > goal and stalled < _PATIENCE and not part.limit.reached:
            new, free, reached = self._newton(part, coefficients, fit, curvatures, _INEXACT * (objective - best.bound))
            if stalled:  # rounding errors of b may exceed the possible gain
                best = better(best, self._dual_point(part, new, self.fit(reached, fit.free).residual))
            found = self._search(part, coefficients, fit, objective, new, free)
            lower = found[1].loss + _penalty(part, found[0])
            point = self._dual_point(part, found[0], found[1].residual)
            stalled = 0 if lower < least * (1 - EQUAL) else stalled + 1
            best, least = better(best, point), min(lower, least)
            if not stalled or point.bound >= own.bound:  # otherwise b is the same, with larger rounding errors
                (coefficients, fit, curvatures), objective, own = found, lower, point
        return coefficients, fit._replace(residual=best.residual)

    def _dual_point(self, part: PenalizedColumns, coefficients: np.ndarray, residual: np.ndarray) -> DualPoint:
        """Return the dual point of a residual for a problem on some columns."""
        slopes = np.empty(coefficients.size)
        correlate(part.columns, np.arange(slopes.size), residual * self._roots, slopes)
        slopes -= part.l2 * coefficients
        scale = 1.0 / np.max(np.abs(admissible_slopes(slopes, positive=part.positive)) / part.l1, initial=1.0)
        ridge = 0.5 * scale**2 * inner_product(part.l2, coefficients**2)
        return DualPoint(self.dual(scale * residual) - ridge, residual)

    def _newton(
        self, part: PenalizedColumns, coefficients: np.ndarray, fit: CoefficientFit, curvatures: np.ndarray, goal: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the minimizers b and a of the second-order approximation, and their scores before b was rounded."""
        roots, target = np.empty((2, fit.residual.size))
        find_target(fit.residual, self._roots, curvatures, roots, target)
        free = orthonormal(self._columns * roots)
        left, new = target.copy(), coefficients.copy()
        project_out(free.basis, left)
        columns = scale_rows(part.columns, roots)
        problem = quadratic_problem(columns, free.basis, part.l1, part.l2, positive=part.positive)
        descend(problem, new, left, goal, part.limit, part.pool)
        image = np.empty(left.size)
        combine(columns, np.arange(new.size), new - coefficients, image)
        change = np.divide(target - left, roots, out=np.zeros(left.size), where=roots > 0)
        return new, fit.free + free.coefficients(target - image), fit.scores + change

    def _search(
        self,
        part: PenalizedColumns,
        coefficients: np.ndarray,
        fit: CoefficientFit,
        objective: float,
        new: np.ndarray,
        free: np.ndarray,
    ) -> tuple[np.ndarray, CoefficientFit, np.ndarray]:
        """Search along the line towards b and a until the objective decreases enough; returns b, its fit and the second
        derivatives.
        """
        scores, length = np.empty(fit.scores.size), 1.0
        combine(part.columns, np.arange(new.size), new, scores)
        change = scores - fit.scores + combine_rows(free - fit.free, self._columns)
        promise = inner_product(change, fit.residual * self._roots) - _penalty(part, new) + _penalty(part, coefficients)
        for _ in range(HALVINGS):
            tried = coefficients + length * (new - coefficients)
            found, curvatures = self._fit(
                fit.scores + length * (scores - fit.scores), fit.free + length * (free - fit.free)
            )
            if found.loss + _penalty(part, tried) <= objective * (1 + EQUAL) - _ARMIJO * length * promise:
                break
            length = 0.5 * length if length < 1.0 else next_length(self._target, float(np.abs(change).max()))
        return tried, found, curvatures


def _penalty(part: PenalizedColumns, coefficients: np.ndarray) -> float:
    return float(penalty_of(part.l1, part.l2, coefficients))
