"""Regularization paths, and the choice of a penalty by cross-validation, for the linear estimators."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError, WorkFailed
from samplers.estimators.base import convergence_warning, integer_parameter, random_seed
from samplers.regression.path.cross_validation import held_out_error, held_out_weights
from samplers.regression.path.solver import Found, LambdaPathFit, found_model
from samplers.regression.solver.multinomial import MultinomialRegression, MultinomialSolution
from samplers.regression.solver.solver_limit import SolverLimit, SolverLimitReached
from samplers.regression.solver.sparse_regression import SparseRegression
from samplers.regression.solver.working_sets import RegressionSolution


class PenaltyPath(NamedTuple):
    """Models along a path of N penalties, each certified by its duality gap.

    Attributes
    ----------
    alphas : ndarray of float64 (N,)
        Penalties in descending order; for `LogisticRegression` the Cs, in ascending order.
    coefs : ndarray of float64 (p, N)
        Coefficients; for K > 2 classes (K, p, N).
    intercepts : ndarray of float64 (N,)
        Intercepts; for K > 2 classes (K, N).
    dual_gaps : ndarray of float64 (N,)
        Duality gaps.
    """

    alphas: np.ndarray
    coefs: np.ndarray
    intercepts: np.ndarray
    dual_gaps: np.ndarray


Problem = SparseRegression | MultinomialRegression
ClassModels = list[Found]  # the models of all classes for one lambda; one model, except for more than two classes


def dense_path(penalties: np.ndarray, found: list[ClassModels], columns: int) -> PenaltyPath:
    """Return the models of a path as dense arrays.

    penalties: in the estimator's parametrization.
    """
    coefs = np.zeros((len(found[0]), columns, len(found)))
    for place, models in enumerate(found):
        for coefficients_of_model, model in zip(coefs, models, strict=True):
            coefficients_of_model[model.columns, place] = model.values
    intercepts = np.array([[model.intercept for model in models] for models in found]).T
    gaps = np.array([models[0].gap for models in found])
    if len(coefs) == 1:
        coefs, intercepts = coefs[0], intercepts[0]
    return PenaltyPath(penalties, coefs, intercepts, gaps)


def total_weight(rows: int, weights: np.ndarray | None) -> float:
    return float(rows if weights is None else weights.sum())


def penalties(name: str, given: Any, eps: float, problem: Problem, total: float | None) -> np.ndarray:
    """Return the lambdas of a path in descending order, float64 (N,).

    name, given: name of the parameter, and its value: a number of lambdas, or the values.
    eps: last lambda relative to the first, if a number is given.
    total: sum of the weights, for alphas; None for Cs, which are 1 / lambda.
    Raises RequestError if the parameter is invalid.
    """
    if isinstance(problem, MultinomialRegression):
        largest, features = problem.largest, problem.of[0].regression.features
    else:
        largest, features = problem.regression.nothing().lam, problem.regression.features
    if largest == 0:
        raise RequestError(
            f"no column of X (n_features={features.count}) correlates with y: there is no path",
            "Check that y and the columns are not constant.",
        )
    if isinstance(given, int | np.integer):
        if not 0 < eps < 1:
            raise RequestError(f"eps must be between 0 and 1, got {eps!r}")
        return problem.lambdas(integer_parameter(name, given, 2), eps)
    try:
        values = np.array(given, np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{name}: {error}", "Pass an integer, or an array of values.") from None
    if values.ndim != 1 or not values.size or not np.isfinite(values).all() or (values <= 0).any():
        raise RequestError(f"{name} must be a number of values, or finite values above 0, got {given!r}")
    return np.sort(values * total if total is not None else 1 / values)[::-1].copy()


def follow(
    problem: Problem, lambdas: np.ndarray, share: float, tol: float, max_iter: int
) -> Iterator[RegressionSolution | MultinomialSolution]:
    """Solve a regression for descending lambdas, float64 (N,), each started from the previous solution (warm start).

    share: the regression's fraction of the total weight, by which each lambda is multiplied.
    tol: maximum duality gap, relative to the loss of the null model.
    max_iter: maximum number of rounds per lambda, on average.
    Raises WorkFailed if more rounds are needed.
    """
    if isinstance(problem, MultinomialRegression):
        yield from _follow_classes(problem, lambdas, share, tol, max_iter)
        return
    if (empty := problem.regression.nothing()).lam == 0:  # no column varies, or none correlates with y
        yield from [empty] * lambdas.size
        return
    problem.regression.limit = SolverLimit(max_iter * lambdas.size)
    fit, solved = LambdaPathFit(problem, share, tol), 0
    fit.begin(float(lambdas[0]))
    while solved < lambdas.size:
        try:
            solutions = fit.step(lambdas[solved:])
        except SolverLimitReached:
            raise _too_few_rounds(max_iter, solved, lambdas.size) from None
        solved += len(solutions)
        yield from solutions


def _follow_classes(
    problem: MultinomialRegression, lambdas: np.ndarray, share: float, tol: float, max_iter: int
) -> Iterator[MultinomialSolution]:
    """Do `follow` for several classes; warn, and yield the best solution, if cycles over the classes stall."""
    problem.limit, target = SolverLimit(max_iter * lambdas.size * len(problem.of)), tol * problem.nothing.objective
    found = problem.nothing
    for solved, lam in enumerate((share * lambdas).tolist()):
        found = problem.best(lam, found, target) if lam < problem.largest else problem.nothing
        if found.gap > target and problem.limit.reached:
            raise _too_few_rounds(max_iter, solved, lambdas.size)
        if found.gap > target:
            warnings.warn(
                f"lambda {lam:g}: did not converge: the duality gap stays at {found.gap:.3g}, above the target"
                f" {target:.3g}. Increase tol, or let the path end at a larger penalty.",
                convergence_warning(),
                stacklevel=6,
            )
        yield found


def _too_few_rounds(max_iter: int, solved: int, penalties: int) -> WorkFailed:
    return WorkFailed(
        f"max_iter={max_iter} rounds per penalty solved only {solved} of the {penalties} penalties",
        "Increase max_iter or tol, or let the path end at a larger penalty.",
    )


def path_models(problem: Problem, lambdas: np.ndarray, tol: float, max_iter: int) -> list[ClassModels]:
    """Return the models of a regression on all rows, for descending lambdas."""
    solutions = follow(problem, lambdas, 1.0, tol, max_iter)
    return [_models(problem, lam, found) for lam, found in zip(lambdas.tolist(), solutions, strict=True)]


def _models(problem: Problem, lam: float, found: RegressionSolution | MultinomialSolution) -> ClassModels:
    if isinstance(problem, MultinomialRegression):
        assert isinstance(found, MultinomialSolution)
        return [Found(lam, *terms, found.objective, found.gap) for terms in problem.terms(found)]
    assert isinstance(found, RegressionSolution)
    return [found_model(problem, found)]


class FoldWeights(NamedTuple):
    """Weights of the training rows and of the test rows of a fold: float64 (n,)."""

    trained: np.ndarray
    held_out: np.ndarray


def cross_validation_folds(
    cv: Any, every: np.ndarray, classes: np.ndarray | None, random_state: Any, given: tuple[Any, Any, Any]
) -> list[FoldWeights]:
    """Return the folds of a cross-validation.

    cv: a number of random folds, stratified and drawn with random_state; or an object with `split(X, y, groups)`, or
        pairs of index arrays, as in scikit-learn.
    every: sample weights, float64 (n,).
    given: X, y, groups.
    Raises RequestError if cv is invalid.
    """
    if isinstance(cv, int | np.integer):
        if (used := np.count_nonzero(every)) < cv:
            raise RequestError(f"cv={cv} folds cannot be made of n_samples={used} rows", "Reduce cv.")
        return [
            FoldWeights(every - out, out)
            for out in held_out_weights(every, integer_parameter("cv", cv, 2), random_seed(random_state), classes)
        ]
    pairs = cv.split(*given) if hasattr(cv, "split") and not isinstance(cv, str) else cv
    if not isinstance(pairs, Iterable) or isinstance(pairs, str):
        raise RequestError(f"cv must be a number of folds, an object with split, or pairs of index arrays, got {cv!r}")
    folds = [FoldWeights(*(_only(every, rows) for rows in pair)) for pair in pairs]
    for number, fold in enumerate(folds):
        if not fold.trained.any() or not fold.held_out.any():
            raise RequestError(f"fold {number} of cv has no training rows or no test rows whose weight is above 0")
    if len(folds) < 2:
        raise RequestError(f"cv must have at least 2 folds, got {len(folds)}")
    return folds


def _only(every: np.ndarray, rows: Any) -> np.ndarray:
    """Return the weights, set to 0 except for some rows.

    rows: row indices, or a mask.
    """
    kept, rows = np.zeros_like(every), np.asarray(rows)
    try:
        kept[rows] = every[rows]
    except IndexError as error:
        raise RequestError(f"cv: {error}", "Pass row indices from 0 to the number of rows of X minus 1.") from None
    return kept


def fold_errors(
    problem: Problem, loss: str, y: np.ndarray, fold: FoldWeights, lambdas: np.ndarray, tol: float, max_iter: int
) -> list[float]:
    """Return the errors, on the test rows of a fold, of the models fitted to its training rows."""
    share = float(fold.trained.sum() / (fold.trained + fold.held_out).sum())
    solutions = follow(problem, lambdas, share, tol, max_iter)
    scores = (problem.scores(solution) for solution in solutions)  # type: ignore[arg-type]
    return [held_out_error(loss, y, each, fold.held_out) for each in scores]
