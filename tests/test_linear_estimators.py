"""Estimators of sparse regression: the solutions of scikit-learn's, from every form of the data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import linear_model
from sklearn.datasets import make_classification
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import check_estimator

from blocks import DesignRequest, RequestError, ingest_design
from samplers import (
    ElasticNet,
    ElasticNetCV,
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    MatrixFactorization,
    PoissonRegressor,
    PoissonRegressorCV,
    SoftmaxRegression,
)

RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(120, 30)) * (RANDOM.random((120, 30)) < 0.4) + 0.3
TRUE = np.where(np.arange(30) < 5, RANDOM.normal(size=30) * 3, 0.0)
Y = X @ TRUE + RANDOM.normal(size=120) / 4 + 7
COUNTS = np.random.default_rng(4).poisson(np.exp(X[:, :3] @ [0.8, -0.5, 0.4] + 0.5)).astype(float)
LABELS = np.where(Y + RANDOM.normal(size=120) > np.median(Y), "yes", "no")
WEIGHTS = RANDOM.integers(0, 4, 120).astype(float)
FORMS: dict[str, Callable[[], Any]] = {
    "csr": lambda: sparse.csr_array(X),
    "coo": lambda: sparse.coo_array(X),
    "a data frame (pandas)": lambda: pd.DataFrame(X),
    "a data frame (polars)": lambda: pl.DataFrame(X),
    "a table (pyarrow)": lambda: pa.table({f"column_{number}": X[:, number] for number in range(30)}),
    "lists": X.tolist,
    "in columns": lambda: np.asfortranarray(X),
}
CHECKED = [Lasso(alpha=0.01, n_jobs=1), ElasticNet(alpha=0.01, n_jobs=1), LogisticRegression(n_jobs=1)]
CHECKED += [
    LassoCV(alphas=5, cv=2, n_jobs=1),
    ElasticNetCV(alphas=5, cv=2, l1_ratio=[0.5, 0.9], n_jobs=1),
    LogisticRegressionCV(Cs=5, cv=2, n_jobs=1),
    PoissonRegressor(alpha=0.01, n_jobs=1),
    PoissonRegressorCV(alphas=5, cv=2, n_jobs=1),
    Lasso(alpha=0.01, positive=True, n_jobs=1),
]


EXCEPTIONS = {"check_sample_weight_equivalence_on_dense_data", "check_class_weight_classifiers"}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*does not inherit from:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("estimator", CHECKED, ids=lambda each: type(each).__name__)
def test_scikit_learn_checks(estimator: Any) -> None:
    """All of them, but for those that docs/estimators.md lists."""
    results = check_estimator(estimator, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] not in ("passed", "skipped")}
    assert failed == (EXCEPTIONS if type(estimator) is LogisticRegressionCV else set())
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # only if SCIPY_ARRAY_API is set


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
def test_solutions_of_lasso_and_elastic_net_are_those_of_scikit_learn(intercept: bool, weights: Any) -> None:
    for ours, theirs in (
        (Lasso(0.1, fit_intercept=intercept, tol=1e-10), linear_model.Lasso(0.1, tol=1e-12, fit_intercept=intercept)),
        (
            ElasticNet(0.1, l1_ratio=0.3, fit_intercept=intercept, tol=1e-10),
            linear_model.ElasticNet(0.1, l1_ratio=0.3, tol=1e-12, fit_intercept=intercept),
        ),
    ):
        ours.fit(X, Y, sample_weight=weights)
        theirs.fit(X, Y, sample_weight=weights)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
        assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)
        assert ours.score(X, Y, weights) == pytest.approx(theirs.score(X, Y, weights), abs=1e-5)
        assert ours.dual_gap_ <= 1e-10 * ours.null_loss_


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_solutions_of_logistic_regression_are_those_of_scikit_learn(weights: Any) -> None:
    ours = LogisticRegression(C=0.5, tol=1e-10).fit(X, LABELS, weights)
    theirs = linear_model.LogisticRegression(C=0.5, l1_ratio=1.0, solver="saga", tol=1e-8, max_iter=20_000)
    theirs.fit(X, LABELS, weights)
    assert ours.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), ours.predict_proba(X))
    assert ours.score(X, LABELS, weights) == pytest.approx(theirs.score(X, LABELS, weights))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize(("intercept", "positive"), [(True, False), (False, True)])
def test_solutions_of_poisson_regression_minimize_the_deviance(intercept: bool, positive: bool, weights: Any) -> None:
    """By a general minimizer, of scikit-learn's objective with an l1 penalty besides its l2 penalty."""
    options: dict[str, Any] = {"fit_intercept": intercept, "positive": positive, "l1_ratio": 0.7}
    ours = PoissonRegressor(0.05, tol=1e-12, **options).fit(X, COUNTS, weights)
    w = np.ones(120) if weights is None else weights

    def objective(parts: np.ndarray) -> tuple[float, np.ndarray]:
        a, b, signs = parts[0], parts[1:31] - parts[31:], np.r_[np.ones(30), -np.ones(30)]
        mean = np.exp(X @ b + a)
        loss = w @ (mean - COUNTS * np.log(mean)) / w.sum() + 0.05 * (0.7 * parts[1:].sum() + 0.15 * b @ b)
        slopes = w * (mean - COUNTS) / w.sum()
        slope = X.T @ slopes + 0.05 * 0.3 * b
        return loss, np.r_[slopes.sum(), signs * np.r_[slope, slope] + 0.05 * 0.7]

    bounds = [(None, None) if intercept else (0, 0), *[(0, None)] * 30, *[(0, 0) if positive else (0, None)] * 30]
    stop = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(objective, np.zeros(61), jac=True, method="L-BFGS-B", bounds=bounds, options=stop)
    parts = np.r_[ours.intercept_, np.maximum(ours.coef_, 0), np.maximum(-ours.coef_, 0)]
    assert objective(parts)[0] <= best.fun + 1e-10
    np.testing.assert_allclose(ours.coef_, best.x[1:31] - best.x[31:], atol=1e-4)
    assert ours.dual_gap_ <= 1e-12 * ours.null_loss_
    np.testing.assert_allclose(ours.predict(X), np.exp(X @ ours.coef_ + ours.intercept_))
    expected = d2_tweedie_score(COUNTS, ours.predict(X), sample_weight=weights, power=1)
    assert ours.score(X, COUNTS, weights) == pytest.approx(expected)


def test_poisson_regression_with_little_l1_is_that_of_scikit_learn() -> None:
    ours = PoissonRegressor(0.1, l1_ratio=1e-6, tol=1e-10).fit(X, COUNTS)
    theirs = linear_model.PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=10_000).fit(X, COUNTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_nonnegative_solutions_are_those_of_scikit_learn(weights: Any) -> None:
    for ours, theirs in (
        (Lasso(0.02, positive=True, tol=1e-12), linear_model.Lasso(0.02, positive=True, tol=1e-12)),
        (
            ElasticNet(0.02, l1_ratio=0.3, positive=True, tol=1e-12),
            linear_model.ElasticNet(0.02, l1_ratio=0.3, positive=True, tol=1e-12),
        ),
    ):
        np.testing.assert_allclose(ours.fit(X, Y, weights).coef_, theirs.fit(X, Y, weights).coef_, atol=1e-6)
        assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
        assert ours.coef_.min() == 0 < ours.coef_.max()
    again = Lasso(0.02, tol=1e-12, warm_start=True).fit(X, Y, weights).set_params(positive=True).fit(X, Y, weights)
    np.testing.assert_allclose(again.coef_, Lasso(0.02, positive=True, tol=1e-12).fit(X, Y, weights).coef_, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_data_gives_the_same_solution(form: str) -> None:
    estimator = Lasso(0.1).fit(FORMS[form](), list(Y))
    np.testing.assert_allclose(estimator.coef_, Lasso(0.1, n_jobs=1).fit(X, Y).coef_, atol=1e-4)
    np.testing.assert_allclose(estimator.predict(FORMS[form]()), X @ estimator.coef_ + estimator.intercept_)


def test_columns_on_the_disk_give_the_same_solution(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_matrix(X.astype(np.float32)))
    np.savetxt(tmp_path / "y.txt", Y, fmt="%.9g")
    request = DesignRequest("npz", [str(tmp_path / "x.npz")], str(tmp_path / "data"), target=str(tmp_path / "y.txt"))
    ingest_design(request, workers=1)
    on_disk = Lasso(0.1, tol=1e-9).fit(tmp_path / "data")
    in_memory = Lasso(0.1, tol=1e-9).fit(X.astype(np.float32), Y)
    np.testing.assert_allclose(on_disk.coef_, in_memory.coef_, atol=1e-4)
    np.testing.assert_allclose(on_disk.predict(tmp_path / "data"), in_memory.predict(X), atol=1e-3)
    with pytest.raises(RequestError, match="y is given twice"):
        Lasso().fit(tmp_path / "data", Y)


def test_it_starts_from_what_it_has() -> None:
    """At the solution nothing is left to be done; from elsewhere it comes to the same."""
    estimator = Lasso(0.1, tol=1e-9, warm_start=True).fit(X, Y)
    before = estimator.coef_.copy()
    np.testing.assert_allclose(estimator.fit(X, Y).coef_, before, atol=1e-4)
    again = estimator.set_params(alpha=0.02).fit(X, Y).coef_
    np.testing.assert_allclose(again, Lasso(0.02, tol=1e-9).fit(X, Y).coef_, atol=1e-4)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_penalties_of_columns_are_multiplied(weights: Any) -> None:
    """A column that is divided by a factor has a coefficient that is multiplied by it."""
    factors = RANDOM.uniform(0.3, 3, 30)
    ours = Lasso(0.1, tol=1e-10, penalty_factor=factors).fit(X, Y, weights)
    theirs = linear_model.Lasso(0.1, tol=1e-12).fit(X / factors, Y, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_ / factors, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    ours = LogisticRegression(C=0.5, tol=1e-10, penalty_factor=list(factors)).fit(X, LABELS, weights)
    theirs = linear_model.LogisticRegression(C=0.5, l1_ratio=1.0, solver="saga", tol=1e-8, max_iter=20_000)
    theirs.fit(X / factors, LABELS, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_ / factors, atol=1e-3)


def test_columns_without_a_penalty_are_regressed_out() -> None:
    """The others have the coefficients of what these and the intercept leave of them and of y (Frisch-Waugh)."""
    factors = np.ones(30)
    factors[[2, 7]] = 0.0
    free = np.column_stack([np.ones(120), X[:, [2, 7]]])
    left_x, left_y = (each - free @ np.linalg.lstsq(free, each)[0] for each in (X, Y))
    penalised = np.flatnonzero(factors)
    theirs = linear_model.Lasso(0.1, tol=1e-12, fit_intercept=False).fit(left_x[:, penalised], left_y)
    ours = Lasso(0.1, tol=1e-10, penalty_factor=factors, warm_start=True).fit(X, Y)
    np.testing.assert_allclose(ours.coef_[penalised], theirs.coef_, atol=1e-6)
    rest = Y - X[:, penalised] @ ours.coef_[penalised]
    np.testing.assert_allclose([ours.intercept_, *ours.coef_[[2, 7]]], np.linalg.lstsq(free, rest)[0], atol=1e-6)
    np.testing.assert_allclose(ours.predict(X), ours.intercept_ + X @ ours.coef_)
    before = ours.coef_.copy()
    np.testing.assert_allclose(ours.fit(X, Y).coef_, before, atol=1e-5)
    path = ours.path(X, Y, alphas=[0.1, 0.05])
    np.testing.assert_allclose(path.coefs[:, 0], before, atol=1e-5)
    every = LassoCV(alphas=[0.1, 0.1001], cv=2, penalty_factor=factors, tol=1e-10).fit(X, Y)
    np.testing.assert_allclose(every.coef_path_[:, 1], before, atol=1e-5)


@pytest.mark.parametrize("class_weight", ["balanced", {"yes": 3.0}, {"no": 0.5, "yes": 2}])
def test_classes_are_weighted_as_in_scikit_learn(class_weight: Any) -> None:
    labels = np.where(np.arange(120) % 3 == 0, LABELS, "no")
    ours = LogisticRegression(C=0.5, tol=1e-10, class_weight=class_weight).fit(X, labels, WEIGHTS)
    same = LogisticRegression(C=0.5, tol=1e-10).fit(X, labels, WEIGHTS * compute_sample_weight(class_weight, labels))
    np.testing.assert_allclose(ours.coef_, same.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, same.intercept_, atol=1e-6)
    chosen = LogisticRegressionCV(Cs=[0.5, 0.6], cv=2, tol=1e-10, class_weight=class_weight).fit(X, labels, WEIGHTS)
    np.testing.assert_allclose(chosen.coef_path_[:, 0], ours.coef_[0], atol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (Lasso(penalty_factor=[1, 2]), r"penalty_factor must have shape (30,), a number for each column, got (2,)"),
        (Lasso(penalty_factor=[-1] * 30), "penalty_factor must be finite and at least 0, got -1 in column 0"),
        (Lasso(penalty_factor=[0] * 30), "penalty_factor is 0 for all columns"),
        (Lasso(penalty_factor="adaptive"), "penalty_factor must be numbers"),
        (LogisticRegression(class_weight="even"), "class_weight must be None, 'balanced' or a dict"),
        (LogisticRegression(class_weight={"maybe": 2}), "class_weight has 'maybe', which is not a class of y"),
        (LogisticRegression(class_weight={"yes": -2}), "class_weight must be finite and at least 0, got -2"),
        (LogisticRegression(class_weight={"yes": 0}), "y must have 2 classes among the rows whose weight is above 0"),
    ],
)
def test_wrong_weights_are_refused(estimator: Any, said: str) -> None:
    with pytest.raises(RequestError) as error:
        estimator.fit(X, LABELS if isinstance(estimator, LogisticRegression) else Y)
    assert said in str(error.value)


def test_they_go_through_pickles_and_searches() -> None:
    search = GridSearchCV(Lasso(n_jobs=1), {"alpha": [0.01, 0.1, 10.0]}, cv=3).fit(X, Y)
    assert search.best_params_["alpha"] < 1
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))


def test_with_too_large_a_penalty_the_mean_is_left() -> None:
    estimator = Lasso(1e6).fit(X, Y)
    assert not estimator.coef_.any()
    assert estimator.intercept_ == pytest.approx(Y.mean())
    assert Lasso().fit(X, np.full(120, 3.0)).predict(X).tolist() == pytest.approx([3.0] * 120)


@pytest.mark.parametrize(
    ("estimator", "y", "said"),
    [
        (Lasso(0.0), Y, "alpha must be a finite number"),
        (Lasso(), Y[:5], "120 rows and y 5 values"),
        (Lasso(), LABELS, "class names"),
        (Lasso(), np.full(120, np.inf), "y contains infinity"),
        (ElasticNet(l1_ratio=0.0), Y, r"l1_ratio must be .* got 0\.0"),
        (LogisticRegression(C=0), LABELS, "C must be a finite number above 0, got 0"),
        (LogisticRegression(), Y, "Unknown label type"),
        (LogisticRegression(), np.ones(120), "y must have at least 2 classes, got 1 class:"),
    ],
)
def test_what_cannot_be_is_refused(estimator: Any, y: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        estimator.fit(X, y)


TEXT = "the cat sat on the mat"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], r"X is empty; expected at least one row\nPass an array"),
        (None, r"X must be a table of numbers, got None\nPass an array"),
        (TEXT, "X (is the string|must be a table of numbers)"),
        (TEXT * 50, "X (is the string|must be a table of numbers)"),
        ({"a": 1}, "X must be a table of numbers, got the dict"),
        (iter([1]), "X must be a table of numbers, got the list_iterator"),
        (
            [TEXT] * 120,
            r"X must contain numbers, got the string 'the cat .*' in row 0 \(counted from 0\)\nDrop strings",
        ),
        (
            pd.DataFrame({"text": [TEXT] * 120}),
            "X must contain numbers, got the string 'the cat sat on the mat' in row 0 of column 'text'",
        ),
        (3.0, "got scalar array"),
    ],
)
@pytest.mark.parametrize("estimator", [Lasso, ElasticNet, LogisticRegression, SoftmaxRegression, MatrixFactorization])
def test_what_is_no_table_is_refused(estimator: Any, wrong: Any, said: str) -> None:
    takes_paths = estimator is MatrixFactorization and isinstance(wrong, str)
    if not takes_paths:
        with pytest.raises(RequestError, match=said):
            estimator().fit(wrong, LABELS)


def test_y_is_given_once(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_matrix(X))
    ingest_design(DesignRequest("npz", [str(tmp_path / "x.npz")], str(tmp_path / "data")), workers=1)
    for y in (None, Y):
        with pytest.raises(RequestError, match=r"has no target y\nIngest it again with a target"):
            Lasso().fit(tmp_path / "data", y)
    with pytest.raises(
        RequestError,
        match=r"no dataset exists at this path\nPass an array, .*, or the path of a dataset made by `ooc ing",
    ):
        Lasso().fit(X, Y).predict("dat")


@pytest.mark.parametrize(("positives", "C"), [(1, 3e4), (1, 1e6), (3, 1e6)])
def test_a_weak_penalty_on_few_positives_ends(positives, C):
    """Newton's method for the intercept stops where its step no longer changes anything: it went on for ever."""
    X, y = np.random.default_rng(1).standard_normal((80, 30)), np.arange(80) < positives
    model = LogisticRegression(C=C).fit(X, y)
    assert 0 <= model.dual_gap_ <= 1e-6 * model.null_loss_
    assert (model.predict(X) == y).all()


@pytest.mark.parametrize(("C", "l1_ratio"), [(1e4, 1.0), (1e5, 1.0), (1e6, 0.5), (1e6, 0.25), (1e6, 1.0)])
def test_collinear_columns_with_a_weak_penalty(C, l1_ratio):
    """make_classification has 2 columns that are sums of others; the optimum is that of scikit-learn's own solver."""
    X, y = make_classification(500, random_state=0)
    model = LogisticRegression(C=C, l1_ratio=l1_ratio).fit(X, y)
    # With so weak a penalty the optimum differs from the one without by less than the penalty of any coefficients.
    free = linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y)
    scores = model.decision_function(X), free.decision_function(X)
    losses = [np.logaddexp(0, np.where(y, -z, z)).sum() for z in scores]
    assert model.dual_gap_ <= 1e-6 * model.null_loss_
    assert losses[0] <= losses[1] + np.abs(free.coef_).sum() * max(1, np.abs(free.coef_).max()) / C + 1e-6 * 346.6


def test_a_polynomial_of_degree_15():
    """Columns that are nearly sums of others: the KKT conditions hold, in float64 products of numpy."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    X, y = np.stack([x**k for k in range(1, 16)], axis=1), np.sin(3 * x) + 0.1 * rng.standard_normal(300)
    model = Lasso(alpha=1e-7).fit(X, y)
    residual = y - model.predict(X)
    slopes = X.T @ residual / 300
    active = model.coef_ != 0
    assert np.allclose(slopes[active], 1e-7 * np.sign(model.coef_[active]), atol=1e-10)
    assert (np.abs(slopes[~active]) <= 1.001e-7).all()
    assert model.dual_gap_ <= 1e-6 * model.null_loss_
