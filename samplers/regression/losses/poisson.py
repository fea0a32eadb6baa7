"""The Poisson loss: half the deviance, sum_i w_i (exp(z_i) - y_i - y_i (z_i - log y_i)), for y_i >= 0.

It is minus the log-likelihood of a Poisson distribution with mean exp(z_i), plus a constant: 0 where exp(z) = y. With
q = y - u, where u_i w_i = root w_i r_i is minus the derivative by the score, the dual objective is

    sum_i w_i (q_i - q_i log q_i + y_i log y_i - y_i),   q_i >= 0

which holds for the residual, scaled by s from 0 to 1, since q is between the means and y then.

The second derivative exp(z) has no maximum. So a Newton step that does not lower the loss, and whose largest change of
a score is d, is shortened to log(1 + d) / d of its length: that lowers the loss wherever the step starts, because the
third derivative is the second (Sun and Tran-Dinh, Math. Program. 2019, section 4). For the gap-safe sphere see
`PoissonTarget.curvature`.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from blocks.compiled import reordered_inlined_kernel
from blocks.errors import RequestError
from samplers.regression.losses.loss import CoefficientFit

_LEAST = 1e-18  # minimum curvature of a row of weight 1
MOST = 345.0  # maximum score: larger ones count as this, so that no sum overflows; steps that reach it are not taken


class PoissonTarget(NamedTuple):
    """Target of the Poisson loss."""

    y: np.ndarray  # float64 (n,), at least 0
    logs: np.ndarray  # float64 (n,), log y; 0 where y is 0

    @classmethod
    def of(cls, y: np.ndarray) -> Self:
        return cls(y, np.log(np.where(y > 0, y, 1.0)))

    def curvature(self, fit: CoefficientFit, scores: np.ndarray, roots: np.ndarray, gap: float) -> float:
        """Return a bound on q_i for all i, from the dual point of the fit, at any scale, to the solution.

        The dual objective has the second derivatives -w_i / q_i. If M is at least every q_i on the segment from a dual
        point r to the solution r*, the objective rises by at least |r - r*|^2 / (2 M), so |r - r*|^2 <= 2 M gap.
        q is between m' = y - u and y at r, and the means m* at r*. The gap is at least the Bregman divergence between
        the scores of the fit and of the solution, sum_i w_i (m_i - m*_i - m*_i log(m_i / m*_i)). As x - 1 - log x >=
        (root x - 1)^2, each row has w_i (root m_i - root m*_i)^2 <= gap, so root m*_i <= root m_i + root(gap / w_i).
        """
        used = roots > 0
        means = np.exp(np.minimum(scores[used], MOST))
        of_residual = self.y[used] - fit.residual[used] / roots[used]
        solution = (np.sqrt(means) + math.sqrt(max(gap, 0.0)) / roots[used]) ** 2
        return float(max(solution.max(), self.y[used].max(), of_residual.max()))


def require_counts(y: np.ndarray) -> None:
    """Raise RequestError if a value of y, float64 (n,), is below 0."""
    if (y < 0).any():
        place = int(np.argmax(y < 0))
        raise RequestError(
            f"y of a Poisson regression must be at least 0, got {y[place]:g} in row {place} (counted from 0)",
            "For other targets use Lasso or ElasticNet.",
        )


def mean_counts(scores: np.ndarray) -> np.ndarray:
    """Return the means exp(z) of the rows, float64 (n,)."""
    return np.exp(np.minimum(scores, MOST))


def poisson_deviances(y: np.ndarray, scores: np.ndarray | float) -> np.ndarray:
    """Return the deviance 2 (y log(y / exp(z)) - y + exp(z)) of each row, float64 (n,)."""
    scores = np.minimum(scores, MOST)
    return 2 * (np.exp(scores) - y - y * (scores - np.log(np.where(y > 0, y, 1.0))))


@reordered_inlined_kernel
def half_deviance(y, log_y, score, mean):
    """Return y log(y / mean) - y + mean for one row; log_y is 0 if y is 0."""
    away = score - log_y
    if y > 0.0 and abs(away) < 1.0:  # the formula below would suffer from cancellation
        return y * (math.expm1(away) - away)
    return mean - y - y * away


def poisson_derivatives(target, scores, roots, residual, curvatures):
    """Compute the residual root w (y - exp(z)) and the second derivative w exp(z) of each row; returns the loss."""
    y, logs, loss = target.y, target.logs, 0.0
    for i in range(scores.size):
        weight, score = roots[i] * roots[i], min(scores[i], MOST)
        mean = math.exp(score)
        loss += weight * half_deviance(y[i], logs[i], score, mean)
        residual[i] = roots[i] * (y[i] - mean)
        curvatures[i] = weight * max(mean, _LEAST)
    return loss


def poisson_dual(target, residual, roots):
    """Return sum_i w_i (q_i - q_i log q_i + y_i log y_i - y_i) with q_i = y_i - r_i / root w_i."""
    y, logs, total = target.y, target.logs, 0.0
    for i in range(residual.size):
        if roots[i] > 0.0:
            away = residual[i] / roots[i]
            q, of_row = y[i] - away, away * logs[i] - away
            if q > 0.0:
                of_row -= q * (math.log1p(-away / y[i]) if y[i] > 0.0 else math.log(q))
            total += roots[i] * roots[i] * of_row
    return total


def damped_step(target, change):
    """Return the length to try after a full Newton step, which changes a score by up to `change`, raised the loss."""
    return math.log1p(change) / change if change > 0.0 else 0.5
