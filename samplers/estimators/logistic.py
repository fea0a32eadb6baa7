"""Sparse logistic regression with the scikit-learn interface."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.base import convergence_warning
from samplers.estimators.labels import accuracy, class_indices
from samplers.estimators.linear import LinearEstimator
from samplers.estimators.penalty_paths import PenaltyPath, Problem, dense_path, path_models, penalties
from samplers.estimators.targets import class_weights, read_target, read_weights
from samplers.regression.data.column_moments import ColumnMoments
from samplers.regression.data.features import BlockFeatures
from samplers.regression.solver.multinomial import MultinomialRegression
from samplers.regression.solver.solver_limit import SolverLimit


@dataclass(eq=False, repr=False)
class LogisticRegression(LinearEstimator):
    """Logistic regression with elastic-net penalty, solved to a certified duality gap.

    With two classes, minimizes over coefficients b and intercept a, with z_i = 1 for the second class and 0 for the
    first:

        C sum_i (log(1 + exp(a + x_i . b)) - z_i (a + x_i . b)) + l1_ratio |b|_1 + (1 - l1_ratio) / 2 |b|_2^2

    With K > 2 classes (multinomial), minimizes over coefficients b_k and intercepts a_k of each class, with scores
    s_ik = a_k + x_i . b_k and classes z_i from 1 to K:

        C sum_i (log sum_k exp(s_ik) - s_i,z_i) + sum_k (l1_ratio |b_k|_1 + (1 - l1_ratio) / 2 |b_k|_2^2)

    Parameters
    ----------
    C : float
        Inverse strength of the penalty.
    l1_ratio : float
        Mixing parameter, above 0 and up to 1; 1 is the l1 penalty.
    class_weight : dict or "balanced", optional
        Weights of the rows by class; "balanced" is n / (K n_k) for the n_k rows of a class.
    fit_intercept, standardize, tol, max_iter, n_jobs, warm_start, penalty_factor, positive
        See `samplers.estimators.linear.LinearEstimator`.

    Attributes
    ----------
    classes_ : ndarray (K,)
        Classes in ascending order.
    coef_ : ndarray of float64 (K, p)
        Coefficients of each class; with two classes (1, p), for the second class.
    intercept_ : ndarray of float64 (K,)
        Intercepts, whose sum is 0; with two classes (1,), for the second class.
    n_iter_, dual_gap_, objective_, null_loss_, constant_features_, n_features_in_, feature_names_in_
        See `samplers.estimators.linear.LinearEstimator`.
    """

    C: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 1.0
    class_weight: Any = None
    classes_: np.ndarray = field(init=False)
    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)

    def _describe(self, tags: Any) -> None:
        from sklearn.utils import ClassifierTags

        super()._describe(tags)
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the coefficients and intercepts.

        y: classes, numbers or strings.
        Raises RequestError if an argument is invalid.
        """
        features, labels, weights = self._read_classes(X, y, sample_weight)
        if self.classes_.size > 2:
            return self._fit_classes(features, labels, weights)
        targets = labels.astype(np.float64)
        coefficients, intercept = self._solve(features, targets, "logistic", 1 / self.C, self.l1_ratio, weights)
        self.coef_, self.intercept_ = coefficients[None], np.array([intercept])
        return self

    def _read_classes(self, X: Any, y: Any, sample_weight: Any) -> tuple[BlockFeatures, np.ndarray, np.ndarray | None]:
        """Return the columns; the class index of each row, int64 (n,); and the weights of the rows, float64 (n,), or
        None. Stores the classes."""
        features, y = self._read(X, y)
        y = read_target(y, features.rows)
        weights = read_weights(sample_weight, features.rows)
        self.classes_, labels = class_indices(y)
        if (by_class := class_weights(self.class_weight, self.classes_, labels)) is not None:
            weights = by_class if weights is None else by_class * weights
        if weights is not None and (used := np.unique(labels[weights > 0]).size) < self.classes_.size:
            raise RequestError(
                f"y must have {self.classes_.size} classes among the rows whose weight is above 0, got {used}"
            )
        return features, labels, weights

    def _fit_classes(self, features: BlockFeatures, labels: np.ndarray, weights: np.ndarray | None) -> Self:
        problem, lam = self._class_problem(features, labels, self._one_l1_ratio(), weights), 1 / self.C
        self._note_constant(problem.constant)
        self.null_loss_, problem.limit = problem.nothing.objective, SolverLimit(self.max_iter * self.classes_.size)
        target = self.tol * self.null_loss_
        found = problem.nothing
        if lam < problem.largest:
            known = self.warm_start and getattr(self, "coef_", np.empty(0)).shape == (
                self.classes_.size,
                features.count,
            )
            start = problem.start(self.coef_) if known else found
            found = problem.best(lam, start, target)
            if found.gap > target:
                warnings.warn(self._told_of_gap(found.gap, problem.limit), convergence_warning(), stacklevel=3)
        self.n_iter_ = max(problem.limit.taken, 1)
        self.dual_gap_, self.objective_ = found.gap, found.objective
        self.coef_, self.intercept_ = problem.model(found)
        return self

    def _class_problem(
        self,
        features: BlockFeatures,
        labels: np.ndarray,
        share: float,
        weights: np.ndarray | None,
        moments: ColumnMoments | None = None,
    ) -> MultinomialRegression:
        """Return the regression of labels, int64 (n,), of more than two classes."""
        if self.positive:
            raise RequestError(
                f"positive=True can only be used with two classes, got {self.classes_.size}",
                "Omit positive, or fit one class against the others.",
            )
        return MultinomialRegression(features, labels, **self._problem_options(features, share, weights, moments))

    def _path_problem(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        share: float,
        weights: np.ndarray | None,
        moments: ColumnMoments | None = None,
    ) -> Problem:
        if loss == "multinomial":
            return self._class_problem(features, y, share, weights, moments)
        return self._problem(features, y.astype(np.float64), loss, share, weights, moments)

    @property
    def _loss(self) -> str:
        return "logistic" if self.classes_.size == 2 else "multinomial"

    def path(
        self, X: Any, y: Any = None, *, Cs: Any = 100, eps: float = 1e-3, sample_weight: Any = None
    ) -> PenaltyPath:
        """Compute the regularization path for ascending Cs, each started from the previous solution.

        Parameters
        ----------
        X, y, sample_weight
            See `fit`.
        Cs : int or array
            Number of Cs, in geometric progression upwards from the largest C with all coefficients 0; or the Cs.
        eps : float
            First C relative to the last, if Cs is a number.

        Returns
        -------
        Path
            ``alphas`` (the Cs), ``coefs`` (p, N), or (K, p, N) for K > 2 classes, ``intercepts`` and ``dual_gaps``.
            This method does not fit the estimator.
        """
        features, labels, weights = self._read_classes(X, y, sample_weight)
        problem = self._path_problem(features, labels, self._loss, self._one_l1_ratio(), weights)
        lambdas = penalties("Cs", Cs, eps, problem, None)
        return dense_path(1 / lambdas, path_models(problem, lambdas, self.tol, self.max_iter), features.count)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores, float64 (n, K); with two classes (n,), positive for the second class."""
        self._require_fitted()
        scores = self._scores(X, self.coef_) + self.intercept_
        return scores[:, 0] if self.classes_.size == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, float64 (n, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the log-probabilities of the classes, float64 (n, K)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return -np.logaddexp(0.0, np.stack([scores, -scores], axis=1))
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row, (n,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy."""
        return accuracy(self.predict(X), y, sample_weight)
