"""Lasso, elastic net and sparse logistic regression with a penalty chosen by cross-validation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.feature_tables import is_path
from samplers.estimators.lasso import ElasticNet
from samplers.estimators.linear import LinearEstimator
from samplers.estimators.logistic import LogisticRegression
from samplers.estimators.penalty_paths import (
    ClassModels,
    FoldWeights,
    cross_validation_folds,
    dense_path,
    fold_errors,
    path_models,
    penalties,
    total_weight,
)
from samplers.regression.data.column_moments import ColumnMoments
from samplers.regression.data.features import BlockFeatures
from samplers.regression.path.cross_validation import RULES, CrossValidationErrors, validate


class CrossValidatedPath(NamedTuple):
    """A path for one l1_ratio.

    errors: float64 (N, K), errors for N penalties and K folds.
    """

    l1_ratio: float
    rounds: int  # number of solver rounds, for the path on all rows
    lambdas: np.ndarray
    models: list[ClassModels]
    errors: np.ndarray
    validation: CrossValidationErrors
    constant: np.ndarray  # int64, indices of the columns that are left out

    def chosen(self, rule: str) -> int:
        return self.validation.best if rule == "min" else self.validation.chosen


@dataclass(kw_only=True, eq=False, repr=False)
class _CrossValidatedEstimator(LinearEstimator):
    """Base class of the estimators that choose a penalty by cross-validation.

    Parameters
    ----------
    eps : float
        Smallest penalty of the path, relative to the largest.
    cv : int, object with `split(X, y, groups)`, or pairs of index arrays
        Cross-validation folds; an integer is a number of random folds, drawn with random_state and stratified by class.
    rule : str
        "min" or "1se" (glmnet's lambda.1se): the largest penalty within one standard error of the smallest error.
    max_iter : int
        Maximum number of solver rounds per penalty, on average over the path.

    Attributes
    ----------
    mean_error_, standard_error_ : ndarray of float64 (N,)
        Mean error over the folds, weighted by their rows, and its standard error, for the chosen l1_ratio.
    l1_ratio_ : float
        Chosen l1_ratio.
    coef_path_ : ndarray of float64 (p, N)
        Coefficients of the models fitted to all rows, by penalty; for K > 2 classes (K, p, N).
    intercept_path_ : ndarray of float64 (N,)
        Intercepts of the models fitted to all rows, by penalty; for K > 2 classes (K, N). The final model is the
        one with the chosen penalty.
    """

    _several = ("l1_ratio",)

    eps: float = 1e-3
    cv: Any = 5
    rule: str = "min"
    random_state: Any = 0
    warm_start: bool = field(init=False, default=False)  # every lambda starts from the previous solution
    mean_error_: np.ndarray = field(init=False)
    standard_error_: np.ndarray = field(init=False)
    l1_ratio_: float = field(init=False)
    _columns: int = field(init=False)
    _models: list[ClassModels] = field(init=False)

    def _choose(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        weights: np.ndarray | None,
        grid: tuple[str, Any, float | None],
        given: tuple[Any, Any, Any],
    ) -> tuple[CrossValidatedPath, int]:
        """Return the path of the best l1_ratio, and the index of the chosen penalty; sets the common attributes.

        grid: name and value of the parameter that has the penalties, and the factor from alphas to lambdas.
        """
        if self.rule not in RULES:
            raise RequestError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        every = np.ones(features.rows) if weights is None else weights
        classes = y if loss in ("logistic", "multinomial") else None
        folds = cross_validation_folds(self.cv, every, classes, self.random_state, given)
        if classes is not None:
            _require_classes(classes, folds)
        ratios = self.l1_ratio if np.ndim(self.l1_ratio) else [self.l1_ratio]  # type: ignore[attr-defined]
        moments = [self._moments(features, each) for each in (weights, *(fold.trained for fold in folds))]
        paths = [self._validated(features, y, loss, weights, grid, folds, moments, float(ratio)) for ratio in ratios]
        self._note_constant(paths[0].constant)
        best = min(paths, key=lambda path: float(path.validation.errors[path.validation.best]))
        self.mean_error_, self.standard_error_ = best.validation.errors, best.validation.standard_errors
        self.l1_ratio_, self._models, self._columns = best.l1_ratio, best.models, features.count
        place, self.n_iter_ = best.chosen(self.rule), best.rounds
        self.dual_gap_, self.objective_ = best.models[place][0].gap, best.models[place][0].objective
        return best, place

    def _validated(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        weights: np.ndarray | None,
        grid: tuple[str, Any, float | None],
        folds: list[FoldWeights],
        moments: list[ColumnMoments],
        ratio: float,
    ) -> CrossValidatedPath:
        """Solve the path on all rows and on the training rows of each fold.

        moments: moments of all rows, then of the rows of each fold.
        """
        whole = self._path_problem(features, y, loss, ratio, weights, moments[0])
        name, values, total = grid
        lambdas = penalties(name, values, self.eps, whole, total)
        self.null_loss_ = whole.nothing.objective
        models = path_models(whole, lambdas, self.tol, self.max_iter)
        rounds = max(whole.limit.taken, 1)
        problem = partial(self._path_problem, features, y, loss, ratio)
        errors = np.array(
            [
                fold_errors(problem(fold.trained, known), loss, y, fold, lambdas, self.tol, self.max_iter)
                for fold, known in zip(folds, moments[1:], strict=True)
            ]
        ).T
        validation = validate(errors, np.array([fold.held_out.sum() for fold in folds]))
        return CrossValidatedPath(ratio, rounds, lambdas, models, errors, validation, whole.constant)

    @property
    def coef_path_(self) -> np.ndarray:
        """Return the coefficients for each penalty, float64 (p, N); for K > 2 classes (K, p, N)."""
        self._require_fitted()
        return dense_path(np.empty(0), self._models, self._columns).coefs

    @property
    def intercept_path_(self) -> np.ndarray:
        """Return the intercept for each penalty, float64 (N,); for K > 2 classes (K, N)."""
        self._require_fitted()
        return dense_path(np.empty(0), self._models, self._columns).intercepts

    def _model(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients, float64 (p,) or (K, p), and the intercepts, () or (K,), for one penalty."""
        found = dense_path(np.empty(0), self._models[place : place + 1], self._columns)
        return found.coefs[..., 0], found.intercepts[..., 0]


def _rows_of(X: Any, y: np.ndarray) -> Any:
    """Return the argument X of `cv.split`; for a dataset, y, which has the same number of rows."""
    return y if is_path(X) else X


def _require_classes(classes: np.ndarray, folds: list[FoldWeights]) -> None:
    """Raise RequestError unless the training rows of each fold have all classes."""
    count = np.unique(classes).size
    for number, fold in enumerate(folds):
        if (left := np.unique(classes[fold.trained > 0]).size) < count:
            raise RequestError(
                f"without the rows of fold {number} there are rows of only {left} of {count} classes",
                "Use fewer folds, or stratified ones.",
            )


@dataclass(kw_only=True, eq=False, repr=False)
class AlphaCrossValidation(_CrossValidatedEstimator, ElasticNet):
    """Base class of the estimators that choose alpha by cross-validation.

    Parameters
    ----------
    alphas : int or array
        Number of alphas, in geometric progression downwards from the smallest alpha with all coefficients 0; or the
        alphas.

    Attributes
    ----------
    alpha_ : float
        Chosen value.
    alphas_ : ndarray of float64 (N,)
        Alphas in descending order.
    alpha_min_, alpha_1se_ : float
        Values chosen by the two rules.
    """

    alpha: float = field(init=False, default=1.0)
    alphas: Any = 100
    alpha_: float = field(init=False)
    alpha_min_: float = field(init=False)
    alpha_1se_: float = field(init=False)
    alphas_: np.ndarray = field(init=False)

    def _fit_alphas(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> np.ndarray:
        """Fit the path, and return the errors, float64 (N, K), for N alphas and K folds."""
        features, numbers, weights = self._read_numbers(X, y, sample_weight)
        total = total_weight(features.rows, weights)
        path, place = self._choose(
            features,
            numbers,
            self._loss,
            weights,
            ("alphas", self.alphas, total),
            (_rows_of(X, numbers), numbers, groups),
        )
        self.alphas_ = path.lambdas / total
        self.alpha_min_, self.alpha_1se_ = (float(self.alphas_[path.chosen(rule)]) for rule in RULES)
        self.alpha_ = float(self.alphas_[place])
        self.coef_, intercept = self._model(place)
        self.intercept_ = float(intercept)
        return path.errors


@dataclass(kw_only=True, eq=False, repr=False)
class ElasticNetCV(AlphaCrossValidation):
    """`ElasticNet` with alpha, and l1_ratio if it is a list, chosen by cross-validation.

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
        "min" chooses the alpha with the smallest mean squared error, "1se" the largest alpha within one standard error
        of it (glmnet's lambda.1se).
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
    mse_path_ : ndarray of float64 (N, K)
        Mean squared error of each fold.
    mean_error_, standard_error_ : ndarray of float64 (N,)
        Mean error over the folds, weighted by their rows, and its standard error.
    alpha_min_, alpha_1se_ : float
        Values chosen by the two rules.
    coef_path_ : ndarray of float64 (p, N)
        Coefficients of the models fitted to all rows, by penalty.
    intercept_path_ : ndarray of float64 (N,)
        Intercepts of the models fitted to all rows, by penalty.
    coef_, intercept_, ...
        See `ElasticNet`.
    """

    l1_ratio: Any = 0.5
    mse_path_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the path on all rows and on the training rows of each fold.

        groups: passed to `cv.split`.
        Raises RequestError if an argument is invalid.
        """
        self.mse_path_ = self._fit_alphas(X, y, sample_weight, groups)
        return self


@dataclass(eq=False, repr=False)
class LassoCV(ElasticNetCV):
    """`ElasticNetCV` with l1_ratio=1."""

    l1_ratio: float = field(init=False, default=1.0)


@dataclass(eq=False, repr=False)
class LogisticRegressionCV(_CrossValidatedEstimator, LogisticRegression):
    """`LogisticRegression` with C, and l1_ratio if it is a list, chosen by cross-validation.

    For the training rows of a fold, C is divided by their fraction of all rows, so that the penalty relative to the
    mean loss stays the same (as in glmnet; scikit-learn keeps C).

    Parameters
    ----------
    Cs : int or array
        Number of Cs, in geometric progression upwards from the largest C with all coefficients 0; or the Cs.
    l1_ratio : float or list of floats
        Mixing parameter, or a list of candidates.
    eps : float
        Smallest C relative to the largest, if Cs is a number.
    cv : int, object with `split(X, y, groups)`, or pairs of index arrays
        Cross-validation folds; an integer is a number of random folds, drawn with random_state and stratified by class.
    rule : str
        "min" chooses the C with the smallest mean negative log-likelihood, "1se" the smallest C within one standard
        error of it (glmnet's lambda.1se).
    random_state : int, numpy.random.Generator, RandomState or None
        Seed of the folds.
    class_weight, fit_intercept, standardize, tol, max_iter, n_jobs, penalty_factor, positive
        See `LogisticRegression`.

    Attributes
    ----------
    C_, l1_ratio_ : float
        Chosen values.
    Cs_ : ndarray of float64 (N,)
        Cs in ascending order.
    loss_path_ : ndarray of float64 (N, K)
        Mean negative log-likelihood of each fold.
    mean_error_, standard_error_ : ndarray of float64 (N,)
        Mean error over the folds, weighted by their rows, and its standard error.
    C_min_, C_1se_ : float
        Values chosen by the two rules.
    coef_path_ : ndarray of float64 (p, N)
        Coefficients of the models fitted to all rows, by penalty; for K > 2 classes (K, p, N).
    intercept_path_ : ndarray of float64 (N,)
        Intercepts of the models fitted to all rows, by penalty; for K > 2 classes (K, N).
    coef_, intercept_, classes_, ...
        See `LogisticRegression`.
    """

    C: float = field(init=False, default=1.0)
    _: KW_ONLY
    l1_ratio: Any = 1.0
    Cs: Any = 100
    C_: float = field(init=False)
    C_min_: float = field(init=False)
    C_1se_: float = field(init=False)
    Cs_: np.ndarray = field(init=False)
    loss_path_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the path on all rows and on the training rows of each fold.

        groups: passed to `cv.split`.
        Raises RequestError if an argument is invalid.
        """
        features, labels, weights = self._read_classes(X, y, sample_weight)
        path, place = self._choose(
            features, labels, self._loss, weights, ("Cs", self.Cs, None), (_rows_of(X, labels), labels, groups)
        )
        self.Cs_, self.loss_path_ = 1 / path.lambdas, path.errors
        self.C_min_, self.C_1se_ = (float(self.Cs_[path.chosen(rule)]) for rule in RULES)
        self.C_ = float(self.Cs_[place])
        coefficients, intercepts = self._model(place)
        self.coef_, self.intercept_ = np.atleast_2d(coefficients), np.atleast_1d(intercepts)
        return self
