"""Lasso, elastic net and l1 logistic regression as their users state them, and paths of levels of the penalty.

    minimise over b, a    loss(a + X b) + lambda sum_j f_j s_j (share |b_j| + (1 - share) / 2 s_j |b_j|^2)

with the losses of `samplers.regression.squared` and `samplers.regression.logistic`, which are sums over the rows, not
means. s_j is the standard deviation of column j if columns are standardised, and 1 if not: the coefficients are always
those of the columns as they are. f_j is 1 unless told otherwise; columns for which it is 0 have no penalty, nor has the
intercept a."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from samplers.regression.columns import dense
from samplers.regression.features import Features
from samplers.regression.free_columns import orthonormal
from samplers.regression.logistic import Logistic
from samplers.regression.losses import Loss
from samplers.regression.squared import Squared
from samplers.regression.vectors import combined, inner
from samplers.regression.working_sets import Penalty, Regression, Solution

LOSSES: dict[str, Any] = {"squared": Squared, "logistic": Logistic}
_FLAT = 1e-5  # of a norm: a smaller deviation is rounding, and so is what free columns leave


class Model(NamedTuple):
    """Scores are intercept + X coefficients."""

    intercept: float
    coefficients: np.ndarray  # float64 (p,)


class Terms(NamedTuple):
    """Scores are intercept + the sum of the values times the columns."""

    intercept: float
    columns: np.ndarray  # int64 (m,), ascending, whose coefficients are not 0
    values: np.ndarray  # float64 (m,), these


class Moments(NamedTuple):
    """Of p columns, rows weighted. float64 (p,)."""

    means: np.ndarray
    norms: np.ndarray  # roots of the sums of the squares
    deviations: np.ndarray  # 0 of columns that are constant


class SparseRegression:
    """A regression of y, float64 (n,), on features.

    loss: "squared", or "logistic", for which y is 0 or 1. weights: of the rows, float64 (n,), not negative. share: of
    |b_j| in the penalty, above 0, up to 1. factors: f, float64 (p,), not negative. moments: of the columns, if they are
    known. Raises RequestError.
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
        moments: Moments | None = None,
    ) -> None:
        _check(features, y, loss, weights, share, factors)
        self._unpenalised = np.empty(0, np.int64) if factors is None else np.flatnonzero(factors == 0)
        factors = np.ones(1) if factors is None else factors
        moments = moments_of(features, weights, centred=intercept or standardize) if moments is None else moments
        self._intercept = intercept
        penalty = Penalty(share * factors, (1 - share) * factors if share < 1 else np.zeros(1))
        if standardize:
            squares = penalty.l2 * moments.deviations**2 if share < 1 else penalty.l2
            penalty = Penalty(penalty.l1 * moments.deviations, squares)
        free = [np.ones((int(intercept), features.rows)), dense(features.gather(self._unpenalised), features.rows)]
        self._free = np.concatenate(free)
        self.loss: Loss = LOSSES[loss](y, weights, self._free)
        self.regression = Regression(features, self.loss, penalty, self._norms(features, moments))
        self._nothing: Solution | None = None

    def _norms(self, features: Features, moments: Moments) -> np.ndarray:
        """float64 (p,), of columns (rows times roots of weights) without what free columns explain of them."""
        roots, norms = self.loss.roots, moments.norms
        if self._intercept:
            total = features.rows if roots is None else inner(roots, roots)
            norms = _unless_flat(math.sqrt(total) * moments.deviations, moments.norms)
        axes = orthonormal(self.loss.free).basis[int(self._intercept) :]
        if not len(axes):
            return norms
        left = norms**2
        for axis in axes:
            left -= features.correlations(features.every, axis if roots is None else axis * roots) ** 2
        return _unless_flat(np.sqrt(np.maximum(left, 0.0)), moments.norms)

    @property
    def nothing(self) -> Solution:
        """That for the least lambda for which all coefficients with a penalty are 0; RequestError if that is 0."""
        if self._nothing is None:  # a cached_property holds a lock while a ring, whose ranks may be threads, adds up
            self._nothing = self.regression.nothing()
        if self._nothing.level == 0:
            raise RequestError("y has nothing in it that the columns could explain", "Is it, or are they, constant?")
        return self._nothing

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
            solution = self.regression.solve(level, solution, tolerance * self.nothing.fit.loss)
            yield solution

    def scores(self, solution: Solution) -> np.ndarray:
        """Those of all rows, float64 (n,)."""
        return solution.fit.scores + combined(solution.fit.free, self._free)

    def terms(self, solution: Solution) -> Terms:
        """The model, of the columns in it, those without a penalty among them."""
        free = solution.fit.free[int(self._intercept) :]
        columns = np.concatenate([solution.support, self._unpenalised[free != 0]])
        values = np.concatenate([solution.values, free[free != 0]])
        order = np.argsort(columns)
        return Terms(float(solution.fit.free[0]) if self._intercept else 0.0, columns[order], values[order])

    def model(self, solution: Solution) -> Model:
        terms = self.terms(solution)
        coefficients = np.zeros(self.regression.features.count)
        coefficients[terms.columns] = terms.values
        return Model(terms.intercept, coefficients)


def moments_of(features: Features, weights: np.ndarray | None, *, centred: bool) -> Moments:
    """Those of the columns; means and deviations are left at 0 if nothing needs to be centred."""
    norms = features.squares(features.every, weights)
    features.team.share(norms.size, lambda begin, end: np.sqrt(norms[begin:end], out=norms[begin:end]))
    if not centred:
        zeros = np.zeros(features.count)
        return Moments(zeros, norms, zeros)
    vector = np.ones(features.rows) if weights is None else weights
    total = float(vector.sum())
    means = features.correlations(features.every, vector) / total
    deviations = np.sqrt(np.maximum(norms**2 / total - means**2, 0.0))
    return Moments(means, norms, _unless_flat(deviations, norms / math.sqrt(total)))


def _unless_flat(lengths: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """What is left of columns of those norms, float64 (p,), or 0 where that is rounding."""
    return np.where(lengths > _FLAT * norms, lengths, 0.0)


def _check(
    features: Features,
    y: np.ndarray,
    loss: str,
    weights: np.ndarray | None,
    share: float,
    factors: np.ndarray | None,
) -> None:
    for name, numbers, size in (("weights", weights, features.rows), ("factors", factors, features.count)):
        if numbers is not None and numbers.shape != (size,):
            raise RequestError(f"there are {numbers.size:,} {name}, not {size:,}")
        if numbers is not None and not (np.isfinite(numbers).all() and numbers.min() >= 0 and numbers.max() > 0):
            raise RequestError(f"{name}: numbers from 0 on are needed, some of them above 0")
    if y.shape != (features.rows,):
        raise RequestError(f"y has {y.size:,} values and X {features.rows:,} rows", "Each row needs one.")
    if not (finite := np.isfinite(y)).all():
        raise RequestError(f"y is {y[~finite][0]} in row {int(np.argmin(finite))}", "Numbers are needed.")
    if loss not in LOSSES:
        raise RequestError(f"loss {loss!r} is not known", f"Choose one of: {', '.join(LOSSES)}.")
    if loss == "logistic":
        values = np.unique(y if weights is None else y[weights > 0])
        if not np.array_equal(values, [0, 1]):
            found = ", ".join(f"{value:g}" for value in values[:5])
            raise RequestError(
                f"y of a logistic regression has the values {found}", "Both 0 and 1 are needed, and no others."
            )
    if not 0 < share <= 1:
        raise RequestError(f"share {share:g}: above 0, and up to 1, is possible", "1 is the Lasso.")
