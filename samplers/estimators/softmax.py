"""Multi-class linear classification by stochastic gradient descent, with the scikit-learn interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from blocks.errors import RequestError
from blocks.samples.samples import SampleBlock
from samplers.estimators.base import Estimator, random_seed
from samplers.estimators.feature_tables import CsrRows, FeatureTable, products, read_table
from samplers.estimators.labels import accuracy, class_indices, labels_among
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.targets import read_target, read_weights
from samplers.regression.options import SoftmaxOptions
from samplers.regression.softmax.in_memory import SoftmaxInMemory
from samplers.regression.softmax.program import LOSSES


@dataclass(eq=False, repr=False)
class SoftmaxRegression(Estimator):
    """Multi-class linear classifier trained by AdaGrad, one sample at a time.

    The algorithm of `ooc train softmax` with one worker, in this process (docs/softmax.md). A sample with weight m
    counts as m samples in a row.

    Parameters
    ----------
    loss : str
        "softmax"; or one-vs-rest "hinge" or "squared".
    rate : float
        Initial learning rate.
    regularization : float
        L2 penalty: weight of half the squared coefficients, per sample.
    max_iter : int
        Number of passes over the data.
    shuffle : bool
        Shuffle the samples before each pass.
    random_state : int, numpy.random.Generator, RandomState or None
        Seed of the random numbers.
    warm_start : bool
        Continue from the last fit.

    Attributes
    ----------
    classes_ : ndarray (K,)
        Classes in ascending order.
    coef_ : ndarray of float64 (K, p)
        Coefficients of each class; for two classes (1, p), for the second class.
    intercept_ : ndarray of float64 (K,)
        Intercepts; for two classes (1,).
    n_iter_ : int
        Number of passes.
    n_features_in_ : int
        p.
    feature_names_in_ : ndarray of str (p,)
        Columns of a data frame.
    """

    _options = SoftmaxOptions
    loss: str = "softmax"
    _: KW_ONLY
    rate: float = 0.5
    regularization: float = 0.0
    max_iter: int = 10
    shuffle: bool = True
    random_state: Any = None
    warm_start: bool = False
    classes_: np.ndarray = field(init=False)
    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)
    n_iter_: int = field(init=False)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _describe(self, tags: Any) -> None:
        from sklearn.utils import ClassifierTags

        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        tags.target_tags.required = True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model from scratch, or continue if warm_start.

        Raises RequestError if an argument is invalid.
        """
        table, target, weights = self._read(X, y, sample_weight)
        classes, labels = class_indices(target)
        if np.unique(labels[weights > 0]).size < 2:
            raise RequestError("y must have 2 classes among the rows whose sample_weight is above 0, got 1")
        goes_on = self.warm_start and hasattr(self, "_training") and np.array_equal(self.classes_, classes)
        if goes_on:
            self._check_features(table.columns, table.names)
        else:
            self._begin(table, classes)
        block, random = _block(table, labels), np.random.default_rng(random_seed(self.random_state))
        for _ in range(self.max_iter):
            order = random.permutation(table.rows) if self.shuffle else np.arange(table.rows)
            self._training.train(block, order, weights)
        self.n_iter_ = self.max_iter + (self.n_iter_ if goes_on else 0)
        return self._take()

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take one step per sample, in order.

        classes: all classes; required in the first call.
        """
        table, target, weights = self._read(X, y, sample_weight)
        if hasattr(self, "_training"):
            self._check_features(table.columns, table.names)
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise RequestError(
                    f"classes must be {self.classes_!r} as in the first call to partial_fit, got {classes!r}"
                )
        elif classes is None:
            raise RequestError("classes must be passed on the first call to partial_fit.")
        else:
            self._begin(table, class_indices(np.asarray(classes))[0])
            self.n_iter_ = 0
        self._training.train(_block(table, labels_among(target, self.classes_)), np.arange(table.rows), weights)
        self.n_iter_ += 1
        return self._take()

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[FeatureTable, np.ndarray, np.ndarray]:
        """Return the table, the labels (n,), and the weights, float64 (n,)."""
        checked_parameters(self)
        if y is None:
            raise RequestError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        table = read_table(X)
        target, weights = read_target(y, table.rows), read_weights(sample_weight, table.rows)
        return table, target, np.ones(table.rows) if weights is None else weights

    def _begin(self, table: FeatureTable, classes: np.ndarray) -> None:
        if self.loss not in LOSSES:
            raise RequestError(f"loss: unknown loss {self.loss!r}", f"Choose one of: {', '.join(LOSSES)}.")
        rates = {"rate": self.rate, "regularization": self.regularization}
        self._training = SoftmaxInMemory(table.columns, classes.size, kind=LOSSES.index(self.loss), **rates)
        self._note_features(table.columns, table.names)
        self.classes_ = classes

    def _take(self) -> Self:
        """Set the learnt attributes in scikit-learn's form."""
        weights = self._training.weights
        if self.classes_.size == 2:
            weights = weights[:, 1:].astype(np.float64) - weights[:, :1]
        columns, intercept = weights[:-1].T.astype(np.float64, order="C"), weights[-1].astype(np.float64)
        if not np.isfinite(columns.sum() + intercept.sum()):
            raise RequestError("the model diverged: its weights are no longer finite", "Reduce rate.")
        self.coef_, self.intercept_ = columns, intercept
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores, float64 (n, K); for two classes (n,), positive for the second class."""
        self._require_fitted()
        table = read_table(X)
        self._check_features(table.columns, table.names)
        scores = products(table, self.coef_) + self.intercept_
        return scores[:, 0] if self.classes_.size == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row, (n,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)]

    @property
    def predict_log_proba(self) -> Callable[[Any], np.ndarray]:
        """Return a function that computes log-probabilities of tables, float64 (n, K); only for loss="softmax"."""
        self._require_probabilities()
        return self._log_probabilities

    @property
    def predict_proba(self) -> Callable[[Any], np.ndarray]:
        """Return a function that computes probabilities of tables, float64 (n, K); only for loss="softmax"."""
        self._require_probabilities()
        return lambda X: np.exp(self._log_probabilities(X))

    def _require_probabilities(self) -> None:
        if self.loss != "softmax":
            raise AttributeError(f"predict_proba is only for loss='softmax', got loss={self.loss!r}")

    def _log_probabilities(self, X: Any) -> np.ndarray:
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        scores = scores - scores.max(axis=1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy."""
        return accuracy(self.predict(X), y, sample_weight)


def _block(table: FeatureTable, labels: np.ndarray) -> SampleBlock:
    """Return the samples in the engine's format.

    labels: int64 (n,), class indices.
    """
    values = table.values if isinstance(table.values, CsrRows) else _sparse(table.values)
    numbers, columns = values.values.astype(np.float32), values.columns.astype(np.uint32)
    return SampleBlock(np.arange(table.rows, dtype=np.uint64), labels.astype(float), values.offsets, columns, numbers)


def _sparse(values: np.ndarray) -> CsrRows:
    """Return the nonzero entries of an array (n, p)."""
    rows, columns = np.nonzero(values)
    offsets = np.searchsorted(rows, np.arange(len(values) + 1)).astype(np.int64)
    return CsrRows(offsets, columns, values[rows, columns])
