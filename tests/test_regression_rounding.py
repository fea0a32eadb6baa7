"""Sparse regressions where rounding limits the gap that can be reached."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from regressions import RandomRegression, gap, null_loss, solve, violation

from blocks.errors import WorkFailed
from samplers.regression.solver.sparse_regression import LinearModel


def cancelling(noise: np.ndarray) -> RandomRegression:
    """The last digits of two coefficients, times 100, are more than a small gap allows of the scores."""
    x = np.array([[0.12573022, 0.10490011, 0, 0, 0, 0], np.full(6, 100), 100 + noise], np.float32).T
    return RandomRegression(x.astype(np.float64), np.array([0, 1, 0, 1, 1, 0.0]), "logistic", {"intercept": False})


def test_coefficients_that_cancel_are_found_to_their_last_digits():
    problem = cancelling(np.array([0.64041901, 0, 0, 0, -1.24591064, 0]))
    for lam, model in zip(*solve(problem, tolerance=1e-12), strict=True):
        assert gap(problem, model, lam) <= 1e-9 * null_loss(problem)
        assert violation(problem, model, lam) < 1e-10


def with_another_last_digit(model: LinearModel) -> list[LinearModel]:
    """Those with one coefficient the next larger or smaller number."""
    b = model.coefficients
    every = [(j, end) for j in range(b.size) for end in (-np.inf, np.inf)]
    return [LinearModel(model.intercept, np.where(np.arange(b.size) == j, np.nextafter(b, end), b)) for j, end in every]


@pytest.mark.parametrize("seed", range(20))
def test_a_small_gap_is_reached_whatever_coefficients_that_cancel_are_rounded_to(seed):
    """Where what they are rounded to leaves a larger one, one more digit in the last place would leave more still."""
    tolerance, problem = 1e-12, cancelling(np.random.default_rng(seed).standard_normal(6) * [1, 0, 0, 0, 1, 0])
    for lam, model in zip(*solve(problem, tolerance=tolerance), strict=True):
        nearby = max(gap(problem, near, lam) for near in with_another_last_digit(model))
        assert gap(problem, model, lam) <= min(max(tolerance * null_loss(problem), nearby), 1e-8 * null_loss(problem))


def test_an_intercept_whose_last_digit_is_coarse_leaves_no_larger_gap():
    """It is near 358, as the column is far from 0: the next number changes the sum of the residual by 4e-14."""
    x = np.array([[100, 100, 99.0062027, 100]], np.float32).T.astype(np.float64)
    problem = RandomRegression(x, np.array([1.0, 0, 1, 0]), "logistic", {"intercept": True})
    for lam, model in zip(*solve(problem, tolerance=1e-13), strict=True):
        assert gap(problem, model, lam) <= 1e-12 * null_loss(problem)


def test_columns_that_are_equally_good_but_for_rounding_do_not_stand_in_the_way():
    """Of two rows every column explains as much for its penalty, but for the last digits of what they are scaled by."""
    first = [6.19453967e-01, 1.23135102e00, 9.94210510e01, -1.44077778e00, -4.70427454e-01, 6.01045555e-03]
    second = [-8.98568273e-01, 8.95542324e-01, 9.99642792e01, -4.68771815e-01, -2.94025868e-01, 8.41517925e-01]
    x = np.array([first, second], np.float32).astype(np.float64)
    problem = RandomRegression(x, np.array([0.0, 1.0]), "logistic", {"intercept": False, "standardize": True})
    for lam, model in zip(*solve(problem, tolerance=1e-12), strict=True):
        assert gap(problem, model, lam) <= 1e-10 * null_loss(problem)
        assert np.count_nonzero(model.coefficients) <= 2


def test_a_gap_that_rounding_does_not_allow_is_not_tried_for_ever():
    """Of this problem Newton's method comes round to the same few points, whose objectives differ by rounding."""
    problem = cancelling(np.random.default_rng(142).standard_normal(6) * [1, 0, 0, 0, 1, 0])
    with contextlib.suppress(WorkFailed):
        solve(problem, tolerance=1e-14)
