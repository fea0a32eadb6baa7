"""Multinomial logistic regression: compare with the optimality conditions computed by numpy, and with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp, softmax
from sklearn import linear_model
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.utils.class_weight import compute_sample_weight

from blocks import DesignRequest, RequestError, WorkFailed, ingest_design
from samplers import LogisticRegression, LogisticRegressionCV

RANDOM = np.random.default_rng(7)
X, NUMBERS = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[NUMBERS]
WEIGHTS = RANDOM.integers(1, 4, 150).astype(float)


def objective(
    model: LogisticRegression, x: np.ndarray, labels: np.ndarray, weights: Any = None, factors: Any = 1
) -> float:
    """Return the objective of a fitted model, divided by C, from its definition. labels: numbers of classes."""
    scores = x @ model.coef_.T + model.intercept_
    weights = np.ones(len(x)) if weights is None else weights
    loss = weights @ (logsumexp(scores, axis=1) - scores[np.arange(len(x)), labels])
    share = model.l1_ratio
    penalty = factors * (share * np.abs(model.coef_) + (1 - share) / 2 * model.coef_**2)
    return float(loss + penalty.sum() / model.C)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize(("C", "share"), [(0.05, 1.0), (0.5, 1.0), (0.5, 0.4)])
def test_no_model_is_better(C: float, share: float, weights: Any) -> None:
    """Check the optimality conditions (Karush, Kuhn, Tucker) for each coefficient and intercept."""
    ours = LogisticRegression(C=C, l1_ratio=share, tol=1e-7).fit(X, Y, weights)
    assert ours.objective_ == pytest.approx(objective(ours, X, NUMBERS, weights))
    assert ours.dual_gap_ <= 1e-7 * ours.null_loss_
    probabilities = softmax(X @ ours.coef_.T + ours.intercept_, axis=1)
    np.testing.assert_allclose(ours.predict_proba(X), probabilities)
    rows = np.ones(150) if weights is None else weights
    residuals = rows[:, None] * ((NUMBERS[:, None] == np.arange(3)) - probabilities)
    np.testing.assert_allclose(residuals.sum(axis=0), 0, atol=1e-4)
    slopes = residuals.T @ X - (1 - share) / C * ours.coef_
    used = ours.coef_ != 0
    assert used.any()
    assert not used.all()
    np.testing.assert_allclose(slopes[used], share / C * np.sign(ours.coef_[used]), atol=2e-3 / C)
    assert np.abs(slopes[~used]).max() <= share / C * 1.001


def test_models_are_those_of_scikit_learn() -> None:
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for share in (1.0, 0.5):
        ours = LogisticRegression(C=0.3, l1_ratio=share, tol=1e-7).fit(scaled, Y)
        theirs = linear_model.LogisticRegression(C=0.3, l1_ratio=share, solver="saga", tol=1e-7, max_iter=50_000)
        theirs.fit(scaled, Y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4)
        assert ours.predict(scaled).tolist() == theirs.predict(scaled).tolist()
        np.testing.assert_allclose(ours.predict_proba(scaled), theirs.predict_proba(scaled), atol=1e-4)
        assert ours.score(scaled, Y) == theirs.score(scaled, Y)


def test_every_form_and_parameter(tmp_path: Path) -> None:
    """Fit digits as sparse, dense and on-disk designs, by several threads, from a warm start, with penalty factors."""
    x, labels = load_digits(return_X_y=True)
    x, labels = x[:400, x[:400].any(axis=0)].astype(np.float32), labels[:400]
    factors = np.where(np.arange(x.shape[1]) == 20, 0.0, 1.5)
    options: dict[str, Any] = {"C": 0.02, "tol": 1e-7, "penalty_factor": factors}
    ours = LogisticRegression(**options, n_jobs=1, warm_start=True).fit(x, labels)
    least = objective(ours, x, labels, factors=factors)
    assert least == pytest.approx(ours.objective_)
    assert ours.intercept_.sum() == pytest.approx(0, abs=1e-8)
    before = ours.n_iter_
    assert objective(ours.fit(x, labels), x, labels, factors=factors) == pytest.approx(least, rel=1e-6)
    assert ours.n_iter_ < before
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_matrix(x))
    np.savetxt(tmp_path / "y.txt", labels, fmt="%d")
    request = DesignRequest("npz", [str(tmp_path / "x.npz")], str(tmp_path / "data"), target=str(tmp_path / "y.txt"))
    ingest_design(request, workers=1)
    for given in (sparse.csc_array(x), x.astype(np.float64), tmp_path / "data"):
        other = LogisticRegression(**options).fit(*((given,) if isinstance(given, Path) else (given, labels)))
        assert objective(other, x, labels, factors=factors) == pytest.approx(least, rel=1e-6)
        np.testing.assert_allclose(other.predict_proba(given), ours.predict_proba(x), atol=1e-3)
    standardised = LogisticRegression(C=0.05, tol=1e-7, standardize=True).fit(x, labels)
    deviations = x.std(axis=0, dtype=np.float64)
    scaled = LogisticRegression(C=0.05, tol=1e-7).fit(x / deviations, labels)
    np.testing.assert_allclose(standardised.predict_proba(x), scaled.predict_proba(x / deviations), atol=1e-3)


def test_a_path_has_the_models_of_single_fits() -> None:
    path = LogisticRegression(tol=1e-7).path(X, Y, Cs=6, eps=0.01)
    assert path.coefs.shape == (3, X.shape[1], 6)
    assert not path.coefs[:, :, 0].any()
    assert path.dual_gaps.max() <= 1e-7 * len(Y) * np.log(3)
    for place, c in enumerate(path.alphas):
        single = LogisticRegression(C=c, tol=1e-7).fit(X, Y)
        np.testing.assert_allclose(path.coefs[:, :, place], single.coef_, atol=1e-3)
        np.testing.assert_allclose(path.intercepts[:, place], single.intercept_, atol=1e-3)
    np.testing.assert_allclose(path.intercepts.sum(axis=0), 0, atol=1e-8)
    with pytest.warns(UserWarning, match="did not converge: the duality gap stays at .*, above the target 1.65e-"):
        exact = LogisticRegression(tol=1e-15).path(X, Y, Cs=[0.05])
    assert 0 < exact.dual_gaps[0] < 1e-5


def test_cross_validation_takes_the_loss_of_scikit_learn() -> None:
    """With folds of fewer rows, for which C is divided by their share of all rows."""
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, Y))
    ours = LogisticRegressionCV(Cs=[0.05, 0.3], l1_ratio=[0.5, 1.0], cv=folds, tol=1e-8).fit(X, Y)
    for place, c in enumerate(ours.Cs_):
        for fold, (train, test) in enumerate(folds):
            peer = linear_model.LogisticRegression(
                C=c * len(Y) / train.size, l1_ratio=ours.l1_ratio_, solver="saga", tol=1e-8, max_iter=50_000
            )
            loss = log_loss(Y[test], peer.fit(X[train], Y[train]).predict_proba(X[test]))
            assert ours.loss_path_[place, fold] == pytest.approx(loss, rel=1e-3)
    assert ours.Cs_[ours.mean_error_.argmin()] == ours.C_
    assert ours.coef_path_.shape == (3, X.shape[1], 2)
    single = LogisticRegression(C=ours.C_, l1_ratio=ours.l1_ratio_, tol=1e-8).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, single.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.predict_proba(X), single.predict_proba(X), atol=1e-3)
    assert ours.score(X, Y) == single.score(X, Y) > 0.9


def test_classes_are_weighted() -> None:
    """Compare balanced class weights with the sample weights that they stand for."""
    rows = np.r_[0:50, 50:70, 100:110]
    ours = LogisticRegression(C=0.5, tol=1e-7, class_weight="balanced").fit(X[rows], Y[rows])
    weights = compute_sample_weight("balanced", Y[rows])
    same = LogisticRegression(C=0.5, tol=1e-7).fit(X[rows], Y[rows], weights)
    np.testing.assert_allclose(ours.coef_, same.coef_, atol=1e-4)
    assert cross_val_score(LogisticRegression(n_jobs=1), X, Y, cv=3).mean() > 0.9


def test_what_cannot_be_solved_is_told() -> None:
    with pytest.raises(RequestError, match="y must have 3 classes among the rows whose weight is above 0, got 2"):
        LogisticRegression().fit(X, Y, (Y != "setosa").astype(float))
    with pytest.raises(RequestError, match="positive=True can only be used with two classes, got 3"):
        LogisticRegression(positive=True).path(X, Y)
    with pytest.raises(RequestError, match="without the rows of fold 0 there are rows of only 2 of 3 classes"):
        LogisticRegressionCV(cv=KFold(3)).fit(X, Y)
    with pytest.raises(WorkFailed, match=r"max_iter=1 rounds per penalty solved only \d of the 20 penalties"):
        LogisticRegression(max_iter=1).path(X, Y, Cs=20, eps=1e-4)
    with pytest.warns(UserWarning, match="did not converge: the duality gap is .* after max_iter=2 iterations"):
        LogisticRegression(C=10.0, max_iter=2).fit(X, Y)
    empty = LogisticRegression(C=1e-6).fit(X, Y)
    assert not empty.coef_.any()
    np.testing.assert_allclose(empty.predict_proba(X), 1 / 3)
