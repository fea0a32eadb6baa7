"""Lasso, elastic net and l1 logistic regression as their users state them, and paths of levels of the penalty.

    minimise over b, a    loss(a + X b) + lambda sum_j f_j s_j (share |b_j| + (1 - share) / 2 s_j |b_j|^2)

with the losses of `samplers.squared` and `samplers.logistic`, which are sums over the rows, not means. s_j is the
standard deviation of column j if columns are standardised, and 1 if not: the coefficients are always those of the
columns as they are. f_j is 1 unless told otherwise; columns for which it is 0 have no penalty, nor has the intercept a.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from samplers.columns import dense
from samplers.features import Features
from samplers.logistic import Logistic
from samplers.losses import Loss
from samplers.squared import Squared
from samplers.working_sets import Penalty, Regression, Solution

LOSSES: dict[str, Any] = {"squared": Squared, "logistic": Logistic}
_FLAT = 1e-10  # of the mean of squares: a smaller variance is rounding


class Model(NamedTuple):
    """Scores are intercept + X coefficients."""

    intercept: float
    coefficients: np.ndarray  # float64 (p,)


class SparseRegression:
    """A regression of y, float64 (n,), on features.

    loss: "squared", or "logistic", for which y is 0 or 1. weights: of the rows, float64 (n,), not negative. share: of
    |b_j| in the penalty, above 0, up to 1. factors: f, float64 (p,), not negative. Raises RequestError.
    """

    def __init__(
        self,
        features: Features,
        y: np.ndarray,
        loss: str = "squared",
        *,
        weights: np.ndarray | None = None,
        intercept: bool = True,
        standardize: bool = False,
        share: float = 1.0,
        factors: np.ndarray | None = None,
    ) -> None:
        _check(features, y, loss, weights, share, factors)
        factors = np.ones(features.count) if factors is None else factors
        self._intercept, self._unpenalised = intercept, np.flatnonzero(factors == 0)
        scales = deviations(features, weights) if standardize else np.ones(features.count)
        penalty = Penalty(share * factors * scales, (1 - share) * factors * scales**2)
        free = [np.ones((int(intercept), features.rows)), dense(features.gather(self._unpenalised), features.rows)]
        self.loss: Loss = LOSSES[loss](y, weights, np.concatenate(free))
        self._regression = Regression(features, self.loss, penalty)
        self.nothing = self._regression.nothing()
        if self.nothing.level == 0:
            raise RequestError("y has nothing in it that the columns could explain", "Is it, or are they, constant?")

    @property
    def largest(self) -> float:
        """The least lambda for which all coefficients with a penalty are 0."""
        return self.nothing.level

    def levels(self, number: int, ratio: float) -> np.ndarray:
        """So many values of lambda, float64, from the largest to that times the ratio, at equal ratios."""
        return self.largest * np.geomspace(1.0, ratio, number) if number > 1 else np.array([self.largest * ratio])

    def path(self, levels: Iterable[float], tolerance: float) -> Iterator[Solution]:
        """A solution for each lambda, each from the one before.

        tolerance: their gaps are at most that times the loss where all coefficients with a penalty are 0.
        """
        solution = self.nothing
        for level in levels:
            solution = self._regression.solve(level, solution, tolerance * self.nothing.fit.loss)
            yield solution

    def model(self, solution: Solution) -> Model:
        coefficients = solution.coefficients.copy()
        coefficients[self._unpenalised] = solution.fit.free[int(self._intercept) :]
        return Model(float(solution.fit.free[0]) if self._intercept else 0.0, coefficients)


def deviations(features: Features, weights: np.ndarray | None) -> np.ndarray:
    """Standard deviations of the columns, float64 (p,), rows weighted; 0 of those that are constant."""
    weights = np.ones(features.rows) if weights is None else weights
    every, total = np.arange(features.count), weights.sum()
    squares = features.squares(every, weights) / total
    variances = squares - (features.correlations(every, weights) / total) ** 2
    return np.sqrt(np.where(variances > _FLAT * squares, variances, 0.0))


def _check(
    features: Features,
    y: np.ndarray,
    loss: str,
    weights: np.ndarray | None,
    share: float,
    factors: np.ndarray | None,
) -> None:
    if loss not in LOSSES:
        raise RequestError(f"loss {loss!r} is not known", f"Choose one of: {', '.join(LOSSES)}.")
    if y.shape != (features.rows,):
        raise RequestError(f"y has {y.size:,} values and X {features.rows:,} rows", "Each row needs one.")
    if not np.isfinite(y).all():
        raise RequestError(
            f"y is {y[~np.isfinite(y)][0]} in row {int(np.argmin(np.isfinite(y)))}", "Numbers are needed."
        )
    if loss == "logistic" and not np.array_equal(np.unique(y), [0, 1]):
        found = ", ".join(f"{value:g}" for value in np.unique(y)[:5])
        raise RequestError(
            f"y of a logistic regression has the values {found}", "Both 0 and 1 are needed, and no others."
        )
    if not 0 < share <= 1:
        raise RequestError(f"share {share:g}: above 0, and up to 1, is possible", "1 is the Lasso.")
    for name, numbers, size in (("weights", weights, features.rows), ("factors", factors, features.count)):
        if numbers is None:
            continue
        if numbers.shape != (size,):
            raise RequestError(f"there are {numbers.size:,} {name}, not {size:,}")
        if not (np.isfinite(numbers).all() and numbers.min() >= 0 and numbers.max() > 0):
            raise RequestError(f"{name}: numbers from 0 on are needed, some of them above 0")
