"""The loss of logistic regression: sum_i w_i (log(1 + exp(z_i)) - y_i z_i), all y_i being 0 or 1.

Near some scores it is, to second order, least squares with other weights; their solution gives the direction of a step
(proximal Newton steps: Lee, Sun and Saunders, SIAM J. Optim. 2014; the subproblems as in GLMNET).
"""

from __future__ import annotations

import math

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.columns import combine, correlate, scaled
from samplers.regression.descent import descend
from samplers.regression.free_columns import orthonormal
from samplers.regression.losses import Fit, Part
from samplers.regression.quadratic import penalty_of, quadratic
from samplers.regression.vectors import combined, inner, products, project

_LEAST = 1e-9  # curvature of a row of weight 1
_INEXACT = 0.2  # of the gap: that of the least squares problem of a step
_ARMIJO = 1e-4  # of the decrease that the slope promises: a step must bring as much
_HALVINGS = 40  # of a step, at most
_ROUNDING = 1e-12  # of the loss: the step of Newton's method that promises less is the last
_NEWTON_STEPS = 100  # for the columns without a penalty, at most: ten are many
_EQUAL = 1e-14  # of the objective: rounding
_PATIENCE = 5  # steps that lower the objective by no more


@reordered_kernel
def derivatives(scores, y, roots, residual, curvatures):
    """Find root w (y - p) and w p (1 - p) of each row; returns the loss. All float64 (n,)."""
    loss = 0.0
    for i in range(scores.size):
        weight, score = roots[i] * roots[i], scores[i]
        small = math.exp(-abs(score))
        p = 1.0 / (1.0 + small)
        likely, left = (p, small * p) if score >= 0 else (small * p, p)
        loss += weight * (math.log1p(small) + max(score, 0.0) - y[i] * score)
        residual[i] = roots[i] * (left if y[i] == 1.0 else -likely)
        curvatures[i] = weight * max(likely * left, _LEAST)
    return loss


@reordered_kernel
def entropy(residual, y, roots):
    """-sum_i w_i (q_i log q_i + (1 - q_i) log(1 - q_i)) with q_i = y_i - r_i / root w_i, which is 0 to 1."""
    total = 0.0
    for i in range(residual.size):
        if roots[i] > 0.0:
            away = abs(residual[i]) / roots[i]  # from y
            if 0.0 < away < 1.0:
                total -= roots[i] * roots[i] * (away * math.log(away) + (1.0 - away) * math.log1p(-away))
    return total


class Logistic:
    """The `Loss` of logistic regression. y: float64 (n,), all 0 or 1. weights: float64 (n,), not negative, or None for
    1. free: float64 (k, n), the columns without a penalty."""

    curvature = 0.25

    def __init__(self, y: np.ndarray, weights: np.ndarray | None, free: np.ndarray) -> None:
        self.roots = None if weights is None else np.sqrt(weights)
        self.free = free if self.roots is None else free * self.roots
        self._y, self._columns = y, free
        self._roots = np.ones(y.size) if self.roots is None else self.roots

    def fit(self, scores: np.ndarray, coefficients: np.ndarray) -> Fit:
        return self._fit(scores, coefficients)[0]

    def _fit(self, scores: np.ndarray, free: np.ndarray) -> tuple[Fit, np.ndarray]:
        """Also the curvatures of the rows, float64 (n,). a is found by Newton's method, to the last digit, as the
        residual has to be orthogonal to U."""
        residual, curvatures = np.empty(scores.size), np.empty(scores.size)
        loss = self._derivatives(scores, free, residual, curvatures)
        for _ in range(_NEWTON_STEPS if free.size else 0):
            roots = np.sqrt(curvatures)
            step = orthonormal(self._columns * roots).coefficients(self._target(residual, roots))
            promise, before = inner(products(self.free, residual), step), loss
            for _ in range(_HALVINGS):
                loss = self._derivatives(scores, free + step, residual, curvatures)
                if loss <= before * (1 + _EQUAL):
                    break
                step *= 0.5
            stays = np.array_equal(free + step, free)
            free = free + step
            if stays or promise <= _ROUNDING * loss:
                break
        return Fit(scores, free, residual, loss), curvatures

    def _derivatives(self, scores: np.ndarray, free: np.ndarray, residual: np.ndarray, curvatures: np.ndarray) -> float:
        whole = scores + combined(free, self._columns) if free.size else scores
        return float(derivatives(whole, self._y, self._roots, residual, curvatures))

    def _target(self, residual: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """Of the least squares problem that the loss is to second order, rows times roots of their curvatures."""
        return np.divide(residual * self._roots, roots, out=np.zeros(roots.size), where=roots > 0)

    def dual(self, residual: np.ndarray) -> float:
        return float(entropy(residual, self._y, self._roots))

    def minimise(self, part: Part, coefficients: np.ndarray, fit: Fit, goal: float) -> tuple[np.ndarray, Fit]:
        fit, curvatures = self._fit(fit.scores, fit.free)
        objective = least = fit.loss + _penalty(part, coefficients)
        best, residual, stalled = -math.inf, fit.residual, 0
        while True:
            bound = self._bound(part, coefficients, fit)
            best, residual = (bound, fit.residual) if bound > best else (best, residual)
            if objective - best <= goal or stalled == _PATIENCE:
                return coefficients, fit._replace(residual=residual)
            new, free, reached = self._newton(part, coefficients, fit, curvatures, _INEXACT * (objective - best))
            start = fit.free
            coefficients, fit, curvatures = self._search(part, coefficients, fit, objective, new, free)
            objective = fit.loss + _penalty(part, coefficients)
            stalled = 0 if objective < least * (1 - _EQUAL) else stalled + 1
            least = min(objective, least)
            if stalled:  # what rounding took from b may be more than there is to gain
                fit = fit._replace(residual=self.fit(reached, start).residual)

    def _bound(self, part: Part, coefficients: np.ndarray, fit: Fit) -> float:
        """The objective of the dual point, of a problem on some columns."""
        slopes = np.empty(coefficients.size)
        correlate(part.columns, np.arange(slopes.size), fit.residual * self._roots, slopes)
        slopes -= part.l2 * coefficients
        scale = 1.0 / np.max(np.abs(slopes) / part.l1, initial=1.0)
        return self.dual(scale * fit.residual) - 0.5 * scale**2 * inner(part.l2, coefficients**2)

    def _newton(
        self, part: Part, coefficients: np.ndarray, fit: Fit, curvatures: np.ndarray, goal: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """b and a where the loss to second order is least, and their scores before b was rounded."""
        roots = np.sqrt(curvatures)
        free = orthonormal(self._columns * roots)
        target = self._target(fit.residual, roots)
        left, new = target.copy(), coefficients.copy()
        project(free.basis, left)
        columns = scaled(part.columns, roots)
        descend(quadratic(columns, free.basis, part.l1, part.l2), new, left, goal, part.team)
        image = np.empty(left.size)
        combine(columns, np.arange(new.size), new - coefficients, image)
        change = np.divide(target - left, roots, out=np.zeros(left.size), where=roots > 0)
        return new, fit.free + free.coefficients(target - image), fit.scores + change

    def _search(
        self, part: Part, coefficients: np.ndarray, fit: Fit, objective: float, new: np.ndarray, free: np.ndarray
    ) -> tuple[np.ndarray, Fit, np.ndarray]:
        """Go towards b and a until the objective is enough lower; returns b, its fit and the curvatures of the rows."""
        scores, length = np.empty(fit.scores.size), 1.0
        combine(part.columns, np.arange(new.size), new, scores)
        change = scores - fit.scores + combined(free - fit.free, self._columns)
        promise = inner(change, fit.residual * self._roots) - _penalty(part, new) + _penalty(part, coefficients)
        for _ in range(_HALVINGS):
            tried = coefficients + length * (new - coefficients)
            found, curvatures = self._fit(
                fit.scores + length * (scores - fit.scores), fit.free + length * (free - fit.free)
            )
            if found.loss + _penalty(part, tried) <= objective * (1 + _EQUAL) - _ARMIJO * length * promise:
                break
            length *= 0.5
        return tried, found, curvatures


def _penalty(part: Part, coefficients: np.ndarray) -> float:
    return float(penalty_of(part.l1, part.l2, coefficients))
