"""Contestants of `benchmarks.regression`, each in a separate process with the problem memory-mapped.

    python -m benchmarks.regression_contestants NAME DIRECTORY WORKERS

Requests are lines on standard input, {"levels": [...], "tolerance": t}; an answer is a line on standard output: how
many seconds the solutions for all levels took, how many of the processor, how many coefficients and what gap each has.
What a tolerance means is up to each of them.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from benchmarks.regression_problems import RegressionProblem, read


class LevelSolutions(NamedTuple):
    """Solutions for each lambda: coefficients, float (p,) or sparse (p, 1), and the direction of the contestant's own
    dual point, float (n,), if it has one other than the residual.
    """

    coefficients: list[Any]
    duals: list[np.ndarray] | None = None


Solver = Callable[[RegressionProblem, np.ndarray, float, int], LevelSolutions]


def ooc(problem: RegressionProblem, levels: np.ndarray, tolerance: float, workers: int) -> LevelSolutions:
    from samplers.regression.data.features import features_of_matrix
    from samplers.regression.solver.sparse_regression import SparseRegression

    features = features_of_matrix(problem.x, workers)
    regression = SparseRegression(features, problem.y, problem.loss, intercept=False)
    found = [
        scipy.sparse.csc_array((one.values, one.support, [0, one.support.size]), (features.count, 1))
        for one in regression.path(levels, tolerance)
    ]
    return LevelSolutions(found)


def scikit_learn(problem: RegressionProblem, levels: np.ndarray, tolerance: float, _: int) -> LevelSolutions:
    from sklearn.linear_model import Lasso, lasso_path

    rows = problem.y.size
    if levels.size == 1:
        model = Lasso(alpha=levels[0] / rows, fit_intercept=False, tol=tolerance, max_iter=10**5, copy_X=False)
        return LevelSolutions([model.fit(problem.x, problem.y).coef_])
    return LevelSolutions(
        list(lasso_path(problem.x, problem.y, alphas=levels / rows, tol=tolerance, max_iter=10**5)[1].T)
    )


def liblinear(problem: RegressionProblem, levels: np.ndarray, tolerance: float, _: int) -> LevelSolutions:
    """Solve with LIBLINEAR through scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    options: dict[str, Any] = {"l1_ratio": 1, "solver": "liblinear", "fit_intercept": False, "max_iter": 10**4}
    models = [LogisticRegression(C=1 / level, tol=tolerance, **options) for level in levels]
    return LevelSolutions([model.fit(problem.x, problem.y).coef_[0] for model in models])


def celer(problem: RegressionProblem, levels: np.ndarray, tolerance: float, _: int) -> LevelSolutions:
    from celer import celer_path

    squared = problem.loss == "squared"
    y = problem.y if squared else 2 * problem.y - 1
    alphas = levels / y.size if squared else levels
    kind = {"pb": "lasso"} if squared else {"pb": "logreg", "use_PN": True}
    y = y.astype(problem.x.dtype)
    _, found, _, duals = celer_path(
        problem.x, y, alphas=alphas, tol=tolerance, max_iter=100, prune=1, return_thetas=True, **kind
    )
    return LevelSolutions(list(found.T), list(duals))


def skglm(problem: RegressionProblem, levels: np.ndarray, tolerance: float, _: int) -> LevelSolutions:
    from skglm import Lasso, SparseLogisticRegression

    y = problem.y.astype(problem.x.dtype) if problem.loss == "squared" else 2 * problem.y - 1
    kind = Lasso if problem.loss == "squared" else SparseLogisticRegression
    model, found = kind(fit_intercept=False, warm_start=levels.size > 1, max_iter=200), []
    for alpha in levels / y.size:
        model.set_params(alpha=alpha, tol=tolerance * alpha)  # of the largest violation of the optimality conditions
        found.append(model.fit(problem.x, y).coef_.ravel().copy())
    return LevelSolutions(found)


def adelie(problem: RegressionProblem, levels: np.ndarray, tolerance: float, workers: int) -> LevelSolutions:
    import adelie as ad

    dense = isinstance(problem.x, np.ndarray)
    make = ad.matrix.dense if dense else ad.matrix.sparse
    family = ad.glm.gaussian if problem.loss == "squared" else ad.glm.binomial
    state = ad.grpnet(
        X=make(problem.x, method="naive", n_threads=workers),
        glm=family(y=problem.y.astype(problem.x.dtype), dtype=problem.x.dtype.type),
        lmda_path=levels / problem.y.size,
        tol=tolerance,
        irls_tol=tolerance,
        n_threads=workers,
        early_exit=False,
        intercept=False,
        progress_bar=False,
    )
    return LevelSolutions(list(state.betas.toarray()))


CONTESTANTS: dict[str, Solver] = {
    "ooc": ooc,
    "scikit-learn": scikit_learn,
    "liblinear": liblinear,
    "celer": celer,
    "skglm": skglm,
    "adelie": adelie,
}
DOUBLE = "64"  # after the name of a contestant: it is given float64, as float32 does not take it far enough


def gaps(problem: RegressionProblem, found: LevelSolutions, levels: np.ndarray) -> np.ndarray:
    """Return duality gaps, float64 (k,), of summed losses, with the better of two dual points: the scaled residual, and
    the contestant's own.
    """
    coefficients = table(found.coefficients)
    residuals, losses = residuals_and_losses(problem, scores(problem, coefficients))
    scales = np.minimum(1.0, levels / largest_slopes(problem, residuals))
    bounds = dual_objectives(problem, scales * residuals)
    if found.duals:
        directions = np.stack(found.duals, axis=1).astype(np.float64)
        slopes = largest_slopes(problem, directions)
        scales = np.divide(levels, slopes, out=np.zeros(levels.size), where=slopes > 0)
        bounds = np.maximum(bounds, dual_objectives(problem, scales * directions))
    return losses + levels * np.asarray(abs(coefficients).sum(axis=0)).ravel() - bounds


def table(coefficients: list[Any]) -> scipy.sparse.csc_array:
    """Return the coefficients as an array, float64 (p, k)."""
    columns = [b if scipy.sparse.issparse(b) else b[:, None] for b in coefficients]
    return scipy.sparse.hstack([scipy.sparse.csc_array(b) for b in columns], "csc", np.float64)


def scores(problem: RegressionProblem, coefficients: scipy.sparse.csc_array) -> np.ndarray:
    """Return the scores of the rows, float64 (n, k)."""
    chosen = np.unique(coefficients.indices)
    return np.asarray(problem.x[:, chosen].astype(np.float64) @ coefficients[chosen].toarray())


def residuals_and_losses(problem: RegressionProblem, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the residuals, float64 (n, k), and losses, float64 (k,)."""
    y = problem.y[:, None]
    if problem.loss == "squared":
        return y - scores, 0.5 * ((y - scores) ** 2).sum(axis=0)
    return y - 1 / (1 + np.exp(-scores)), (np.logaddexp(0, scores) - y * scores).sum(axis=0)


def largest_slopes(problem: RegressionProblem, residuals: np.ndarray) -> np.ndarray:
    """Return max_j |x_j . residual|, float64 (k,), computed in float64 for a few columns at a time."""
    columns = problem.x.T
    return np.max(
        [
            np.abs(columns[first : first + 10_000].astype(np.float64) @ residuals).max(axis=0)
            for first in range(0, columns.shape[0], 10_000)
        ],
        axis=0,
    )


def dual_objectives(problem: RegressionProblem, points: np.ndarray) -> np.ndarray:
    """Return the dual objectives of points (n, k), float64 (k,); -inf for infeasible points."""
    y = problem.y[:, None]
    if problem.loss == "squared":
        return (points * y).sum(axis=0) - 0.5 * (points**2).sum(axis=0)
    away = np.where(y == 1, points, -points)
    q = np.clip(away, 1e-300, 1 - 1e-16)
    inside = (away.min(axis=0) >= 0) & (away.max(axis=0) <= 1)
    return np.where(inside, -(q * np.log(q) + (1 - q) * np.log1p(-q)).sum(axis=0), -np.inf)


def given_to(name: str, problem: RegressionProblem) -> RegressionProblem:
    """Return the problem in the memory layout that a contestant can use without copying."""
    x = problem.x.astype(np.float64) if name.endswith(DOUBLE) else problem.x
    if name.startswith("liblinear"):
        x = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.tocsr()
    return RegressionProblem(x, problem.y, problem.loss)


def main() -> None:
    name, directory, workers = sys.argv[1:]
    warnings.simplefilter("ignore")
    problem = read(Path(directory))
    given = given_to(name, problem)
    solver = CONTESTANTS[name.removesuffix(DOUBLE)]
    for line in sys.stdin:
        request = json.loads(line)
        levels = np.array(request["levels"])
        began = time.perf_counter(), time.process_time()
        found = solver(given, levels, request["tolerance"], int(workers))
        seconds, processor = time.perf_counter() - began[0], time.process_time() - began[1]
        answer = {
            "seconds": seconds,
            "processor_seconds": processor,
            "gaps": gaps(problem, found, levels).tolist(),
            "nonzeros": np.diff(table(found.coefficients).indptr).tolist(),
        }
        print(json.dumps(answer), file=_ANSWERS, flush=True)


if __name__ == "__main__":
    _ANSWERS, sys.stdout = sys.stdout, sys.stderr  # what the contestants print is no answer
    main()
