"""Resumable solver for a regularization path and its cross-validation folds.

A step solves a working set of each regression for the next lambda and, as long as that succeeds, for further lambdas,
each from the one before; then a single pass over all columns checks all these solutions. Steps and results do not
depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ooc.ring.ring import Ring
from samplers.regression.losses.loss import CoefficientFit
from samplers.regression.path.cross_validation import CrossValidationErrors, held_out_error, validate
from samplers.regression.program import RegressionProgram
from samplers.regression.solver.correlations import REACH
from samplers.regression.solver.solver_limit import SolverLimit, SolverLimitReached
from samplers.regression.solver.sparse_regression import SparseRegression
from samplers.regression.solver.working_sets import AHEAD, RegressionSolution, WorkingSet, judge_all

_NONE = np.empty(0, np.int64)
_NUMBERS = ("lam", "target", "goal", "gap", "bound", "screened", "least", "stalled")  # numeric fields of a WorkingSet


class Found(NamedTuple):
    """The model for one lambda."""

    lam: float
    intercept: float
    columns: np.ndarray  # int64 (m,), columns with nonzero coefficients
    values: np.ndarray  # float64 (m,), nonzero coefficients
    objective: float
    gap: float


class LambdaPathFit:
    """One regression along the path.

    share: the regression's fraction of the total weight, which scales lambda. Attributes: `working_set` for the next
        lambda, None before the first and after the last.
    """

    def __init__(self, regression: SparseRegression, share: float, tolerance: float) -> None:
        self.regression, self._share, self._tolerance = regression, share, tolerance
        self.working_set: WorkingSet | None = None
        self._before = 0.0  # the lambda of the last solution
        self._ahead = 1  # number of lambdas that the next pass checks
        self._missed: dict[float, np.ndarray] = {}  # int64, ascending, columns found missing in a pass, by lambda

    def begin(self, lam: float) -> None:
        """Start with the first lambda."""
        nothing = self.regression.nothing
        target = self._tolerance * nothing.fit.loss
        self.working_set, self._before = self._beginning(lam, nothing, target), nothing.lam

    def step(self, lambdas: np.ndarray) -> list[RegressionSolution]:
        """Solve for the first of the remaining lambdas, float64 (m,); returns the solutions, possibly none.

        Raises WorkFailed, or SolverLimitReached if the limit is reached first; `working_set` then has the best solution
        so far.
        """
        working_sets, limit = self._working_sets(lambdas), self.regression.regression.limit
        working_sets[-1].solve()
        if limit.reached:
            raise SolverLimitReached
        if len(working_sets) == 1:
            found = working_sets[0].examine()
            solutions = [found] if found else []
        else:
            solutions = judge_all(working_sets)
            self._missed |= {further.lam: further.working for further in working_sets[len(solutions) + 1 :]}
        self._ahead = min(2 * self._ahead, AHEAD) if len(solutions) == len(working_sets) else max(len(solutions), 1)
        if not solutions:
            self.working_set = working_sets[0]
            return []
        self._before, target = solutions[-1].lam, working_sets[0].target
        if len(solutions) < len(working_sets):
            self.working_set = working_sets[len(solutions)]
        elif len(solutions) < lambdas.size:
            self.working_set = self._beginning(float(lambdas[len(solutions)]), solutions[-1], target)
        else:
            self.working_set = None
        self._missed = {lam: some for lam, some in self._missed.items() if lam < self._before}
        return solutions

    def _working_sets(self, lambdas: np.ndarray) -> list[WorkingSet]:
        """Return the working sets of the next lambda and of lambdas solved ahead; the last one is not solved yet."""
        assert self.working_set
        working_sets = [self.working_set]
        for lam in (self._share * lambdas[1 : self._ahead]).tolist():
            if lam * REACH < self._before:
                break
            working_sets[-1].solve()
            working_sets.append(working_sets[-1].following(lam, self._before, self._missed.get(lam, _NONE)))
        return working_sets

    def _beginning(self, lam: float, start: RegressionSolution, target: float) -> WorkingSet:
        return WorkingSet.beginning(self.regression.regression, self._share * lam, start, target)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state to resume from, as one-dimensional arrays."""
        working_set, known = self.working_set, self.regression.regression.correlations
        if working_set is None:
            return {}
        numbers = [float(getattr(working_set, name)) for name in _NUMBERS]
        return {
            "numbers": np.array([*numbers, working_set.fit.loss, self._before, self._ahead]),
            "columns": working_set.support,
            "values": working_set.values,
            "scores": working_set.fit.scores,
            "free": working_set.fit.free,
            "residual": working_set.fit.residual,
            "candidates": working_set.candidates,
            "working": working_set.working,
            "missed_levels": np.array(list(self._missed)),
            "missed_sizes": np.array([columns.size for columns in self._missed.values()], np.int64),
            "missed": np.concatenate([_NONE, *self._missed.values()]),
            **known.arrays(),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state of `arrays`."""
        if not arrays:
            return
        *numbers, loss, self._before, ahead = arrays["numbers"].tolist()
        self._ahead = int(ahead)
        ends = np.cumsum(arrays["missed_sizes"])
        missed = [some.copy() for some in np.split(arrays["missed"], ends)[: ends.size]]
        self._missed = dict(zip(arrays["missed_levels"].tolist(), missed, strict=True))
        names = "columns", "values", "scores", "free", "residual", "candidates", "working"
        support, values, scores, free, residual, candidates, working = (arrays[name].copy() for name in names)
        regression = self.regression.regression
        require_ascending(support, candidates, working, *missed, below=regression.features.count)
        expected = ((values, support.size), (scores, residual.size), (residual, regression.features.rows))
        if any(array.size != size for array, size in expected) or free.size != len(regression.loss.free):
            raise ValueError("a solution of other rows or columns")
        told: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
        told["stalled"] = int(told["stalled"])
        self.working_set = WorkingSet(
            regression,
            support=support,
            values=values,
            fit=CoefficientFit(scores, free, residual, loss),
            candidates=candidates,
            working=working,
            **told,
        )
        regression.correlations.restore(arrays)


class LambdaPathSolver:
    """The regressions of a program.

    room: bytes for the columns of the regressions.
    limit: limit at which they stop.
    ring: ranks that each have such a solver. Attributes: `lambdas`, float64 (N,), after `begin`; `found`, the models so
        far; `errors` on each fold's held-out rows.
    """

    def __init__(
        self, program: RegressionProgram, workers: int, room: int, limit: SolverLimit, ring: Ring | None = None
    ) -> None:
        self._program = program
        self._features, regressions = program.build(workers, room, limit, ring)
        total = program.design.rows if program.sample_weight is None else program.sample_weight.sum()
        shares = [1.0, *(1 - weights.sum() / total for weights in program.held_out)]
        self._fits = [
            LambdaPathFit(one, share, program.tolerance) for one, share in zip(regressions, shares, strict=True)
        ]
        # All ranks must sum the same numbers at the same time.
        self._map = map if ring else ThreadPoolExecutor(min(workers, len(self._fits))).map
        self.lambdas = np.empty(0)
        self.found: list[Found] = []
        self.errors: list[list[float]] = [[] for _ in program.held_out]

    @property
    def bytes_read(self) -> int:
        """Return the number of bytes of columns read so far."""
        return sum(features.bytes_read for features in self._features)

    @property
    def samples(self) -> int:
        """Return the number of entries read so far."""
        return sum(features.samples for features in self._features)

    @property
    def gap(self) -> float:
        """Return the duality gap of the regression on all rows at the current lambda, relative to the loss of the null
        model.
        """
        working_set = self._fits[0].working_set
        return working_set.gap / working_set.target * self._program.tolerance if working_set else 0.0

    @property
    def solved(self) -> int:
        """Return the number of lambdas that all regressions have solved."""
        return min(len(self.found), *map(len, self.errors)) if self.errors else len(self.found)

    @property
    def models(self) -> list[Found]:
        """Return the models to publish, once all lambdas are solved."""
        return self.found

    @property
    def done(self) -> bool:
        return self.solved == self.lambdas.size

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [os.getpid()]

    def close(self) -> None:
        """Release the threads."""

    def begin(self) -> None:
        """Compute lambda_max, and start with the first lambda."""
        list(self._map(lambda fit: fit.regression.nothing, self._fits))
        whole, asked = self._fits[0].regression, self._program.levels
        if "lambda" in asked:
            self.lambdas = np.array([asked["lambda"]])
        else:
            self.lambdas = whole.lambdas(self._program.length, asked["ratio"])
        list(self._map(lambda fit: fit.begin(float(self.lambdas[0])), self._fits))

    @property
    def largest(self) -> float:
        """Return lambda_max, after `begin`."""
        return self._fits[0].regression.largest

    @property
    def constant(self) -> np.ndarray:
        """Return the constant columns, which are left out, int64."""
        return self._fits[0].regression.constant

    def step(self) -> None:
        """Do one step of each unfinished regression.

        Raises SolverLimitReached at the limit; the state stays valid.
        """
        going_on = [number for number, fit in enumerate(self._fits) if fit.working_set]
        if not all(list(self._map(self._step, going_on))):
            raise SolverLimitReached

    def _step(self, number: int) -> bool:
        """Do one step of a regression; returns whether the regression is finished."""
        fit, done = self._fits[number], self.errors[number - 1] if number else self.found
        try:
            solutions = fit.step(self.lambdas[len(done) :])
        except SolverLimitReached:
            return False
        for solution in solutions:
            if number == 0:
                self.found.append(found_model(fit.regression, solution))
            else:
                self.errors[number - 1].append(self._error(number - 1, fit.regression.scores(solution)))
        return True

    def _error(self, fold: int, scores: np.ndarray) -> float:
        program = self._program
        return held_out_error(program.loss, program.y, scores, program.held_out[fold])

    def validation(self) -> CrossValidationErrors | None:
        """Return the cross-validation results, if there are folds, once all lambdas are solved."""
        if not self.errors:
            return None
        return validate(np.array(self.errors).T, np.array([weights.sum() for weights in self._program.held_out]))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state to resume from, as one-dimensional arrays."""
        arrays = {"levels": self.lambdas, **path_arrays(self.found)}
        for fold, errors in enumerate(self.errors):
            arrays[f"errors.{fold}"] = np.array(errors)
        for number, fit in enumerate(self._fits):
            arrays |= {f"{number}.{name}": array for name, array in fit.arrays().items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state of `arrays`."""
        self.lambdas = arrays["levels"].copy()
        self.found = found_models(arrays)
        self.errors = [arrays[f"errors.{fold}"].tolist() for fold in range(len(self.errors))]
        require_path(self.lambdas, self._program.length, max([len(self.found), *map(len, self.errors)]))
        for number, fit in enumerate(self._fits):
            begin = f"{number}."
            fit.restore({name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)})


def require_path(lambdas: np.ndarray, length: int, solved: int) -> None:
    """Raise ValueError unless there are `length` lambdas, of which at most `length` are solved: the path would never
    end.
    """
    if lambdas.size != length or not np.isfinite(lambdas).all() or solved > length:
        raise ValueError(f"{solved} solutions for {lambdas.size} values of lambda of {length}")


def require_ascending(*sets: np.ndarray, below: int) -> None:
    """Raise ValueError unless the values are ascending column indices below a bound, since kernels use them as
    indices.
    """
    for columns in sets:
        if columns.size and (columns[0] < 0 or columns[-1] >= below or (columns[1:] <= columns[:-1]).any()):
            raise ValueError("columns that do not ascend, or that there are not")


def found_model(regression: SparseRegression, solution: RegressionSolution) -> Found:
    """Return the model of a solution in terms of the original columns."""
    terms = regression.terms(solution)
    return Found(solution.lam, terms.intercept, terms.columns, terms.values, solution.objective, solution.gap)


def path_arrays(found: list[Found]) -> dict[str, np.ndarray]:
    """Return arrays of the models for N lambdas, for `found_models`: `lambdas`, `intercepts`, `objectives`, `gaps`
    float64 (N,); `offsets` int64 (N+1,), start of each model in `columns` int64 and `coefficients` float64.
    """
    sizes = [one.columns.size for one in found]
    return {
        "lambdas": np.array([one.lam for one in found]),
        "intercepts": np.array([one.intercept for one in found]),
        "objectives": np.array([one.objective for one in found]),
        "gaps": np.array([one.gap for one in found]),
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "columns": np.concatenate([np.empty(0, np.int64), *(one.columns for one in found)]),
        "coefficients": np.concatenate([np.empty(0), *(one.values for one in found)]),
    }


def found_models(arrays: Mapping[str, np.ndarray]) -> list[Found]:
    """Return the models from the arrays of `path_arrays`."""
    offsets = arrays["offsets"].tolist()
    if arrays["columns"].min(initial=0) < 0:
        raise ValueError("a column below 0")
    rows = zip(*(arrays[name].tolist() for name in ("lambdas", "intercepts", "objectives", "gaps")), strict=True)
    return [
        Found(lam, intercept, arrays["columns"][begin:end].copy(), arrays["coefficients"][begin:end].copy(), *told)
        for (lam, intercept, *told), begin, end in zip(rows, offsets[:-1], offsets[1:], strict=True)
    ]
