"""Sparse Poisson regression with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.cross_validation import AlphaCrossValidation
from samplers.estimators.lasso import ElasticNet
from samplers.estimators.targets import read_numbers, read_weights
from samplers.regression.losses.poisson import mean_counts, poisson_deviances, require_counts


@dataclass(eq=False, repr=False)
class PoissonRegressor(ElasticNet):
    """Poisson regression with log link and elastic-net penalty, solved to a certified duality gap.

    Minimizes over coefficients b and intercept a, with z_i = a + x_i . b, and n the number of rows or the sum of
    sample_weight:

        1 / n sum_i (exp(z_i) - y_i z_i) + alpha (l1_ratio |b|_1 + (1 - l1_ratio) / 2 |b|_2^2)

    For counts over different times or areas (exposures), fit y = counts / exposures with sample_weight = exposures.

    Parameters
    ----------
    alpha : float
        Strength of the penalty.
    l1_ratio : float
        Mixing parameter, above 0 and up to 1; 1 is the l1 penalty.
    fit_intercept, standardize, tol, max_iter, n_jobs, warm_start, penalty_factor, positive
        See `samplers.estimators.linear.LinearEstimator`.

    Attributes
    ----------
    coef_ : ndarray of float64 (p,)
        Coefficients.
    intercept_ : float
        Intercept.
    n_iter_, dual_gap_, objective_, null_loss_, constant_features_, n_features_in_, feature_names_in_
        See `samplers.estimators.linear.LinearEstimator`; the loss is half the deviance.
    """

    _loss = "poisson"

    alpha: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 1.0

    def _describe(self, tags: Any) -> None:
        super()._describe(tags)
        tags.target_tags.positive_only = True

    def predict(self, X: Any) -> np.ndarray:
        """Return the means exp(X b + intercept), float64 (n,)."""
        return mean_counts(super().predict(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of deviance explained, D^2 (scikit-learn's d2_tweedie_score with power 1)."""
        scores = super().predict(X)
        require_counts(y := read_numbers(y, scores.size))
        weights = read_weights(sample_weight, y.size)
        weights = np.ones(y.size) if weights is None else weights
        mean = np.average(y, weights=weights)
        if not mean:
            raise RequestError("y is 0 in all rows, so there is no deviance to explain")
        left, all_ = (weights @ poisson_deviances(y, of) for of in (scores, np.log(mean)))
        return float(1.0 - left / all_) if all_ else float(left == 0)


@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegressorCV(AlphaCrossValidation, PoissonRegressor):
    """`PoissonRegressor` with alpha, and l1_ratio if it is a list, chosen by cross-validation.

    Parameters
    ----------
    alphas : int or array
        Number of alphas, in geometric progression downwards from the smallest alpha with all coefficients 0; or the
        alphas.
    l1_ratio : float or list of floats
        Mixing parameter, or a list of candidates.
    eps : float
        Smallest alpha relative to the largest, if alphas is a number.
    cv : int, object with `split(X, y, groups)`, or pairs of index arrays
        Cross-validation folds; an integer is a number of random folds, drawn with random_state.
    rule : str
        "min" chooses the alpha with the smallest mean deviance, "1se" the largest alpha within one standard error of it
        (glmnet's lambda.1se).
    random_state : int, numpy.random.Generator, RandomState or None
        Seed of the folds.
    fit_intercept, standardize, tol, max_iter, n_jobs, penalty_factor, positive
        See `samplers.estimators.linear.LinearEstimator`.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        Chosen values.
    alphas_ : ndarray of float64 (N,)
        Alphas in descending order.
    deviance_path_ : ndarray of float64 (N, K)
        Mean deviance of each fold.
    mean_error_, standard_error_ : ndarray of float64 (N,)
        Mean deviance over the folds, weighted by their rows, and its standard error.
    alpha_min_, alpha_1se_ : float
        Values chosen by the two rules.
    coef_path_ : ndarray of float64 (p, N)
        Coefficients of the models fitted to all rows, by penalty.
    intercept_path_ : ndarray of float64 (N,)
        Intercepts of the models fitted to all rows, by penalty.
    coef_, intercept_, ...
        See `PoissonRegressor`.
    """

    l1_ratio: Any = 1.0
    deviance_path_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the path on all rows and on the training rows of each fold.

        groups: passed to `cv.split`.
        Raises RequestError if an argument is invalid.
        """
        self.deviance_path_ = self._fit_alphas(X, y, sample_weight, groups)
        return self
