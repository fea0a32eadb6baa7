"""Compare logistic regression of ooc and scikit-learn for all strengths of the penalty, on 20 mostly ill-conditioned
problems.

    python -m benchmarks.weak_penalties
    python -m benchmarks.weak_penalties --problems 3 12 --limit 20

What counts is the time of a `fit` whose objective is within 1e-6 of the loss without columns of the least objective.
The least is at least what a dual point shows that is found here from the most exact coefficients, with numpy alone, so
that no contestant judges itself. Each contestant solves a problem in a process of its own, with one thread, with one
tolerance after another until it is within; the time, that of the processor, is the median of several fits with that
tolerance, after one more that compiles. LIBLINEAR penalises the intercept: it is given a constant column large enough
for that not to matter.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import ONE_THREAD, ROOT
from benchmarks.report import describe_machine, machine, table

ENOUGH = 1e-6  # of the loss without columns
TOLERANCES = {
    "ooc": (1e-6,),
    "saga": tuple(10.0**-power for power in range(2, 10)),
    "liblinear": tuple(10.0**-power for power in range(2, 10)),
}
EXACT = (1e-6, 1e-8)  # tolerances of ooc's coefficients that dual points are found from
_FITS = 3
_CONSTANT = 1e3  # intercept_scaling of LIBLINEAR


class WeakPenaltyProblem(NamedTuple):
    """A problem. Attributes: `positives`, fraction of rows with label 1; `columns_are`, see `columns_of`."""

    rows: int
    columns: int
    positives: float
    columns_are: str
    C: float
    l1_ratio: float

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns}, {self.columns_are}, {self.positives:.0%}"


PROBLEMS = (
    WeakPenaltyProblem(500, 20, 0.5, "redundant", 1e4, 1.0),
    WeakPenaltyProblem(500, 20, 0.5, "redundant", 1e6, 0.5),
    WeakPenaltyProblem(300, 20, 0.5, "redundant", 1e6, 0.25),
    WeakPenaltyProblem(500, 20, 0.5, "redundant", 1e8, 1.0),
    WeakPenaltyProblem(2000, 40, 0.5, "independent", 1e-4, 0.5),
    WeakPenaltyProblem(2000, 40, 0.01, "independent", 1e-2, 0.1),
    WeakPenaltyProblem(2000, 40, 0.01, "independent", 1e2, 1.0),
    WeakPenaltyProblem(2000, 40, 0.5, "duplicated", 1.0, 1.0),
    WeakPenaltyProblem(2000, 40, 0.5, "duplicated", 1e6, 0.75),
    WeakPenaltyProblem(2000, 40, 0.5, "nearly duplicated", 1e4, 1.0),
    WeakPenaltyProblem(2000, 40, 0.01, "nearly duplicated", 1e8, 0.5),
    WeakPenaltyProblem(500, 100, 0.5, "scaled", 1.0, 0.5),
    WeakPenaltyProblem(500, 100, 0.5, "scaled", 1e4, 1.0),
    WeakPenaltyProblem(2000, 40, 0.01, "scaled", 1e6, 0.9),
    WeakPenaltyProblem(300, 300, 0.5, "redundant", 1e2, 0.1),
    WeakPenaltyProblem(300, 300, 0.5, "duplicated", 1e4, 0.5),
    WeakPenaltyProblem(200, 1000, 0.5, "independent", 1.0, 1.0),
    WeakPenaltyProblem(200, 1000, 0.5, "independent", 1e6, 1.0),
    WeakPenaltyProblem(200, 1000, 0.01, "nearly duplicated", 1e2, 0.9),
    WeakPenaltyProblem(200, 1000, 0.5, "duplicated", 1e8, 0.1),
)


def columns_of(problem: WeakPenaltyProblem) -> tuple[np.ndarray, np.ndarray]:
    """X, float64 (n, p), and y, int64 (n,), of scikit-learn's `make_classification`.

    "independent" has no redundant columns. All others have a tenth of them; in addition "duplicated" repeats the first
    half of the columns, "nearly duplicated" does so with noise of 1e-6, and "scaled" multiplies columns by 1e-4 to 1e4.
    """
    from sklearn.datasets import make_classification

    kind, random = problem.columns_are, np.random.default_rng(0)
    X, y = make_classification(
        problem.rows,
        problem.columns,
        n_informative=max(problem.columns // 10, 2),
        n_redundant=0 if kind == "independent" else max(problem.columns // 10, 2),
        weights=[1 - problem.positives],
        flip_y=0.01 if problem.positives < 0.1 else 0.1,
        random_state=0,
    )
    half = problem.columns // 2
    if kind in ("duplicated", "nearly duplicated"):
        X[:, half : 2 * half] = X[:, :half]
    if kind == "nearly duplicated":
        X[:, half : 2 * half] += 1e-6 * random.standard_normal((problem.rows, half))
    if kind == "scaled":
        X *= random.permutation(np.logspace(-4, 4, problem.columns))
    return X, y


def objective(
    problem: WeakPenaltyProblem, X: np.ndarray, y: np.ndarray, coefficients: np.ndarray, intercept: float
) -> float:
    scores = X @ coefficients + intercept
    loss = np.logaddexp(0.0, np.where(y == 1, -scores, scores)).sum()
    ridge = 0.5 * (1 - problem.l1_ratio) * coefficients @ coefficients
    return problem.C * loss + problem.l1_ratio * np.abs(coefficients).sum() + ridge


def null_loss(problem: WeakPenaltyProblem, y: np.ndarray) -> float:
    share = y.mean()
    return -problem.C * y.size * (share * np.log(share) + (1 - share) * np.log1p(-share))


def least_objective(
    problem: WeakPenaltyProblem, X: np.ndarray, y: np.ndarray, coefficients: np.ndarray, intercept: float
) -> float:
    """Return a lower bound on the objective from the dual point given by the residuals of some coefficients.

    The residuals are changed as little as possible to sum to 0, as the intercept requires, and to have the inner
    products that the signs of the nonzero coefficients require.
    """
    scores = X @ coefficients + intercept
    wrong = 1.0 / (1.0 + np.exp(np.where(y == 1, scores, -scores)))
    residuals, roots = np.where(y == 1, wrong, -wrong), np.sqrt(wrong * (1.0 - wrong))
    l1, l2, chosen = problem.l1_ratio, 1 - problem.l1_ratio, coefficients != 0
    columns = np.column_stack([X[:, chosen], np.ones(y.size)])
    demanded = np.append(l1 * np.sign(coefficients[chosen]) + l2 * coefficients[chosen], 0.0) / problem.C
    lengths = np.linalg.norm(columns * roots[:, None], axis=0)
    lacking = (demanded - columns.T @ residuals) / lengths
    change = np.linalg.lstsq((columns * roots[:, None] / lengths).T, lacking, rcond=None)[0] * roots
    return max(dual_objective(problem, X, y, point) for point in (residuals, residuals + change))


def dual_objective(problem: WeakPenaltyProblem, X: np.ndarray, y: np.ndarray, residuals: np.ndarray) -> float:
    """Return the dual objective of the point in the direction of residuals, rescaled by class to sum to 0."""
    sums = {label: np.abs(residuals[y == label].sum()) for label in (0, 1)}
    residuals = residuals * np.where(y == 1, min(1.0, sums[0] / sums[1]), min(1.0, sums[1] / sums[0]))
    l1, l2 = problem.l1_ratio, 1 - problem.l1_ratio
    slopes = np.abs(problem.C * residuals @ X)
    bounds = [-np.inf]
    for scale in (1.0, min(1.0, l1 / slopes.max())):
        excess, away = np.maximum(scale * slopes - l1, 0.0), scale * np.where(y == 1, residuals, -residuals)
        if away.min() < 0 or away.max() > 1 or (l2 == 0 and excess.max() > 1e-12 * l1):
            continue
        inside = away[(away > 0) & (away < 1)]
        entropy = -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside)).sum()
        bounds.append(problem.C * entropy - (0.5 * (excess @ excess) / l2 if l2 > 0 else 0.0))
    return max(bounds)


def estimator(contestant: str, problem: WeakPenaltyProblem, tolerance: float) -> Any:
    if contestant == "ooc":
        from samplers import LogisticRegression

        return LogisticRegression(problem.C, l1_ratio=problem.l1_ratio, tol=tolerance, n_jobs=1)
    from sklearn.linear_model import LogisticRegression as Peer

    options: dict[str, Any] = {"C": problem.C, "l1_ratio": problem.l1_ratio, "tol": tolerance, "max_iter": 10**7}
    if contestant == "liblinear":
        options["intercept_scaling"] = _CONSTANT
    return Peer(solver=contestant, random_state=0, **options)


def solve(contestant: str, number: int, tolerances: list[float]) -> None:
    """Print, for each tolerance, a line with coefficients, intercept and the median seconds of a fit."""
    problem = PROBLEMS[number]
    X, y = columns_of(problem)
    warnings.simplefilter("ignore")
    for tolerance in tolerances:
        taken: list[float] = []
        while len(taken) < 1 + _FITS:
            began = time.process_time()
            model = estimator(contestant, problem, tolerance).fit(X, y)
            taken.append(time.process_time() - began)
            if len(taken) == 1:
                found = {"coefficients": model.coef_[0].tolist(), "intercept": float(model.intercept_[0])}
                if contestant != "ooc" and taken[0] > 1:  # nothing to compile
                    break
        print(json.dumps(found | {"seconds": median(taken[1:] or taken)}), flush=True)


class WeakPenaltyAnswer(NamedTuple):
    coefficients: np.ndarray
    intercept: float
    seconds: float


def answers(contestant: str, number: int, tolerances: tuple[float, ...], limit: float) -> Any:
    """Yield the answers for one tolerance after another, until one exceeds the time limit in seconds."""
    command = [sys.executable, "-m", "benchmarks.weak_penalties", "--solve", contestant, str(number)]
    process = subprocess.Popen(
        [*command, *map(str, tolerances)], cwd=ROOT, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        for place in range(len(tolerances)):
            starting = 60.0 if place == 0 else 0.0  # imports, and kernels that are compiled
            if not select.select([process.stdout], [], [], (1 + _FITS) * limit + starting)[0]:
                return
            if not (line := process.stdout.readline()):
                return
            found = json.loads(line)
            yield WeakPenaltyAnswer(np.array(found["coefficients"]), found["intercept"], found["seconds"])
    finally:
        process.kill()
        process.wait()


def contest(number: int, limit: float) -> dict[str, Any]:
    """Return, for each contestant, the seconds (or None) and the excess of its deciding answer over the smallest
    objective, as a fraction of the loss without columns.
    """
    problem = PROBLEMS[number]
    X, y = columns_of(problem)
    null = null_loss(problem, y)
    exact = answers("ooc", number, EXACT, limit)
    bound = max((least_objective(problem, X, y, a.coefficients, a.intercept) for a in exact), default=-np.inf)
    result: dict[str, Any] = {"problem": str(problem), "C": problem.C, "l1_ratio": problem.l1_ratio}
    for contestant, tolerances in TOLERANCES.items():
        if contestant == "liblinear" and problem.l1_ratio < 1:  # which it cannot
            continue
        seconds, least = None, np.inf
        for answer in answers(contestant, number, tolerances, limit):
            value = objective(problem, X, y, answer.coefficients, answer.intercept)
            least = min(least, (value - bound) / null)
            if least <= ENOUGH:
                seconds = answer.seconds
                break
        result[contestant] = {"seconds": seconds, "excess": least}
    return result


def row(number: int, result: dict[str, Any]) -> list[str]:
    times = {name: result[name]["seconds"] for name in TOLERANCES if name in result}
    peers = [seconds for name, seconds in times.items() if name != "ooc" and seconds is not None]
    ratio = f"{times['ooc'] / min(peers):.2f}" if peers and times["ooc"] else "-"
    shown = ["" if name not in times else _seconds(result[name]) for name in TOLERANCES]
    return [str(number), result["problem"], f"{result['C']:g}", f"{result['l1_ratio']:g}", *shown, ratio]


def _seconds(found: dict[str, Any]) -> str:
    if found["seconds"] is not None:
        return f"{found['seconds']:.4f}"
    return f"none ({found['excess']:.0e})" if np.isfinite(found["excess"]) else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, nargs="+", default=range(len(PROBLEMS)))
    parser.add_argument("--limit", type=float, default=15.0, help="seconds that a fit may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--solve", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.solve:
        contestant, number, *tolerances = asked.solve
        solve(contestant, int(number), [float(tolerance) for tolerance in tolerances])
        return
    facts = machine()
    results = {}
    for number in asked.problems:
        results[number] = contest(number, asked.limit)
        print("  ".join(row(number, results[number])), file=sys.stderr)
    names = ["", "problem, positives", "C", "l1_ratio", *TOLERANCES, "ooc / fastest peer"]
    print("\n".join([*describe_machine(facts), "", *table([names, *(row(n, r) for n, r in results.items())])]))
    print(f"\nProcessor seconds of a fit to {ENOUGH:g} of the loss without columns.")
    print(f"In brackets what was left where none of the fits that ended within {asked.limit:g} s came so far.")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1))


if __name__ == "__main__":
    main()
