"""What estimators say of parameters, weights and targets that cannot be: by name, and before any work is done."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from blocks import RequestError
from samplers import (
    ElasticNet,
    Lasso,
    LatentDirichletAllocation,
    LogisticRegression,
    MatrixFactorization,
    SoftmaxRegression,
)

NAN, INF = float("nan"), float("inf")
TEXTS = ["the cat sat on the mat", "cats and dogs", "stocks fell", "the market fell again"] * 5
RATINGS = np.array([[5.0, NAN, 1.0], [4.0, 2.0, NAN], [NAN, 1.0, 5.0]])
DATA = {
    Lasso: load_diabetes(return_X_y=True),
    ElasticNet: load_diabetes(return_X_y=True),
    LogisticRegression: load_breast_cancer(return_X_y=True),
    SoftmaxRegression: load_breast_cancer(return_X_y=True),
    LatentDirichletAllocation: (TEXTS,),
    MatrixFactorization: (RATINGS,),
}
NUMBERS = [
    (Lasso, "alpha"),
    (Lasso, "tol"),
    (ElasticNet, "alpha"),
    (ElasticNet, "l1_ratio"),
    (ElasticNet, "tol"),
    (LogisticRegression, "C"),
    (LogisticRegression, "l1_ratio"),
    (LogisticRegression, "tol"),
    (SoftmaxRegression, "rate"),
    (SoftmaxRegression, "regularization"),
    (LatentDirichletAllocation, "doc_topic_prior"),
    (LatentDirichletAllocation, "topic_word_prior"),
    (LatentDirichletAllocation, "evaluate_every"),
    (LatentDirichletAllocation, "optimize_every"),
    (LatentDirichletAllocation, "memory"),
    (MatrixFactorization, "regularization"),
    (MatrixFactorization, "alpha"),
    (MatrixFactorization, "evaluate_every"),
    (MatrixFactorization, "memory"),
]


@pytest.mark.parametrize("wrong", [NAN, INF, -1, "a", [[1.0]], True], ids=str)
@pytest.mark.parametrize(("estimator", "name"), NUMBERS)
def test_a_parameter_that_is_no_possible_number_is_named(estimator: Any, name: str, wrong: Any) -> None:
    with pytest.raises(RequestError, match=rf"^{name}(\[0\])?( must be |=|: )"):
        estimator(**{name: wrong}).fit(*DATA[estimator])


@pytest.mark.parametrize(
    ("estimator", "name", "wrong", "said"),
    [
        (Lasso, "alpha", 0.0, "alpha must be a finite number"),
        (ElasticNet, "l1_ratio", 1.5, r"l1_ratio must be a finite number above 0 and at most 1, got 1.5"),
        (Lasso, "fit_intercept", "no", "fit_intercept must be True or False, got 'no'"),
        (LogisticRegression, "standardize", NAN, "standardize must be True or False, got nan"),
        (SoftmaxRegression, "shuffle", "no", "shuffle must be True or False, got 'no'"),
        (LatentDirichletAllocation, "doc_topic_prior", [0.1] * 9 + [NAN], r"doc_topic_prior\[9\] must be .* got nan"),
        (LatentDirichletAllocation, "stop_words", 3, "stop_words must be .* got 3"),
        (LatentDirichletAllocation, "callbacks", [3], r"callbacks must be a function .* got \[3\]"),
    ],
)
def test_what_a_parameter_may_be_is_said(estimator: Any, name: str, wrong: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        estimator(**{name: wrong}).fit(*DATA[estimator])


def test_numbers_of_numpy_are_numbers() -> None:
    """They were not written into the run's configuration: TypeError, not JSON serializable."""
    numpy = {
        "doc_topic_prior": np.full(2, 0.1, np.float32),
        "topic_word_prior": np.float32(0.05),
        "evaluate_every": np.int64(1),
        "optimize_every": np.int64(0),
        "memory": 5e8,
    }
    options = {"n_components": np.int64(2), "max_iter": 2, "n_jobs": 1, "random_state": 0}
    model = LatentDirichletAllocation(**options, **numpy).fit(TEXTS)
    python = {"doc_topic_prior": [float(np.float32(0.1))] * 2, "topic_word_prior": float(np.float32(0.05))}
    same = LatentDirichletAllocation(**options, **python).fit(TEXTS)
    np.testing.assert_array_equal(model.components_, same.components_)
    numpy = {"regularization": np.float32(0.05), "biases": np.bool_(True), "evaluate_every": np.int64(1)}
    ratings = np.random.default_rng(0).integers(1, 6, (20, 10)).astype(float)
    factors = MatrixFactorization(**options, **numpy).fit(ratings)
    alike = MatrixFactorization(**options, regularization=float(np.float32(0.05)), biases=True).fit(ratings)
    np.testing.assert_array_equal(factors.row_factors_, alike.row_factors_)
    for top in ("a", 0, 2.5):
        with pytest.raises(RequestError, match=f"top must be an integer of at least 1, got {top!r}"):
            factors.recommend(ratings, top)


@pytest.mark.parametrize("wrong", [NAN, INF, -1.0, "a", 1j], ids=str)
@pytest.mark.parametrize("estimator", [Lasso, ElasticNet, LogisticRegression, SoftmaxRegression])
def test_weights_that_are_not_finite_numbers_from_0_on_are_named(estimator: Any, wrong: Any) -> None:
    """By `fit`, by `score`, which returned nan or took them, and for one weight of all rows."""
    X, y = DATA[estimator]
    X = X / np.abs(X).max(axis=0)
    weights = [1.0] * (len(y) - 1) + [wrong]
    fitted = estimator().fit(X, y)
    for given in (weights, wrong):
        with pytest.raises(RequestError, match="sample_weight"):
            estimator().fit(X, y, given)
        with pytest.raises(RequestError, match="sample_weight"):
            fitted.score(X, y, given)


def test_the_row_of_a_wrong_weight_is_told() -> None:
    with pytest.raises(
        RequestError, match=r"sample_weight must be finite and at least 0, got nan in row 2 \(counted from 0\)"
    ):
        Lasso().fit(np.eye(4), np.arange(4.0), [1, 1, NAN, 1])


def test_parameters_are_checked_before_a_warm_start_goes_on() -> None:
    X, y = DATA[SoftmaxRegression]
    model = SoftmaxRegression(warm_start=True).fit(X / X.max(axis=0), y)
    with pytest.raises(RequestError, match="rate must be a finite number above 0, got nan"):
        model.set_params(rate=NAN).fit(X / X.max(axis=0), y)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (None, "y must have a value for each of the .* rows of X, got None"),
        ([], "569 rows and y 0 values"),
        ([NAN] * 569, "y contains NaN"),
        (["benign"] * 569, "y has classes such as 'benign', but fit had classes such as"),
        (np.array([None] * 569), "y is None in row 0"),
        (pd.Series([0] * 568 + [NAN], dtype=object), "y is nan in row 568"),
        (np.full(569, 1j), "Complex data"),
    ],
)
@pytest.mark.parametrize("estimator", [LogisticRegression, SoftmaxRegression])
def test_a_score_of_what_are_no_classes_is_refused(estimator: Any, y: Any, said: str) -> None:
    """It was 0."""
    X, _ = DATA[estimator]
    with pytest.raises(RequestError, match=said):
        fitted(estimator).score(X / X.max(axis=0), y)


@cache
def fitted(estimator: Any) -> Any:
    X, classes = DATA[estimator]
    return estimator().fit(X / X.max(axis=0), classes)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (None, "y must have a value for each of the .* rows of X, got None"),
        (["a"] * 442, "y of a regression must be numbers, got class names"),
        (np.array([None] * 442), "y contains NaN"),
        (np.full(442, 1j), "Complex data"),
    ],
)
def test_a_score_of_what_are_no_numbers_is_refused(y: Any, said: str) -> None:
    X, numbers = DATA[Lasso]
    with pytest.raises(RequestError, match=said):
        Lasso().fit(X, numbers).score(X, y)


FEW = {"n_components": 2, "max_iter": 2, "n_jobs": 1}
TOLD = [
    (LatentDirichletAllocation, {"optimize_every": 5}, "optimize_every 5: .* after iteration 20, but max_iter is 2"),
    (
        LatentDirichletAllocation,
        {"sampler": "splash", "optimize_every": 1},
        "optimize_every cannot be used with sampler splash",
    ),
    (LatentDirichletAllocation, {"stop_words": "/none"}, r"stop_words: /none is neither.*\nUse languages"),
    (
        LatentDirichletAllocation,
        {"memory": "1MB"},
        r"memory 1 MB is too small.*\nIncrease memory, or reduce n_j",
    ),
    (LatentDirichletAllocation, {"topic_word_prior": 1e-12}, "topic_word_prior must be from"),
    (LatentDirichletAllocation, {"doc_topic_prior": [0.1] * 3}, "doc_topic_prior must have 1 or 2 values, got 3"),
    (MatrixFactorization, {"memory": "1MB"}, r"memory 1 MB is too small.*\nIncrease memory, or reduce n_jobs"),
    (
        MatrixFactorization,
        {"method": "ccd", "nonnegative": True, "biases": True},
        r"nonnegative cannot be used with biases\nAdd biases=False",
    ),
    (
        MatrixFactorization,
        {"method": "als", "nonnegative": True},
        r"nonnegative cannot be used with method als\nUse it only with method",
    ),
]


@pytest.mark.parametrize(("estimator", "parameters", "said"), TOLD)
def test_messages_speak_of_parameters_and_not_of_options(estimator: Any, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        estimator(**FEW | parameters).fit(*DATA[estimator])
    assert "--" not in str(caught.value)
    assert "burn" not in str(caught.value)


def test_the_directory_of_data_in_memory_is_not_told() -> None:
    with pytest.raises(RequestError, match="nonnegative cannot be used: no value of X is above 0"):
        MatrixFactorization(**FEW, method="ccd", nonnegative=True, biases=False).fit(-RATINGS)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_budget_beyond_the_machine_is_told_without_options(capfd: pytest.CaptureFixture[str]) -> None:
    LatentDirichletAllocation(**FEW, memory="100TB").fit(TEXTS)
    assert "warning: the memory limit of 100,000.0 GB exceeds the available memory" in (told := capfd.readouterr().err)
    assert "--" not in told
