"""Correlations of columns and residuals: none is above what is known of it, whatever was read, and by whom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regressions import problems, solver

from samplers.regression.data.features import features_of_matrix
from samplers.regression.solver import correlations
from samplers.regression.solver.sparse_regression import SparseRegression
from samplers.regression.threads import thread_pool


@settings(max_examples=40)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_correlations_are_never_above_their_bounds(problem, seed):
    """As residuals come and go, more of them than are kept; those of columns that were read are exact."""
    random = np.random.default_rng(seed)
    found = solver(problem)
    regression, p = found.regression, problem.x.shape[1]
    l1 = random.random(p)
    known = correlations.ColumnCorrelations(regression.features, found.loss.roots, regression.norms, l1)
    roots = np.sqrt(problem.weights)
    residual = found.nothing.fit.residual
    for _ in range(40):
        noise = random.standard_normal(len(problem.y)) * random.choice([1e-3, 0.1, 10.0])
        residual = found.loss.fit(noise, np.zeros(len(found.loss.free))).residual + 0.5 * residual
        candidates = np.flatnonzero((random.random(p) < random.choice([0.7, 1.0])) & (regression.norms > 0))
        exact = problem.x.T @ (roots * residual)
        lam = random.choice([0.0, random.random()]) * np.abs(exact).max()  # all are read, or few
        seen = known.see(correlations.ResidualCorrelationRequest(residual, lam, np.empty(0, np.int64)), candidates)
        rounding = 1e-9 * (1 + np.abs(exact).max())
        np.testing.assert_allclose(seen.values, exact[seen.chosen], atol=rounding)
        allowed = np.setdiff1d(candidates, seen.chosen)
        assert (np.abs(exact[allowed]) <= lam * l1[allowed] + rounding).all()
        spare = random.random() * lam
        possible = known.possible(residual, candidates, np.empty_like(candidates), lam, spare)
        others = np.setdiff1d(candidates, possible)
        assert (np.abs(exact[others]) <= lam * l1[others] - spare * regression.norms[others] + rounding).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), threads=st.integers(1, 3), quantile=st.floats(0.0, 1.0))
def test_threads_find_together_which_correlations_may_be_too_large(seed, threads, quantile):
    """Numbers of columns are written elsewhere, or over those of the candidates."""
    random = np.random.default_rng(seed)
    x, y, residual = random.standard_normal((6, 5000)), *random.standard_normal((2, 6))
    found = SparseRegression(features_of_matrix(np.asfortranarray(x), threads), y, intercept=False)
    known, norms = found.regression.correlations, found.regression.norms
    known.see(correlations.ResidualCorrelationRequest(y, 0.0, np.empty(0, np.int64)), found.regression.usable)
    lengths = np.linalg.norm(y), np.linalg.norm(residual)
    angles = np.arccos(np.abs(x.T @ y) / norms / lengths[0]) - np.arccos(abs(y @ residual) / np.prod(lengths))
    most = np.cos(angles) * norms * lengths[1]
    candidates = np.flatnonzero(random.random(5000) < random.choice([0.01, 0.3, 1.0]))
    lam = np.quantile(most[candidates], quantile)
    expected = candidates[most[candidates] > lam]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thread_pool, "_FEW", 0)
        possible = known.possible(residual, candidates, np.empty_like(candidates), lam)
        over = known.possible(residual, candidates, candidates, lam)
    assert np.isin(expected, possible).all()
    if quantile > 0.4:  # less than most of them
        assert (most[possible] > 0.9999 * lam).all()
        assert (np.diff(possible) > 0).all()
    np.testing.assert_array_equal(over, possible)


@pytest.mark.long
@settings(max_examples=200)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_what_is_noted_late_is_as_if_it_had_been_at_once(problem, seed):
    """To ask what is known has all noted."""
    random = np.random.default_rng(seed)
    found = solver(problem)
    regression, p = found.regression, problem.x.shape[1]
    given = regression.features, found.loss.roots, regression.norms, np.ones(1)
    late, at_once = correlations.ColumnCorrelations(*given), correlations.ColumnCorrelations(*given)
    residual = found.nothing.fit.residual
    for _ in range(30):
        noise = random.standard_normal(len(problem.y)) * random.choice([1e-3, 1.0])
        residual = found.loss.fit(noise, np.zeros(len(found.loss.free))).residual + 0.5 * residual
        candidates = late.usable[random.random(late.usable.size) < random.choice([0.7, 1.0])]
        lam = random.choice([0.0, random.random()]) * np.abs(problem.x.T @ residual).max()
        some = random.choice(candidates, random.integers(candidates.size + 1), replace=False)
        wanted = correlations.ResidualCorrelationRequest(
            residual, lam, np.sort(some) if random.random() < 0.3 else some[:0]
        )
        what, step = random.integers(4), (residual, lam, random.choice([1.5, 2.1]) * lam, candidates, p // 2)
        answers = []
        for known in (late, at_once):
            if what == 0:
                answers.append(known.strong(*step))
            elif what == 1:
                answers.append(known.possible(residual, candidates, np.empty_like(candidates), lam))
            elif what == 2:
                (seen,) = known.see_all([wanted], candidates)
                known.learn(residual, seen)
                answers.append(seen.chosen)
            else:
                answers.append(known.see(wanted, candidates).chosen.copy())
        at_once.arrays()
        np.testing.assert_array_equal(*answers)
    for one, other in zip(late.arrays().values(), at_once.arrays().values(), strict=True):
        np.testing.assert_array_equal(one, other)
    read = late.see(correlations.ResidualCorrelationRequest(residual, 0.0, late.usable[:0]), late.usable).values.copy()
    cosines = read / (regression.norms[late.usable] * np.linalg.norm(residual))
    np.testing.assert_allclose(late.arrays()["known_cosines"][late.usable], cosines, atol=1e-6)


@settings(max_examples=40)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1), several=st.integers(1, 4))
def test_what_is_seen_of_several_residuals_in_one_pass_is_as_of_each(problem, seed, several):
    random = np.random.default_rng(seed)
    found = solver(problem)
    regression, p = found.regression, problem.x.shape[1]
    l1 = random.random(p)
    known = correlations.ColumnCorrelations(regression.features, found.loss.roots, regression.norms, l1)
    every, none = np.flatnonzero(regression.norms > 0), np.empty(0, np.int64)
    for _ in range(8):
        scores = random.standard_normal((several, len(problem.y)))
        residuals = [found.loss.fit(one, np.zeros(len(found.loss.free))).residual for one in scores]
        exact = [problem.x.T @ (np.sqrt(problem.weights) * residual) for residual in residuals]
        lambdas = [random.random() * np.abs(one).max() for one in exact]
        wanted = [
            correlations.ResidualCorrelationRequest(residual, lam, none)
            for residual, lam in zip(residuals, lambdas, strict=True)
        ]
        before = known.columns_read
        for seen, right, lam in zip(known.see_all(wanted, every), exact, lambdas, strict=True):
            rounding = 1e-9 * (1 + np.abs(right).max())
            np.testing.assert_allclose(seen.values, right[seen.chosen], atol=rounding)
            allowed = np.setdiff1d(every, seen.chosen)
            assert (np.abs(right[allowed]) <= lam * l1[allowed] + rounding).all()
        assert known.columns_read - before <= p
