"""Multinomial logistic regression with the penalty of `samplers.regression.solver.sparse_regression`, for K classes:

    minimise over B, a   sum_i w_i (log sum_k exp(z_ik) - z_i,y_i) + lambda sum_k penalty(b_k),   z_ik = a_k + x_i . b_k

Given the scores of all other classes, the problem of one class is exactly a logistic regression of its rows against all
others: log(exp(z_k) + exp(o)) is o + log(1 + exp(z_k - o)), where o is the log-sum-exp of the others. Cycles over the
classes solve these problems in turn, more exactly the closer all classes are to the solution (block coordinate descent:
Tseng, J. Optim. Theory Appl. 2001). A dual point of the whole problem measures that: the residuals y_ik - p_ik, scaled
so that the correlations of all columns with them are within the penalty. The dual objective of q = y - r, each row of
which is a distribution, is sum_i w_i H(q_i), where H is the entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from samplers.regression.data.features import FeatureColumns
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.solver.sparse_regression import (
    ColumnMoments,
    NonzeroCoefficients,
    SparseRegression,
    lambdas_below,
    needed_moments,
    row_scores,
)
from samplers.regression.solver.working_sets import RegressionSolution

_INEXACT = 0.1  # fraction of the gap, divided among the classes, that the first cycle may leave in each class's problem
_DEEPER = 0.2  # factor applied to this fraction after a cycle that has not halved the gap,
_DEEPEST = 1e-6  # minimum of this fraction
_ROUNDING = 1e-12  # relative to the loss or the objective: a step that lowers it by less is the last
_STEPS = 100  # maximum number of Newton steps: ten are many
_HALVINGS = 40  # maximum number of halvings of a step
_PROGRESS = 0.99  # a cycle makes progress if it reduces the gap by this factor, or lowers the objective
# maximum number of consecutive cycles without progress: more than it takes to reduce the fraction to its minimum
_PATIENCE = 12


class MultinomialSolution(NamedTuple):
    """Solutions for all classes.

    gap: upper bound on the suboptimality of the objective.
    """

    classes: list[RegressionSolution]
    objective: float
    gap: float


class MultinomialRegression:
    """A regression of labels, int64 (n,), from 0 to K - 1, all of which occur, on features.

    For the other arguments see `SparseRegression`; they have one entry per column for all classes.
    Raises RequestError. Attributes: `of`, the regression of each class against all others; `limit`, for the solvers of
    all classes; `constant`, see `SparseRegression`.
    """

    def __init__(
        self,
        features: FeatureColumns,
        labels: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        intercept: bool = True,
        standardize: bool = False,
        share: float = 1.0,
        factors: np.ndarray | None = None,
        moments: ColumnMoments | None = None,
    ) -> None:
        if moments is None:
            moments = needed_moments(features, weights, intercept=intercept, standardize=standardize)
        count = int(labels.max()) + 1
        options: dict[str, Any] = {"intercept": intercept, "standardize": standardize, "share": share}
        options |= {"factors": factors, "moments": moments, "weights": weights}
        self.of = [
            SparseRegression(features, (labels == each).astype(np.float64), "logistic", **options)
            for each in range(count)
        ]
        first = self.of[0]
        self._free, self.constant, self._intercept = first.free, first.constant, intercept
        self._weights = np.ones(features.rows) if weights is None else weights
        self._targets = (labels == np.arange(count)[:, None]).astype(np.float64)
        self._limit = SolverLimit()
        self.nothing = self._begin()

    @property
    def limit(self) -> SolverLimit:
        return self._limit

    @limit.setter
    def limit(self, limit: SolverLimit) -> None:
        self._limit = limit
        for each in self.of:
            each.regression.limit = limit

    def _begin(self) -> MultinomialSolution:
        """Return the solution at lambda_max, where all penalized coefficients are 0."""
        scores = np.zeros(self._targets.shape)
        loss, residuals, free = self._fit_free(scores, np.zeros((len(scores), len(self._free))))
        steepest = self._steepest(1.0, residuals)
        empty = np.empty(0, np.int64)
        classes = [
            RegressionSolution(steepest, empty, np.empty(0), each.loss.fit(scores[0], mine), loss, 0.0)
            for each, mine in zip(self.of, free, strict=True)
        ]
        return self._with_free(classes, free, loss, 0.0)

    @property
    def largest(self) -> float:
        """Return lambda_max, the smallest lambda for which all penalized coefficients are 0."""
        return self.nothing.classes[0].lam

    def lambdas(self, number: int, ratio: float) -> np.ndarray:
        """Return `number` lambdas, float64, in geometric progression from lambda_max to lambda_max * ratio."""
        return lambdas_below(self.largest, number, ratio)

    def best(self, lam: float, start: MultinomialSolution, target: float) -> MultinomialSolution:
        """Return the solution for a lambda, starting from another solution; its gap is at most `target`, unless the
        limit is reached or nothing improves.
        """
        found = self._judged(lam, start.classes, -np.inf)
        inexact, least, stalled = _INEXACT, found.gap, 0
        while found.gap > target and stalled < _PATIENCE and not self._limit.reached:
            before, goal = found, inexact * found.gap / len(self.of)
            found = self._judged(lam, self._cycle(lam, before.classes, goal), before.objective - before.gap)
            if found.gap > 0.5 * least:
                inexact = max(_DEEPER * inexact, _DEEPEST)
            better = found.gap < _PROGRESS * least or found.objective < before.objective * (1 - _ROUNDING)
            stalled, least = 0 if better else stalled + 1, min(found.gap, least)
        return found

    def _cycle(self, lam: float, classes: list[RegressionSolution], goal: float) -> list[RegressionSolution]:
        """Solve for each class in turn, with the others fixed."""
        scores, classes = self._scores(classes), list(classes)
        for k, each in enumerate(self.of):
            if self._limit.reached:
                break
            others = np.delete(scores, k, axis=0)
            each.loss.offset = -_log_sum(others)  # type: ignore[attr-defined]
            before = classes[k]
            fit = each.loss.fit(before.fit.scores, before.fit.free)
            classes[k] = each.regression.best(lam, before._replace(lam=lam, fit=fit), goal)
            scores[k] = each.scores(classes[k])
        return classes

    def scores(self, found: MultinomialSolution) -> np.ndarray:
        """Return the scores of all rows for each class, float64 (K, n)."""
        return self._scores(found.classes)

    def _scores(self, classes: list[RegressionSolution]) -> np.ndarray:
        return np.stack([solution.fit.scores for solution in classes]) + _free_of(classes) @ self._free

    def _judged(self, lam: float, classes: list[RegressionSolution], bound: float) -> MultinomialSolution:
        """Return the solutions with optimal unpenalized coefficients, and the duality gap over all classes.

        bound: known lower bound on the objective.
        """
        fixed = np.stack([solution.fit.scores for solution in classes])
        loss, residuals, free = self._fit_free(fixed, _free_of(classes))
        costs = [each.regression.penalty.at(lam, of.support) for each, of in zip(self.of, classes, strict=True)]
        absolute = sum(float(cost.l1 @ np.abs(of.values)) for cost, of in zip(costs, classes, strict=True))
        ridge = sum(float(cost.l2 @ of.values**2) for cost, of in zip(costs, classes, strict=True))
        scale = 1.0 / max(self._steepest(lam, residuals, classes), 1.0)
        bound = max(self._dual(scale * residuals) - 0.5 * scale**2 * ridge, bound)
        objective = loss + absolute + 0.5 * ridge
        return self._with_free(classes, free, objective, max(objective - bound, 0.0))

    @staticmethod
    def _with_free(
        classes: list[RegressionSolution], free: np.ndarray, objective: float, gap: float
    ) -> MultinomialSolution:
        """Return the solutions with new unpenalized coefficients `free`, float64 (K, k)."""
        found = [of._replace(fit=of.fit._replace(free=mine)) for of, mine in zip(classes, free, strict=True)]
        return MultinomialSolution(found, objective, gap)

    def _steepest(self, lam: float, residuals: np.ndarray, classes: Sequence[RegressionSolution] = ()) -> float:
        """Return the largest ratio of slope to penalty over all columns and classes.

        residuals: float64 (K, n), weighted by row.
        classes: solutions whose ridge penalty is added to the slopes.
        """
        regression = self.of[0].regression
        slopes = regression.features.several_correlations(regression.features.every, residuals)
        for mine, of in zip(slopes, classes, strict=False):
            mine[of.support] -= regression.penalty.at(lam, of.support).l2 * of.values
        usable, l1 = regression.usable, regression.penalty.l1
        allowed = lam * (l1[usable] if l1.size > 1 else l1)
        return float(np.max(np.abs(slopes[:, usable]) / allowed, initial=0.0))

    def _dual(self, residuals: np.ndarray) -> float:
        """Return the sum of the entropies of y - r.

        residuals: float64 (K, n), weighted by row.
        """
        used = self._weights > 0
        q = np.clip(self._targets[:, used] - residuals[:, used] / self._weights[used], 0.0, 1.0)
        terms = np.where(q > 0, q * np.log(np.where(q > 0, q, 1.0)), 0.0)
        return -float(self._weights[used] @ terms.sum(axis=0))

    def _fit_free(self, scores: np.ndarray, free: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Fit the unpenalized coefficients of all classes together by Newton's method.

        scores: float64 (K, n), scores of the other columns.
        free: float64 (K, k), starting point.
        Returns the loss; the weighted residuals, float64 (K, n), orthogonal to the unpenalized columns; and the
        coefficients, float64 (K, k).
        """
        loss, probabilities = self._loss(scores + free @ self._free)
        for _ in range(_STEPS if free.size else 0):
            gradient = ((self._weights * (self._targets - probabilities)) @ self._free.T).reshape(-1)
            step = np.linalg.lstsq(self._curvature(probabilities), gradient, rcond=None)[0]
            promise, step, before, length = float(gradient @ step), step.reshape(free.shape), free, 1.0
            for _ in range(_HALVINGS):
                free = before + length * step
                tried, probabilities = self._loss(scores + free @ self._free)
                if tried <= loss * (1 + _ROUNDING):
                    break
                length *= 0.5
            loss = tried
            if promise <= _ROUNDING * loss:
                break
        return loss, self._orthogonal(self._weights * (self._targets - probabilities)), free

    def _loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss of scores, float64 (K, n), and the class probabilities, float64 (K, n)."""
        logs = scores - _log_sum(scores)
        return -float(self._weights @ np.sum(self._targets * logs, axis=0)), np.exp(logs)

    def _curvature(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the second derivatives of the loss with respect to all unpenalized coefficients, float64 (Kk, Kk)."""
        count, k = len(probabilities), len(self._free)
        found = np.empty((count, k, count, k))
        for a in range(k):
            for b in range(k):
                weighted = probabilities * (self._weights * self._free[a] * self._free[b])
                found[:, a, :, b] = np.diag(weighted.sum(axis=1)) - weighted @ probabilities.T
        return found.reshape(count * k, count * k)

    def _orthogonal(self, residuals: np.ndarray) -> np.ndarray:
        """Remove from the residuals the rounding errors along the unpenalized columns."""
        if not len(self._free):
            return residuals
        weighted = self._free * self._weights
        along = np.linalg.lstsq(weighted @ self._free.T, self._free @ residuals.T, rcond=None)[0]
        return residuals - along.T @ weighted

    def start(self, coefficients: np.ndarray) -> MultinomialSolution:
        """Return a starting point from coefficients of the original columns, float64 (K, p)."""
        classes = []
        for each, given, before in zip(self.of, coefficients, self.nothing.classes, strict=True):
            known = np.array(given, np.float64)
            known[each.unpenalised] = 0.0  # these are computed anew
            support, scores = np.flatnonzero(known), row_scores(each.regression.features, known)
            fit = before.fit._replace(scores=scores)
            classes.append(before._replace(support=support, values=known[support], fit=fit))
        return MultinomialSolution(classes, np.inf, np.inf)

    def terms(self, found: MultinomialSolution) -> list[NonzeroCoefficients]:
        """Return the nonzero and unpenalized coefficients of each class; intercepts and unpenalized coefficients sum to
        0 over classes.
        """
        free = _free_of(found.classes)
        centred = self._with_free(found.classes, free - free.mean(axis=0), found.objective, found.gap)
        models = [each.terms(of) for each, of in zip(self.of, centred.classes, strict=True)]
        # column offsets have been subtracted from the columns
        moved = float(np.mean([model.intercept for model in models])) if self._intercept else 0.0
        return [model._replace(intercept=model.intercept - moved) for model in models]

    def model(self, found: MultinomialSolution) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients, float64 (K, p), and intercepts, (K,), of `terms`."""
        terms = self.terms(found)
        coefficients = np.zeros((len(terms), self.of[0].regression.features.count))
        for mine, model in zip(coefficients, terms, strict=True):
            mine[model.columns] = model.values
        return coefficients, np.array([model.intercept for model in terms])


def _free_of(classes: Sequence[RegressionSolution]) -> np.ndarray:
    """Return the unpenalized coefficients of all classes, float64 (K, k)."""
    return np.stack([solution.fit.free for solution in classes])


def _log_sum(scores: np.ndarray) -> np.ndarray:
    """Return the log-sum-exp over classes, float64 (n,), of scores, float64 (K, n)."""
    largest = scores.max(axis=0)
    return largest + np.log(np.exp(scores - largest).sum(axis=0))
