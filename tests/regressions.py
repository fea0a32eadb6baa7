"""References for solvers of regressions: objective, duality gap and optimality conditions in plain numpy, and small
problems of every kind.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from scipy.special import expit, xlogy
from sklearn.exceptions import ConvergenceWarning

from blocks.errors import RequestError
from samplers.regression.data.features import features_of_matrix
from samplers.regression.solver.sparse_regression import LinearModel, SparseRegression

RATIOS = (0.5, 0.1, 0.01)


class RandomRegression(NamedTuple):
    """A random problem.

    x: float64 (n, p).
    y: (n,). The other fields are the options of `SparseRegression`.
    """

    x: np.ndarray
    y: np.ndarray
    loss: str
    options: dict[str, Any]

    @property
    def weights(self) -> np.ndarray:
        found = self.options.get("weights")
        return np.ones(len(self.y)) if found is None else found

    @property
    def penalties(self) -> tuple[np.ndarray, np.ndarray]:
        """Return l1 and l2 of each column at lambda 1."""
        p, share = self.x.shape[1], self.options.get("share", 1.0)
        factors = self.options.get("factors")
        factors = np.ones(p) if factors is None else factors
        scales = np.ones(p)
        if self.options.get("standardize"):
            mean = np.average(self.x, axis=0, weights=self.weights)
            scales = np.sqrt(np.average((self.x - mean) ** 2, axis=0, weights=self.weights))
            scales[scales <= 1e-5 * np.sqrt(np.average(self.x**2, axis=0, weights=self.weights))] = 0  # it is constant
        return share * factors * scales, (1 - share) * factors * scales**2


def solver(problem: RandomRegression, **held) -> SparseRegression:
    """Return the solver of a problem; skips examples with lambda_max 0."""
    x = held.pop("x", np.asfortranarray(problem.x))
    try:
        found = SparseRegression(features_of_matrix(x, **held), problem.y, problem.loss, **problem.options)
        assert found.largest > 0
        return found
    except RequestError as error:
        assume("lambda_max is 0" not in error.what)
        raise


def scores(problem: RandomRegression, model: LinearModel) -> np.ndarray:
    return problem.x @ model.coefficients + model.intercept


def objective(problem: RandomRegression, model: LinearModel, lam: float) -> float:
    z, y, (l1, l2) = scores(problem, model), problem.y, problem.penalties
    if problem.loss == "squared":
        rows = 0.5 * (y - z) ** 2
    elif problem.loss == "logistic":
        rows = np.logaddexp(0, z) - y * z
    else:
        rows = np.exp(z) - y * z + xlogy(y, y) - y
    b = model.coefficients
    return float(problem.weights @ rows + lam * (l1 @ np.abs(b) + 0.5 * l2 @ b**2))


def slopes(problem: RandomRegression, model: LinearModel) -> tuple[np.ndarray, np.ndarray]:
    """Return minus the derivatives of the loss with respect to the scores and the coefficients."""
    z = scores(problem, model)
    fitted = {"squared": lambda: z, "logistic": lambda: expit(z), "poisson": lambda: np.exp(z)}[problem.loss]()
    by_score = problem.weights * (problem.y - fitted)
    return by_score, problem.x.T @ by_score


def violation(problem: RandomRegression, model: LinearModel, lam: float) -> float:
    """Return the largest violation of the optimality conditions, relative to the largest slope at zero coefficients."""
    by_score, by_coefficient = slopes(problem, model)
    l1, l2 = (lam * penalty for penalty in problem.penalties)
    b = model.coefficients
    smooth = by_coefficient - l2 * b
    positive = problem.options.get("positive", False)
    assert not positive or b.min() >= 0
    free = smooth if positive else np.abs(smooth)
    away = np.where(b != 0, np.abs(smooth - l1 * np.sign(b)), np.maximum(free - l1, 0))
    away[(l1 == 0) & (b == 0) & bool(problem.options.get("standardize"))] = 0  # constant columns are left out
    sizes = problem.weights * np.maximum(np.abs(problem.y), 1.0)
    of_intercept = abs(by_score.sum()) if problem.options.get("intercept", True) else 0.0
    return float(max(away.max() / (np.abs(problem.x).T @ sizes).max(), of_intercept / sizes.sum()))


def gap(problem: RandomRegression, model: LinearModel, lam: float) -> float:
    """Return the duality gap for problems without unpenalized columns."""
    by_score, by_coefficient = slopes(problem, model)
    l1, l2 = (lam * penalty for penalty in problem.penalties)
    used = l1 > 0
    slope = by_coefficient - l2 * model.coefficients
    steep = (slope if problem.options.get("positive") else np.abs(slope))[used] / l1[used]
    scale = 1 / max(1.0, steep.max(initial=0.0))
    w, y, theta = problem.weights, problem.y, scale * by_score
    some = w > 0
    if problem.loss == "squared":
        dual = theta @ y - 0.5 * (theta[some] ** 2 / w[some]).sum()
    elif problem.loss == "poisson":
        q = np.maximum(y[some] - theta[some] / w[some], 0.0)
        dual = (w[some] * (q - xlogy(q, q) + xlogy(y[some], y[some]) - y[some])).sum()
    else:
        q = np.clip(np.abs(theta[some]) / w[some], 1e-300, 1 - 1e-16)
        dual = -(w[some] * (q * np.log(q) + (1 - q) * np.log1p(-q))).sum()
    return objective(problem, model, lam) - (dual - 0.5 * scale**2 * float(l2 @ model.coefficients**2))


@st.composite
def problems(draw: st.DrawFn, loss: str = "squared") -> RandomRegression:
    """Draw problems of every shape: more rows or more columns, one row, and constant, zero and duplicate columns."""
    n, p = draw(st.integers(2 if loss == "logistic" else 1, 14)), draw(st.integers(1, 14))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = random.standard_normal((n, p)) * (random.random((n, p)) < draw(st.sampled_from([0.3, 1.0])))
    for kind in draw(st.lists(st.sampled_from(["constant", "zero", "double", "shifted"]), max_size=3)):
        j, k = random.integers(0, p, 2)
        x[:, j] = {"constant": 1.5, "zero": 0.0, "double": x[:, k], "shifted": x[:, j] + 100}[kind]
    x = x.astype(np.float32).astype(np.float64)
    y = random.standard_normal(n) + 1
    if loss == "logistic":
        y = (y > np.median(y)).astype(float)
        y[0] = 1 - y[1]
    elif loss == "poisson":
        y = random.poisson(np.exp(y)).astype(float)
        y[0] += 1
    options: dict[str, Any] = {
        "intercept": draw(st.booleans()),
        "standardize": draw(st.booleans()),
        "share": draw(st.sampled_from([1.0, 1.0, 0.6])),
    }
    if draw(st.booleans()):
        options["weights"] = random.random(n) + 0.1
    if draw(st.booleans()):
        options["positive"] = True
    if draw(st.booleans()):
        options["factors"] = random.choice([0.5, 1.0, 2.0], p)
    return RandomRegression(x, y, loss, options)


def solve(problem: RandomRegression, ratios=RATIOS, tolerance=1e-9, **held) -> tuple[np.ndarray, list[LinearModel]]:
    """Return some lambdas, and the solution for each."""
    found = solver(problem, **held)
    lambdas = found.largest * np.array(ratios)
    return lambdas, [found.model(solution) for solution in found.path(lambdas, tolerance)]


def null_loss(problem: RandomRegression) -> float:
    return solver(problem).nothing.fit.loss


def fit(peer: Any, *data: Any, **options: Any) -> None:
    """Fit a problem; skips examples where nearly equal columns keep the solver from finishing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            peer.fit(*data, **options)
        except ConvergenceWarning:
            assume(False)
