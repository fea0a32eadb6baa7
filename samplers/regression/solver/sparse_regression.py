"""Lasso, elastic net, and l1-penalized logistic and Poisson regression, in the usual parametrization, and paths of
lambdas.

    minimise over b, a    loss(a + X b) + lambda sum_j f_j s_j (share |b_j| + (1 - share) / 2 s_j |b_j|^2)

optionally subject to b >= 0, with the losses of `samplers.regression.losses.loss`, which are sums over the rows, not
means. s_j is the standard deviation of column j if columns are standardized, else 1: coefficients are
always on the scale of the original columns. The penalty factor f_j is 1 by default; columns with factor 0, and the
intercept a, have no penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from samplers.regression.data.column_moments import ColumnMoments, column_shifts, few_columns, needed_moments
from samplers.regression.data.features import FeatureColumns
from samplers.regression.data.shifted_features import shifted
from samplers.regression.linear_algebra.columns import combine, dense_columns
from samplers.regression.linear_algebra.free_columns import DEPENDENT, orthonormal
from samplers.regression.linear_algebra.vectors import combine_rows, inner_product, project_out
from samplers.regression.losses.logistic import LogisticTarget
from samplers.regression.losses.loss import Loss
from samplers.regression.losses.newton import NewtonLoss
from samplers.regression.losses.poisson import PoissonTarget, require_counts
from samplers.regression.losses.squared import SquaredLoss
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.solver.working_sets import ColumnPenalties, RegressionSolution, WorkingSetRegression

LOSSES: dict[str, Callable[[np.ndarray, np.ndarray | None, np.ndarray], Loss]] = {
    "squared": SquaredLoss,
    "logistic": lambda y, weights, free: NewtonLoss(LogisticTarget(y), weights, free),
    "poisson": lambda y, weights, free: NewtonLoss(PoissonTarget.of(y), weights, free),
}
_LEFT = 1e-6  # fraction of a square: a larger remainder after projecting out free columns is computed as a difference
_NAMED = 5  # maximum number of columns named in a message


class LinearModel(NamedTuple):
    """Coefficients of the original columns: scores are intercept + X coefficients."""

    intercept: float
    coefficients: np.ndarray  # float64 (p,)


class NonzeroCoefficients(NamedTuple):
    """Nonzero coefficients: scores are intercept + the sum of the values times the columns."""

    intercept: float
    columns: np.ndarray  # int64 (m,), ascending, columns with nonzero coefficients
    values: np.ndarray  # float64 (m,), nonzero coefficients


class SparseRegression:
    """A regression of y, float64 (n,), on features.

    loss: "squared"; "logistic", for which y is 0 or 1; or "poisson", for which y is at least 0.
    weights: sample weights, float64 (n,), nonnegative.
    share: l1 ratio of the penalty, above 0, up to 1.
    factors: penalty factors f, float64 (p,), nonnegative.
    moments: moments of the columns, if known.
    positive: whether coefficients must be at least 0; then all columns must be penalized.
    Raises RequestError. Attributes: `constant`, int64, columns that are left out because they have equal values in all
    rows, except empty columns of sparse designs; `unpenalised`, int64, columns with factor 0.
    """

    def __init__(
        self,
        features: FeatureColumns,
        y: np.ndarray,
        loss: str = "squared",
        *,
        weights: np.ndarray | None = None,
        intercept: bool = True,
        standardize: bool = False,
        share: float = 1.0,
        factors: np.ndarray | None = None,
        moments: ColumnMoments | None = None,
        positive: bool = False,
    ) -> None:
        _check(features, y, loss, weights, share, factors)
        if positive and factors is not None and not factors.all():
            raise RequestError(
                f"coefficients cannot be restricted to at least 0 if column {int(factors.argmin())} has no penalty",
                "Penalize each column, or allow negative coefficients.",
            )
        self.unpenalised = np.empty(0, np.int64) if factors is None else np.flatnonzero(factors == 0)
        factors = np.ones(1) if factors is None else factors
        if moments is None:
            moments = needed_moments(features, weights, intercept=intercept, standardize=standardize)
        self._intercept, self._lacking = intercept, features.offsets
        shifts = column_shifts(features.offsets, moments, intercept=intercept)
        if shifts is not None:
            total = features.rows if weights is None else float(weights.sum())
            features, moments = shifted(features, shifts), moments.shifted(shifts, total)
            self._lacking = -shifts if self._lacking is None else self._lacking - shifts
        self.constant = self._constant(features, moments) if intercept or standardize else np.empty(0, np.int64)
        penalty = ColumnPenalties(share * factors, (1 - share) * factors if share < 1 else np.zeros(1))
        if standardize:
            squares = penalty.l2 * moments.deviations**2 if share < 1 else penalty.l2
            penalty = ColumnPenalties(penalty.l1 * moments.deviations, squares)
        free = [
            np.ones((int(intercept), features.rows)),
            dense_columns(features.gather(self.unpenalised), features.rows),
        ]
        self.free = np.concatenate(free)
        self.loss: Loss = LOSSES[loss](y, weights, self.free)
        norms = _finite(self._norms(features, moments))
        self.regression = WorkingSetRegression(features, self.loss, penalty, norms, positive=positive)
        self._nothing: RegressionSolution | None = None

    def _constant(self, features: FeatureColumns, moments: ColumnMoments) -> np.ndarray:
        known = moments.deviations == 0
        if not self._intercept:
            known[self.unpenalised] = False
        if features.sparse:
            known &= moments.norms > 0 if self._lacking is None else (moments.norms > 0) | (self._lacking != 0)
        return np.flatnonzero(known)

    def _norms(self, features: FeatureColumns, moments: ColumnMoments) -> np.ndarray:
        """Return the norms of the weighted columns after projecting out the unpenalized columns, float64 (p,)."""
        roots, norms = self.loss.roots, moments.norms
        if self._intercept:
            total = features.rows if roots is None else inner_product(roots, roots)
            norms = math.sqrt(total) * moments.deviations
        free = orthonormal(self.loss.free)
        axes = free.basis[int(self._intercept) :]
        if not len(axes):
            return norms
        left = norms**2
        for axis in axes:
            left -= features.correlations(features.every, axis if roots is None else axis * roots) ** 2
        again = left < _LEFT * norms**2
        again[self.unpenalised], left[self.unpenalised] = False, 0.0
        left = np.sqrt(np.maximum(left, 0.0))
        for some in few_columns(np.flatnonzero(again), features.rows):
            found = self._left_over(dense_columns(features.gather(some), features.rows), free.basis)
            left[some] = np.where(found > DEPENDENT * norms[some], found, 0.0)
        return left

    def _left_over(self, columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
        """Return the norms of columns, float64 (m, n), after projecting out a basis; modifies the columns."""
        if self.loss.roots is not None:
            columns *= self.loss.roots
        for column in columns:
            project_out(basis, column)
            project_out(basis, column)
        return np.array([math.sqrt(inner_product(column, column)) for column in columns])

    @property
    def nothing(self) -> RegressionSolution:
        """Return the solution at lambda_max, where all penalized coefficients are 0.

        Raises RequestError if lambda_max is 0.
        """
        # a cached_property would hold a lock while a ring, whose ranks may be threads, sums up
        if self._nothing is None:
            self._nothing = self.regression.nothing()
        if self._nothing.lam == 0:
            if self.regression.positive:
                raise RequestError(
                    "lambda_max is 0: no column correlates positively with y", "Allow negative coefficients."
                )
            raise RequestError(
                "lambda_max is 0: no column correlates with y", "Check that y and the columns are not constant."
            )
        return self._nothing

    @property
    def limit(self) -> SolverLimit:
        """Return the limit of the solver."""
        return self.regression.limit

    @property
    def largest(self) -> float:
        """Return lambda_max, the smallest lambda for which all penalized coefficients are 0."""
        return self.nothing.lam

    def lambdas(self, number: int, ratio: float) -> np.ndarray:
        """Return `number` lambdas, float64, in geometric progression from lambda_max to lambda_max * ratio."""
        return lambdas_below(self.largest, number, ratio)

    def path(self, lambdas: Iterable[float], tolerance: float) -> Iterator[RegressionSolution]:
        """Yield a solution for each lambda, each started from the previous solution.

        tolerance: maximum duality gap, relative to the loss of the null model.
        """
        solution = self.nothing
        for lam in lambdas:
            solution = self.regression.solve(lam, solution, tolerance * self.nothing.fit.loss)
            yield solution

    def scores(self, solution: RegressionSolution) -> np.ndarray:
        """Return the scores of all rows, float64 (n,)."""
        return solution.fit.scores + combine_rows(solution.fit.free, self.free)

    def terms(self, solution: RegressionSolution) -> NonzeroCoefficients:
        """Return the nonzero and unpenalized coefficients of a solution."""
        free = solution.fit.free[int(self._intercept) :]
        columns = np.concatenate([solution.support, self.unpenalised[free != 0]])
        values = np.concatenate([solution.values, free[free != 0]])
        order = np.argsort(columns)
        columns, values = columns[order], values[order]
        intercept = float(solution.fit.free[0]) if self._intercept else 0.0
        if self._lacking is not None:
            intercept -= inner_product(self._lacking[columns], values)
        return NonzeroCoefficients(intercept, columns, values)

    def model(self, solution: RegressionSolution) -> LinearModel:
        terms = self.terms(solution)
        coefficients = np.zeros(self.regression.features.count)
        coefficients[terms.columns] = terms.values
        return LinearModel(terms.intercept, coefficients)


def lambdas_below(largest: float, number: int, ratio: float) -> np.ndarray:
    """Return `number` lambdas, float64, in geometric progression from the largest to largest * ratio."""
    return largest * np.geomspace(1.0, ratio, number) if number > 1 else np.array([largest * ratio])


def _finite(norms: np.ndarray) -> np.ndarray:
    """Return the norms of columns.

    Raises RequestError if squares overflow.
    """
    if (wrong := np.flatnonzero(~np.isfinite(norms))).size:
        raise RequestError(
            f"column {wrong[0]} has values that overflow when squared",
            "Scale the column so that its values are about 1.",
        )
    return norms


def row_scores(features: FeatureColumns, coefficients: np.ndarray) -> np.ndarray:
    """Return X b, float64 (n,), without column offsets; reads only columns with nonzero coefficients."""
    chosen, found = np.flatnonzero(coefficients), np.zeros(features.rows)
    if chosen.size:
        combine(features.gather(chosen), np.arange(chosen.size), coefficients[chosen], found)
    return found


def constant_columns_warning(names: Sequence[str]) -> str:
    """Return the warning about constant columns."""
    some = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
    what = f"column {some} has" if len(names) == 1 else f"{len(names):,} columns have"
    return f"{what} the same value in all rows and the coefficient 0{'' if len(names) == 1 else f': {some}'}"


def _check(
    features: FeatureColumns,
    y: np.ndarray,
    loss: str,
    weights: np.ndarray | None,
    share: float,
    factors: np.ndarray | None,
) -> None:
    for name, numbers, size in (("weights", weights, features.rows), ("factors", factors, features.count)):
        if numbers is not None and numbers.shape != (size,):
            raise RequestError(f"{name} must have {size:,} elements, got {numbers.size:,}")
        if numbers is not None and not (np.isfinite(numbers).all() and numbers.min() >= 0 and numbers.max() > 0):
            raise RequestError(f"{name} must be finite numbers of at least 0, and not all 0")
    if y.shape != (features.rows,):
        raise RequestError(f"y must have one value for each of the {features.rows:,} rows of X, got {y.size:,}")
    if not (finite := np.isfinite(y)).all():
        raise RequestError(f"y must be finite numbers, got {y[~finite][0]} in row {int(np.argmin(finite))}")
    if not np.isfinite(inner_product(y, y)):
        raise RequestError("y has values that overflow when squared", "Scale y so that its values are about 1.")
    if loss not in LOSSES:
        raise RequestError(f"loss: unknown loss {loss!r}", f"Choose one of: {', '.join(LOSSES)}.")
    _check_target(y, loss, weights)
    if not 0 < share <= 1:
        raise RequestError(f"share must be above 0 and at most 1, got {share:g}", "Use 1 for the Lasso.")


def _check_target(y: np.ndarray, loss: str, weights: np.ndarray | None) -> None:
    used = y if weights is None else y[weights > 0]
    if loss == "logistic":
        values = np.unique(used)
        if not np.array_equal(values, [0, 1]):
            found = ", ".join(f"{value:g}" for value in values[:5])
            raise RequestError(f"y of a logistic regression must have the values 0 and 1, got {found}")
    if loss == "poisson":
        require_counts(y)
        if not used.any():
            raise RequestError(
                "y of a Poisson regression is 0 in all rows, so its mean has no logarithm",
                "Check y and the weights, or use fewer folds.",
            )
