"""Estimators that choose their penalty by cross-validation: the choices of scikit-learn, and of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc
from scipy import sparse
from sklearn import linear_model
from sklearn.metrics import log_loss, mean_poisson_deviance
from sklearn.model_selection import GroupKFold, KFold

from blocks import RequestError
from samplers import (
    ElasticNetCV,
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    PoissonRegressorCV,
)
from samplers.regression.model import RegressionModel

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(90, 20)) * (RANDOM.random((90, 20)) < 0.6)
Y = X[:, :4] @ [2.0, -1.5, 1.0, 0.7] + RANDOM.normal(size=90) + 5
LABELS = np.where(Y > 5, "high", "low")
COUNTS = np.random.default_rng(4).poisson(np.exp(X[:, :3] @ [0.8, -0.5, 0.4] + 0.5)).astype(float)
ALPHAS = np.geomspace(1, 0.01, 12)


@pytest.mark.parametrize("weights", [None, RANDOM.integers(1, 4, 90).astype(float)], ids=["", "weighted"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_lasso_cv_is_that_of_scikit_learn(weights: Any, form: Callable) -> None:
    """Folds are weighted by their rows, as in scikit-learn."""
    ours = LassoCV(alphas=ALPHAS, cv=KFold(4), tol=1e-10).fit(form(X), Y, weights)
    theirs = linear_model.LassoCV(alphas=ALPHAS, cv=KFold(4), tol=1e-12, max_iter=100_000).fit(X, Y, weights)
    assert ours.alpha_ == ours.alpha_min_ == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-6)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    spread = np.sqrt(np.average((ours.mse_path_.T - ours.mean_error_) ** 2, axis=0) / 3)
    if weights is None:  # folds of 23, 23, 22 and 22 rows
        np.testing.assert_allclose(ours.standard_error_, spread, rtol=0.02)
    within = ours.mean_error_ <= ours.mean_error_.min() + ours.standard_error_[ours.mean_error_.argmin()]
    assert ours.alpha_1se_ == ours.alphas_[within].max() > ours.alpha_min_
    one_se = LassoCV(alphas=ALPHAS, cv=KFold(4), tol=1e-10, rule="1se").fit(form(X), Y, weights)
    assert one_se.alpha_ == ours.alpha_1se_
    np.testing.assert_allclose(one_se.coef_, Lasso(one_se.alpha_, tol=1e-10).fit(X, Y, weights).coef_, atol=1e-6)
    assert np.array_equal(one_se.coef_path_, ours.coef_path_)


def test_elastic_net_cv_chooses_among_several_l1_ratios() -> None:
    groups, ratios = np.arange(90) // 10, [0.2, 0.5, 0.95]
    folds = GroupKFold(3)
    ours = ElasticNetCV(l1_ratio=ratios, alphas=ALPHAS, cv=folds, tol=1e-10).fit(X, Y, groups=groups)
    pairs = list(folds.split(X, Y, groups))
    theirs = linear_model.ElasticNetCV(l1_ratio=ratios, alphas=ALPHAS, cv=pairs, tol=1e-12, max_iter=100_000).fit(X, Y)
    assert (ours.l1_ratio_, ours.alpha_) == (theirs.l1_ratio_, pytest.approx(theirs.alpha_))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


def test_logistic_regression_cv_takes_the_loss_of_scikit_learn() -> None:
    strengths, folds = np.array([0.2, 0.5, 2.0]), list(KFold(3, shuffle=True, random_state=0).split(X))
    ours = LogisticRegressionCV(Cs=strengths, cv=folds, tol=1e-10).fit(X, LABELS)
    for place, strength in enumerate(strengths):
        for fold, (train, test) in enumerate(folds):
            c = strength * 90 / train.size  # the penalty weighs as much in the mean over fewer rows, as in glmnet
            peer = linear_model.LogisticRegression(C=c, l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=50_000)
            loss = log_loss(LABELS[test], peer.fit(X[train], LABELS[train]).predict_proba(X[test]))
            assert ours.loss_path_[place, fold] == pytest.approx(loss, rel=1e-4)
    assert strengths[ours.mean_error_.argmin()] == ours.C_
    np.testing.assert_allclose(ours.coef_, LogisticRegression(C=ours.C_, tol=1e-10).fit(X, LABELS).coef_, atol=1e-6)
    assert ours.predict(X).tolist() == ours.classes_[(ours.predict_proba(X)[:, 1] > 0.5).astype(int)].tolist()


def test_poisson_regression_cv_takes_the_deviance_of_scikit_learn() -> None:
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    ours = PoissonRegressorCV(alphas=[0.1, 0.02], cv=folds, tol=1e-10).fit(X, COUNTS)
    for place, alpha in enumerate(ours.alphas_):
        for fold, (train, test) in enumerate(folds):
            model = PoissonRegressor(alpha, tol=1e-10).fit(X[train], COUNTS[train])
            deviance = mean_poisson_deviance(COUNTS[test], model.predict(X[test]))
            assert ours.deviance_path_[place, fold] == pytest.approx(deviance, rel=1e-5)
    assert ours.alpha_ == ours.alphas_[ours.mean_error_.argmin()]
    np.testing.assert_allclose(ours.coef_, PoissonRegressor(ours.alpha_, tol=1e-10).fit(X, COUNTS).coef_, atol=1e-5)


Y_OF = {"lasso": Y, "logistic": (Y > 5).astype(float), "poisson": COUNTS}
CHOOSING: dict[str, Any] = {
    "lasso": partial(LassoCV, alphas=30),
    "logistic": partial(LogisticRegressionCV, Cs=30),
    "poisson": partial(PoissonRegressorCV, alphas=30),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("loss", Y_OF)
def test_the_command_makes_the_same_choice(loss: str, positive: bool, tmp_path: Path, ooc: Ooc) -> None:
    """With the same folds, from a table in memory and from the dataset on the disk."""
    y = Y_OF[loss]
    rows = [",".join(map(repr, [float(target), *row])) for target, row in zip(y, X.tolist(), strict=True)]
    header = ",".join(["y", *(f"c{column}" for column in range(20))])
    (tmp_path / "table.csv").write_text("\n".join([header, *rows]) + "\n")
    assert ooc("ingest", "csv", "table.csv", "design", "--target", "y").returncode == 0
    path = ["--path", "30", "--lambda-min-ratio", "0.01", "--cross-validate", "5", "--seed", "7", "--json"]
    path += ["--positive"] if positive else []
    done = ooc("train", loss, "design", "run", *path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    kind = CHOOSING[loss](cv=5, eps=0.01, random_state=7, rule="1se", standardize=True, positive=positive)
    for data in ((X, y), (str(tmp_path / "design"), None)):
        model = kind.fit(*data)
        lam = 1 / model.C_ if loss == "logistic" else model.alpha_ * 90
        assert lam == pytest.approx(told["chosen_lambda"], rel=1e-6)
        least = 1 / model.C_min_ if loss == "logistic" else model.alpha_min_ * 90
        assert least == pytest.approx(told["best_lambda"], rel=1e-6)
        assert np.count_nonzero(model.coef_) == told["chosen_nonzeros"]
        theirs = RegressionModel(tmp_path / "run" / "model").coefficients()
        np.testing.assert_allclose(model.coef_.reshape(-1)[theirs.columns], theirs.values, atol=1e-5)
        assert model.intercept_ == pytest.approx(theirs.intercept, abs=1e-5)
    for rule in ("min", "1se"):
        assert ooc("predict", "run", "design", f"{rule}.csv", "--lambda", rule).returncode == 0
        predicted = np.loadtxt(tmp_path / f"{rule}.csv", delimiter=",", skiprows=1)[:, 1]
        model = kind.set_params(rule=rule).fit(X, y)
        wanted = model.predict_proba(X)[:, 1] if loss == "logistic" else model.predict(X)
        np.testing.assert_allclose(predicted, wanted, atol=1e-4)


def test_a_path_has_the_models_of_single_fits() -> None:
    path = Lasso(tol=1e-10).path(X, Y, alphas=5, eps=0.05)
    assert not path.coefs[:, 0].any()
    for place, alpha in enumerate(path.alphas):
        single = Lasso(alpha, tol=1e-10).fit(X, Y)
        np.testing.assert_allclose(path.coefs[:, place], single.coef_, atol=1e-6)
        assert path.intercepts[place] == pytest.approx(single.intercept_)
    assert path.alphas[-1] == pytest.approx(0.05 * path.alphas[0])
    rising = LogisticRegression().path(X, LABELS, Cs=[3.0, 0.2])
    assert rising.alphas.tolist() == [0.2, 3.0]


@pytest.mark.parametrize(
    ("estimator", "y", "said"),
    [
        (LassoCV(rule="one"), Y, "rule must be one of min, 1se, got 'one'"),
        (LassoCV(cv="five"), Y, "cv must be a number of folds"),
        (LassoCV(cv=1), Y, "cv must be an integer of at least 2, got 1"),
        (LassoCV(cv=[([0, 1], [200])]), Y, "cv: index 200 is out of bounds"),
        (LassoCV(cv=[([0, 1, 2], [3])]), Y, "cv must have at least 2 folds, got 1"),
        (LassoCV(alphas=[0.1, -1]), Y, "alphas must be a number of values, or finite values above 0"),
        (LassoCV(eps=1.0), Y, "eps must be between 0 and 1, got 1.0"),
        (ElasticNetCV(l1_ratio=[]), Y, "l1_ratio=[]: expected a number, or a list of numbers"),
        (ElasticNetCV(l1_ratio=[0.5, 2]), Y, "l1_ratio[1] must be a finite number above 0 and at most 1, got 2"),
        (
            LogisticRegressionCV(cv=[(range(45), range(45, 90)), (range(45, 90), range(45))]),
            np.sort(LABELS),
            "without the rows of fold 1 there are rows of only 1 of 2 classes",
        ),
    ],
)
def test_what_cannot_be_validated_is_refused(estimator: Any, y: np.ndarray, said: str) -> None:
    with pytest.raises(RequestError) as error:
        estimator.fit(X, y)
    assert said in str(error.value)


def test_a_path_has_one_l1_ratio() -> None:
    with pytest.raises(RequestError, match=r"a single l1_ratio, got \[0.2, 1.0\]"):
        ElasticNetCV(l1_ratio=[0.2, 1.0]).path(X, Y)
    several = LogisticRegressionCV(l1_ratio=[0.5])
    with pytest.raises(RequestError, match="a single l1_ratio"):
        several.path(X, LABELS)
    assert several.set_params(l1_ratio=0.5).path(X, LABELS, Cs=2).coefs.shape == (20, 2)
