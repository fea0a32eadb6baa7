"""Regression of the prevalence of topics on several columns, against simulated draws of mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from blocks import RequestError
from samplers.topics.group_comparison import compare_groups
from samplers.topics.topic_regression import regress_on
from tests.topic_models import dense, random_model

DOCUMENTS = 200


@pytest.fixture(scope="module")
def columns() -> dict[str, list[Any]]:
    rng = np.random.default_rng(4)
    kinds = rng.choice(["a", "b", "c"], DOCUMENTS).tolist()
    years = (2000 + rng.integers(0, 20, DOCUMENTS)).tolist()
    years[3], kinds[5] = None, None
    return {"kind": kinds, "year": years}


def test_coefficients_are_those_of_the_method_of_composition(columns: dict[str, list[Any]]) -> None:
    """As estimateEffect: mixtures are drawn, each draw is regressed, coefficients are drawn from their distribution."""
    model, rng, draws = random_model(), np.random.default_rng(1), 1500
    counts = dense(model.documents, model.topics)
    used = np.array([year is not None for year in columns["year"]]) & (counts.sum(axis=1) > 0)
    used &= np.array([kind is not None for kind in columns["kind"]])
    kinds, years = np.array(columns["kind"], object)[used], np.array(columns["year"], object)[used].astype(float)
    x = np.column_stack((np.ones(used.sum()), kinds == "b", kinds == "c", years)).astype(float)
    theta = rng.standard_gamma(counts[used] + model.alpha, (draws, int(used.sum()), model.topics))
    theta /= theta.sum(axis=2, keepdims=True)
    shift = np.eye(4)
    shift[0, 3] = -years.mean()
    centred = x @ np.array([[1, 0, 0, -years.mean()], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    inverse = np.linalg.inv(centred.T @ centred)
    coefficients = inverse @ centred.T @ theta  # (draws, p, K)
    residuals = theta - centred @ coefficients
    spread = np.sqrt((residuals**2).sum(axis=1) / (len(x) - 4))
    noise = np.linalg.cholesky(inverse) @ rng.standard_normal(coefficients.shape) * spread[:, None]
    estimates = shift @ (coefficients + noise)
    found = regress_on(model, columns, level=0.9)
    assert found.terms == ["(intercept)", "kind: b", "kind: c", "year"]
    assert (found.documents, found.without_value) == (used.sum(), 2)
    exact = (counts[used] + model.alpha) / (counts[used].sum(axis=1) + model.alpha.sum())[:, None]
    np.testing.assert_allclose(found.estimate, np.linalg.lstsq(x, exact, rcond=None)[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.error, estimates.std(axis=0), rtol=0.08)
    margin = scipy.stats.t.ppf(0.95, len(x) - 4) * found.error
    np.testing.assert_allclose(found.high - found.estimate, margin, rtol=1e-6)
    np.testing.assert_allclose(found.p, 2 * scipy.stats.t.sf(abs(found.t), len(x) - 4), rtol=1e-6)


def test_a_regression_on_groups_has_their_means(columns: dict[str, list[Any]]) -> None:
    model = random_model()
    found = regress_on(model, {"kind": columns["kind"]})
    groups = compare_groups(model, columns["kind"])
    means = found.estimate[0] + np.vstack((np.zeros(model.topics), found.estimate[1:]))
    np.testing.assert_allclose(means, groups.prevalence, rtol=1e-9)


def test_a_model_of_summed_states_has_the_errors_of_one(columns: dict[str, list[Any]]) -> None:
    model = random_model()
    once = regress_on(model, columns)
    model.documents = model.documents._replace(counts=model.documents.counts * np.uint32(3))
    model.alpha, model.states = 3 * model.alpha, 3
    summed = regress_on(model, columns)
    np.testing.assert_allclose(summed.estimate, once.estimate, rtol=1e-9)
    np.testing.assert_allclose(summed.error, once.error, rtol=1e-9)


def test_columns_that_do_not_determine_the_coefficients_are_refused(columns: dict[str, list[Any]]) -> None:
    twice = {"year": columns["year"], "again": [None if year is None else 2 * year for year in columns["year"]]}
    with pytest.raises(RequestError, match="the terms are linearly dependent"):
        regress_on(random_model(), twice)
    with pytest.raises(RequestError, match="the terms are linearly dependent"):
        regress_on(random_model(), {"constant": [1.0] * DOCUMENTS})
    with pytest.raises(RequestError, match="each of columns must have a value for each of the 200 training documents"):
        regress_on(random_model(), {"short": [1.0]})
