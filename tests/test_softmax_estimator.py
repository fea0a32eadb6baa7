"""The estimator of multi-class regression: the steps of the program, and the conventions of scikit-learn."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from corpora import InProcessProgram
from sample_sets import drawn, samples_of
from scipy import sparse
from sklearn.utils.estimator_checks import check_estimator

from blocks import RequestError
from ooc.workers.worker import ProgramSpec
from samplers import SoftmaxRegression

X, LABELS = drawn(400, 1)
NAMES = np.array(["a", "b", "c"])[np.searchsorted([0, 2, 5], LABELS)]
EXPECTED_FAILURES = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
        "check_sample_weights_invariance",
    ),
    "a weight makes one step longer; a row that is repeated is another step, at another place of the order",
)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*does not inherit from:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_scikit_learn_checks(loss: str) -> None:
    """All but those that no algorithm passes that goes from sample to sample."""
    results = check_estimator(SoftmaxRegression(loss), on_fail=None, expected_failed_checks=EXPECTED_FAILURES)
    assert [result for result in results if result["status"] not in ("passed", "skipped", "xfail")] == []
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # only if SCIPY_ARRAY_API is set


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
def test_it_takes_the_steps_of_one_worker(tmp_path: Path, loss: str) -> None:
    """Of samples in the order in which a run has them. Two loops are compiled, whose sums may be in other orders."""
    samples = samples_of(tmp_path / "samples", X, LABELS)
    order = np.concatenate([samples.block(number).rows for number in range(samples.block_count)]).astype(np.int64)
    options = {"loss": loss, "rate": 0.3, "regularization": 0.01}
    estimator = SoftmaxRegression(**options)
    spec = ProgramSpec("samplers.regression.softmax.program:SoftmaxProgram", options | {"parallelism": 1})
    with InProcessProgram(samples, spec) as chain:
        chain.iterate()
        weights = chain.shared["weights"].copy()
    estimator.partial_fit(X[order], LABELS[order], classes=[0, 2, 5])
    close = {"rtol": 1e-6, "atol": 1e-6}  # two samples exchanged are off by 6e-2
    np.testing.assert_allclose(estimator.coef_, weights[:-1].T, **close)
    np.testing.assert_allclose(estimator.intercept_, weights[-1], **close)


def test_what_it_predicts_is_of_its_scores() -> None:
    estimator = SoftmaxRegression(max_iter=5, random_state=0).fit(X, NAMES)
    assert estimator.n_iter_ == 5
    assert estimator.score(X, NAMES) > 0.75
    scores = X @ estimator.coef_.T + estimator.intercept_
    np.testing.assert_allclose(estimator.decision_function(X), scores, rtol=1e-6)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(estimator.predict_proba(X), shares / shares.sum(axis=1, keepdims=True), rtol=1e-6)
    assert estimator.predict(X).tolist() == estimator.classes_[scores.argmax(axis=1)].tolist()
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.partial_fit(X, NAMES).coef_, estimator.partial_fit(X, NAMES).coef_)


def test_of_two_classes_scores_are_of_the_second() -> None:
    two = np.flatnonzero(LABELS != 5)
    estimator = SoftmaxRegression(random_state=0).fit(X[two], LABELS[two])
    assert estimator.coef_.shape == (1, 12)
    assert estimator.decision_function(X).shape == (400,)
    found = estimator.predict_proba(X)[:, 1] > 0.5
    assert np.array_equal(found, estimator.predict(X) == 2)


@pytest.mark.parametrize(
    "form", [sparse.csr_array, sparse.coo_array, pd.DataFrame, list], ids=lambda each: each.__name__
)
def test_every_form_of_the_data_gives_the_same(form: Any) -> None:
    estimator = SoftmaxRegression(random_state=1).fit(form(X), LABELS)
    assert np.array_equal(estimator.coef_, SoftmaxRegression(random_state=1).fit(X, LABELS).coef_)
    np.testing.assert_allclose(estimator.decision_function(form(X)), estimator.decision_function(X), rtol=1e-5)


def test_batches_are_a_pass_and_a_warm_start_goes_on() -> None:
    parts, whole = SoftmaxRegression(), SoftmaxRegression(shuffle=False, max_iter=1, warm_start=True)
    for some in np.array_split(np.arange(400), 7):
        parts.partial_fit(X[some], NAMES[some], classes=["a", "b", "c"])
    assert np.array_equal(parts.coef_, whole.fit(X, NAMES).coef_)
    assert np.array_equal(parts.partial_fit(X, NAMES).coef_, whole.fit(X, NAMES).coef_)
    assert whole.n_iter_ == 2


def test_a_sample_without_weight_is_none() -> None:
    weights = np.random.default_rng(0).integers(0, 2, 400).astype(float)
    there = weights > 0
    weighted = SoftmaxRegression().partial_fit(X, NAMES, ["a", "b", "c"], weights)
    alone = SoftmaxRegression().partial_fit(X[there], NAMES[there], ["a", "b", "c"])
    assert np.array_equal(weighted.coef_, alone.coef_)


def test_what_it_cannot_learn_is_refused() -> None:
    for estimator, labels, told in [
        (SoftmaxRegression("best"), NAMES, "loss: unknown loss 'best'"),
        (SoftmaxRegression(rate=0.0), NAMES, "rate must be a finite number"),
        (SoftmaxRegression(max_iter=0), NAMES, "max_iter must be an integer of at least 1, got 0"),
        (SoftmaxRegression(), np.full(400, "a"), "y must have at least 2 classes, got 1 class:"),
        (SoftmaxRegression(), X[:, 0] + 0.5, "Unknown label type"),
    ]:
        with pytest.raises(RequestError, match=told):
            estimator.fit(X, labels)
    with pytest.raises(RequestError, match="classes must be passed"):
        SoftmaxRegression().partial_fit(X, NAMES)
    with pytest.raises(RequestError, match="y has the class 'c'; expected one of"):
        SoftmaxRegression().partial_fit(X, NAMES, classes=["a", "b"])
    with pytest.raises(AttributeError, match="predict_proba is only for loss='softmax'"):
        SoftmaxRegression("hinge").fit(X, NAMES).predict_proba(X)


def test_weights_that_are_not_finite_are_not_taken() -> None:
    estimator = SoftmaxRegression("squared", rate=1e38, max_iter=1)
    with pytest.raises(RequestError, match="no longer finite"):
        estimator.fit(X, NAMES)
    assert not hasattr(estimator, "coef_")
