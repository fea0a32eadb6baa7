"""Lasso and elastic net with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from samplers.estimators.linear import LinearEstimator
from samplers.estimators.penalty_paths import PenaltyPath, dense_path, path_models, penalties, total_weight
from samplers.estimators.targets import read_numbers, read_weights
from samplers.regression.data.features import BlockFeatures


@dataclass(eq=False, repr=False)
class ElasticNet(LinearEstimator):
    """Linear regression with elastic-net penalty, solved to a certified duality gap.

    Minimizes over coefficients b and intercept a, with n the number of rows or the sum of sample_weight:

        1 / (2 n) sum_i (y_i - a - x_i . b)^2 + alpha (l1_ratio |b|_1 + (1 - l1_ratio) / 2 |b|_2^2)

    Parameters
    ----------
    alpha : float
        Strength of the penalty.
    l1_ratio : float
        Mixing parameter, above 0 and up to 1; 1 is the Lasso.
    fit_intercept, standardize, tol, max_iter, n_jobs, warm_start, penalty_factor, positive
        See `samplers.estimators.linear.LinearEstimator`.

    Attributes
    ----------
    coef_ : ndarray of float64 (p,)
        Coefficients.
    intercept_ : float
        Intercept.
    n_iter_, dual_gap_, objective_, null_loss_, constant_features_, n_features_in_, feature_names_in_
        See `samplers.estimators.linear.LinearEstimator`.
    """

    _loss = "squared"

    alpha: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 0.5
    coef_: np.ndarray = field(init=False)
    intercept_: float = field(init=False)

    def _describe(self, tags: Any) -> None:
        from sklearn.utils import RegressorTags

        super()._describe(tags)
        tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the coefficients and the intercept.

        Raises RequestError if an argument is invalid.
        """
        features, numbers, weights = self._read_numbers(X, y, sample_weight)
        lam = self.alpha * total_weight(features.rows, weights)
        self.coef_, self.intercept_ = self._solve(features, numbers, self._loss, lam, self.l1_ratio, weights)
        return self

    def _read_numbers(self, X: Any, y: Any, sample_weight: Any) -> tuple[BlockFeatures, np.ndarray, np.ndarray | None]:
        """Return the columns, y and the sample weights, float64 (n,)."""
        features, y = self._read(X, y)
        return features, read_numbers(y, features.rows), read_weights(sample_weight, features.rows)

    def path(
        self, X: Any, y: Any = None, *, alphas: Any = 100, eps: float = 1e-3, sample_weight: Any = None
    ) -> PenaltyPath:
        """Compute the regularization path for descending alphas, each started from the previous solution.

        Parameters
        ----------
        X, y, sample_weight
            See `fit`.
        alphas : int or array
            Number of alphas, in geometric progression downwards from the smallest alpha with all coefficients 0; or the
            alphas.
        eps : float
            Last alpha relative to the first, if alphas is a number.

        Returns
        -------
        Path
            ``alphas``, ``coefs`` (p, N), ``intercepts`` and ``dual_gaps``. This method does not fit the estimator.
        """
        features, numbers, weights = self._read_numbers(X, y, sample_weight)
        problem = self._problem(features, numbers, self._loss, self._one_l1_ratio(), weights)
        total = total_weight(features.rows, weights)
        lambdas = penalties("alphas", alphas, eps, problem, total)
        return dense_path(lambdas / total, path_models(problem, lambdas, self.tol, self.max_iter), features.count)

    def predict(self, X: Any) -> np.ndarray:
        """Return X b + intercept, float64 (n,)."""
        self._require_fitted()
        return self._scores(X, self.coef_[None])[:, 0] + self.intercept_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination, R^2."""
        predicted = self.predict(X)
        y = read_numbers(y, predicted.size)
        weights = read_weights(sample_weight, y.size)
        weights = np.ones(y.size) if weights is None else weights
        left, all_ = weights @ (y - predicted) ** 2, weights @ (y - np.average(y, weights=weights)) ** 2
        return 1.0 - left / all_ if all_ else float(left == 0)


@dataclass(eq=False, repr=False)
class Lasso(ElasticNet):
    """`ElasticNet` with l1_ratio=1."""

    l1_ratio: float = field(init=False, default=1.0)
