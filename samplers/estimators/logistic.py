"""Sparse logistic regression of two classes with the interface of scikit-learn."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.labels import accuracy, classes_of
from samplers.estimators.linear import LinearEstimator
from samplers.estimators.paths import Path, models_of, path_of, penalties
from samplers.estimators.targets import class_weights, read_target, read_weights
from samplers.regression.data.features import BlockFeatures


@dataclass(eq=False, repr=False)
class LogisticRegression(LinearEstimator):
    """Logistic regression with a penalty on the sizes of the coefficients b, z_i being 0 or 1:

        C sum_i (log(1 + exp(a + x_i . b)) - z_i (a + x_i . b)) + l1_ratio |b|_1 + (1 - l1_ratio) / 2 |b|_2^2

    l1_ratio: above 0, up to 1. class_weight: weights of the rows by class, a dict; or "balanced", n / (2 n_k) for the
    n_k rows of a class. The others are those of `samplers.estimators.linear.LinearEstimator`, and so is what `fit`
    learns, besides classes_ (2,), coef_ float64 (1, p) and intercept_ (1,).
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
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Solve for coefficients and intercept. y: of two classes, numbers or names. Raises RequestError."""
        features, labels, weights = self._read_classes(X, y, sample_weight)
        coefficients, intercept = self._solve(features, labels, "logistic", 1 / self.C, self.l1_ratio, weights)
        self.coef_, self.intercept_ = coefficients[None], np.array([intercept])
        return self

    def _read_classes(self, X: Any, y: Any, sample_weight: Any) -> tuple[BlockFeatures, np.ndarray, np.ndarray | None]:
        """The columns; y as 0 and 1, and the weights of the rows, float64 (n,). Notes the classes."""
        features, y = self._read(X, y)
        y = read_target(y, features.rows)
        weights = read_weights(sample_weight, features.rows)
        self.classes_, labels = _two_classes(y)
        if (by_class := class_weights(self.class_weight, self.classes_, labels)) is not None:
            weights = by_class if weights is None else by_class * weights
        if weights is not None and np.unique(labels[weights > 0]).size < 2:
            raise RequestError("y must have 2 classes among the rows whose weight is above 0, got 1")
        return features, labels.astype(np.float64), weights

    def path(self, X: Any, y: Any = None, *, Cs: Any = 100, eps: float = 1e-3, sample_weight: Any = None) -> Path:
        """Solve for rising Cs, each from the solution before.

        Parameters
        ----------
        X, y, sample_weight
            As of `fit`.
        Cs : int or array
            How many, at equal ratios from the largest with an empty model upwards; or these.
        eps : float
            The first C of those, as a share of the last.

        Returns
        -------
        Path
            ``alphas`` (the Cs), ``coefs`` (p, N), ``intercepts`` and ``dual_gaps``. The estimator itself is not fitted.
        """
        features, labels, weights = self._read_classes(X, y, sample_weight)
        problem = self._problem(features, labels, "logistic", self._one_l1_ratio(), weights)
        lambdas = penalties("Cs", Cs, eps, problem, None)
        return path_of(1 / lambdas, models_of(problem, lambdas, self.tol, self.max_iter), features.count)

    def decision_function(self, X: Any) -> np.ndarray:
        """float64 (n,), above 0 for the second class."""
        self._require_fitted()
        return self._scores(X, self.coef_[0]) + self.intercept_[0]

    def predict_proba(self, X: Any) -> np.ndarray:
        """float64 (n, 2)."""
        scores = self.decision_function(X)
        return np.exp(-np.logaddexp(0.0, np.stack([scores, -scores], axis=1)))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """float64 (n, 2)."""
        scores = self.decision_function(X)
        return -np.logaddexp(0.0, np.stack([scores, -scores], axis=1))

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class of each row, (n,)."""
        second = self.decision_function(X) > 0
        return self.classes_[second.astype(np.int64)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the rows whose class is predicted."""
        return accuracy(self.predict(X), y, sample_weight)


def _two_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two classes in order, and which of them each row is of, int64 (n,). Raises RequestError."""
    classes, labels = classes_of(y)
    if classes.size > 2:
        raise RequestError(
            f"Only binary classification is supported. The type of the target is multiclass: {classes.size} classes"
        )
    return classes, labels
