"""Who competes in `benchmarks.regression`, each in a process of its own that has the problem mapped.

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

from benchmarks.regression_problems import Problem, read


class Found(NamedTuple):
    """coefficients: float (p,) for each level. gaps: as the contestant knows them, of the loss as a sum; or none."""

    coefficients: list[np.ndarray]
    gaps: list[float] | None = None


Solver = Callable[[Problem, np.ndarray, float, int], Found]


def ooc(problem: Problem, levels: np.ndarray, tolerance: float, workers: int) -> Found:
    from samplers.regression.features import features_of_matrix
    from samplers.regression.sparse_regression import SparseRegression

    features = features_of_matrix(problem.x, workers)
    regression = SparseRegression(features, problem.y, problem.loss, intercept=False)
    found = list(regression.path(levels, tolerance))
    return Found([solution.coefficients for solution in found], [solution.gap for solution in found])


def scikit_learn(problem: Problem, levels: np.ndarray, tolerance: float, _: int) -> Found:
    from sklearn.linear_model import Lasso, lasso_path

    rows = problem.y.size
    if levels.size == 1:
        model = Lasso(alpha=levels[0] / rows, fit_intercept=False, tol=tolerance, max_iter=10**5, copy_X=False)
        model.fit(problem.x, problem.y)
        return Found([model.coef_], [rows * model.dual_gap_])
    _, found, gaps = lasso_path(problem.x, problem.y, alphas=levels / rows, tol=tolerance, max_iter=10**5)
    return Found(list(found.T), list(rows * gaps))


def liblinear(problem: Problem, levels: np.ndarray, tolerance: float, _: int) -> Found:
    """By scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    options: dict[str, Any] = {"l1_ratio": 1, "solver": "liblinear", "fit_intercept": False, "max_iter": 10**4}
    models = [LogisticRegression(C=1 / level, tol=tolerance, **options) for level in levels]
    return Found([model.fit(problem.x, problem.y).coef_[0] for model in models])


def celer(problem: Problem, levels: np.ndarray, tolerance: float, _: int) -> Found:
    from celer import celer_path

    squared = problem.loss == "squared"
    y = problem.y if squared else 2 * problem.y - 1
    alphas = levels / y.size if squared else levels
    kind = {"pb": "lasso"} if squared else {"pb": "logreg", "use_PN": True}
    _, found, gaps = celer_path(
        problem.x, y.astype(problem.x.dtype), alphas=alphas, tol=tolerance, max_iter=100, prune=1, **kind
    )
    return Found(list(found.T), list(gaps * (y.size if squared else 1)))


def skglm(problem: Problem, levels: np.ndarray, tolerance: float, _: int) -> Found:
    from skglm import Lasso, SparseLogisticRegression

    y = problem.y.astype(problem.x.dtype) if problem.loss == "squared" else 2 * problem.y - 1
    kind = Lasso if problem.loss == "squared" else SparseLogisticRegression
    model, found = kind(fit_intercept=False, warm_start=levels.size > 1, max_iter=200), []
    for alpha in levels / y.size:
        model.set_params(alpha=alpha, tol=tolerance * alpha)  # of the largest violation of the optimality conditions
        found.append(model.fit(problem.x, y).coef_.ravel().copy())
    return Found(found)


def adelie(problem: Problem, levels: np.ndarray, tolerance: float, workers: int) -> Found:
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
    return Found(list(state.betas.toarray()))


CONTESTANTS: dict[str, Solver] = {
    "ooc": ooc,
    "scikit-learn": scikit_learn,
    "liblinear": liblinear,
    "celer": celer,
    "skglm": skglm,
    "adelie": adelie,
}
DOUBLE = "64"  # after the name of a contestant: it is given float64, as float32 does not take it far enough


def residual_and_loss(problem: Problem, scores: np.ndarray) -> tuple[np.ndarray, float]:
    y = problem.y
    if problem.loss == "squared":
        return y - scores, 0.5 * float((y - scores) @ (y - scores))
    return y - 1 / (1 + np.exp(-scores)), float((np.logaddexp(0, scores) - y * scores).sum())


def gap(problem: Problem, coefficients: np.ndarray, level: float) -> float:
    """Between the objective, losses being summed, and that of the residual, scaled until it is a dual point."""
    chosen = np.flatnonzero(coefficients)
    scores = problem.x[:, chosen] @ coefficients[chosen].astype(np.float64)
    residual, loss = residual_and_loss(problem, scores)
    scaled = residual * min(1.0, level / largest_slope(problem, residual))
    if problem.loss == "squared":
        dual = scaled @ problem.y - 0.5 * scaled @ scaled
    else:
        q = np.clip(np.abs(scaled), 1e-300, 1 - 1e-16)
        dual = -float((q * np.log(q) + (1 - q) * np.log1p(-q)).sum())
    return loss + level * float(np.abs(coefficients).sum(dtype=np.float64)) - float(dual)


def largest_slope(problem: Problem, residual: np.ndarray) -> float:
    """max_j |x_j . residual|, in float64, some columns at a time if they are dense."""
    if not isinstance(problem.x, np.ndarray):
        return float(np.abs(problem.x.T @ residual).max())
    columns = problem.x.T
    return max(
        float(np.abs(columns[k : k + 10_000].astype(np.float64) @ residual).max())
        for k in range(0, len(columns), 10_000)
    )


def given_to(name: str, problem: Problem) -> Problem:
    """The problem as a contestant likes it best, that it does not have to make copies."""
    x = problem.x.astype(np.float64) if name.endswith(DOUBLE) else problem.x
    if name.startswith("liblinear"):
        x = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.tocsr()
    return Problem(x, problem.y, problem.loss)


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
        gaps = [gap(problem, b, level) for b, level in zip(found.coefficients, levels, strict=True)]
        answer = {
            "seconds": seconds,
            "processor_seconds": processor,
            "gaps": [min(pair) for pair in zip(gaps, found.gaps or gaps, strict=True)],
            "nonzeros": [int(np.count_nonzero(b)) for b in found.coefficients],
        }
        print(json.dumps(answer), file=_ANSWERS, flush=True)


if __name__ == "__main__":
    _ANSWERS, sys.stdout = sys.stdout, sys.stderr  # what the contestants print is no answer
    main()
