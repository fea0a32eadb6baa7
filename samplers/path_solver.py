"""The way of a regression, and of those of its folds, from one lambda to the next: state that can be taken up again.

A step is a working set of each regression that is not done with the lambda at hand. Steps, and what comes of them, do
not depend on the threads that they are shared out to.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from samplers.cross_validation import Validation, held_out_error, validate
from samplers.losses import Fit
from samplers.regression_program import RegressionProgram
from samplers.sparse_regression import SparseRegression
from samplers.working_sets import Attempt, Solution

_NUMBERS = ("level", "target", "goal", "gap", "bound", "screened", "least", "stalled")  # of an Attempt


class Found(NamedTuple):
    """The model for a lambda."""

    level: float
    intercept: float
    columns: np.ndarray  # int64 (m,), whose coefficients are not 0
    values: np.ndarray  # float64 (m,), these
    objective: float
    gap: float
    errors: np.ndarray  # float64 (K,), on the rows that were held out, of the solutions without them


class PathFit:
    """One regression on its way. share: of the weight of all rows that it has, and so of each lambda. Attributes:
    `attempt`, at the lambda that is next, None at the end; `solution`, the last one."""

    def __init__(self, regression: SparseRegression, share: float, tolerance: float) -> None:
        self.regression, self._share, self._tolerance = regression, share, tolerance
        self.attempt: Attempt | None = None
        self.solution: Solution | None = None

    def begin(self, level: float) -> None:
        """Be about to look for the solution for a lambda."""
        before = self.solution or self.regression.nothing
        target = self.attempt.target if self.attempt else self._tolerance * self.regression.nothing.fit.loss
        self.attempt = Attempt.beginning(self.regression.regression, self._share * level, before, target)
        self.solution = None

    def step(self) -> None:
        assert self.attempt
        self.solution = self.attempt.improve()

    def arrays(self) -> dict[str, np.ndarray]:
        """What it goes on from; all one-dimensional."""
        attempt, known = self.attempt, self.regression.regression.correlations
        assert attempt
        columns = np.flatnonzero(attempt.coefficients)
        numbers = [float(getattr(attempt, name)) for name in _NUMBERS]
        return {
            "numbers": np.array([*numbers, attempt.fit.loss]),
            "objective": np.array([self.solution.objective] if self.solution else []),  # while others are at work
            "columns": columns,
            "values": attempt.coefficients[columns],
            "scores": attempt.fit.scores,
            "free": attempt.fit.free,
            "residual": attempt.fit.residual,
            "candidates": attempt.candidates,
            "working": attempt.working,
            **known.arrays(),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `arrays` was."""
        *numbers, loss = arrays["numbers"].tolist()
        coefficients = np.zeros(self.regression.regression.norms.size)
        coefficients[arrays["columns"]] = arrays["values"]
        scores, free, residual, candidates, working = (
            arrays[name].copy() for name in ("scores", "free", "residual", "candidates", "working")
        )
        told: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
        told["stalled"] = int(told["stalled"])
        self.attempt = Attempt(
            self.regression.regression,
            coefficients=coefficients,
            fit=Fit(scores, free, residual, loss),
            candidates=candidates,
            working=working,
            **told,
        )
        if arrays["objective"].size:
            self.solution = self.attempt.solution(float(arrays["objective"][0]))
        self.regression.regression.correlations.restore(arrays)


class PathSolver:
    """The regressions of a program. room: bytes for the columns that they work on. Attributes: `levels`, float64 (N,),
    once it has begun; `found`, the models so far."""

    def __init__(self, program: RegressionProgram, workers: int, room: int) -> None:
        self._program = program
        self._features, regressions = program.build(workers, room)
        total = program.design.rows if program.weights is None else program.weights.sum()
        shares = [1.0, *(1 - weights.sum() / total for weights in program.held_out)]
        self._fits = [PathFit(one, share, program.tolerance) for one, share in zip(regressions, shares, strict=True)]
        self._pool = ThreadPoolExecutor(min(workers, len(self._fits)))
        self.levels = np.empty(0)
        self.found: list[Found] = []

    @property
    def bytes_read(self) -> int:
        """Of columns, so far."""
        return sum(features.bytes_read for features in self._features)

    @property
    def samples(self) -> int:
        """Entries that were read so far."""
        return sum(features.samples for features in self._features)

    @property
    def gap(self) -> float:
        """Of the regression of all rows, at the lambda at hand, as a share of the loss of an empty model."""
        attempt = self._fits[0].attempt
        return attempt.gap / attempt.target * self._program.tolerance if attempt else np.inf

    @property
    def done(self) -> bool:
        return len(self.found) == self.levels.size

    def begin(self) -> None:
        """Find the largest lambda, and be about to solve for the first."""
        list(self._pool.map(lambda fit: fit.regression.nothing, self._fits))
        whole, asked = self._fits[0].regression, self._program.levels
        if "lambda" in asked:
            self.levels = np.array([asked["lambda"]])
        else:
            self.levels = whole.levels(self._program.length, asked["ratio"])
        self._begin_level()

    @property
    def largest(self) -> float:
        """The least lambda at which nothing is in the model; of a solver that has begun."""
        return self._fits[0].regression.largest

    def step(self) -> Found | None:
        """Make a step; returns the model, if it is found."""
        list(self._pool.map(PathFit.step, [fit for fit in self._fits if fit.solution is None]))
        if any(fit.solution is None for fit in self._fits):
            return None
        self.found.append(self._model())
        if not self.done:
            self._begin_level()
        return self.found[-1]

    def _begin_level(self) -> None:
        level = float(self.levels[len(self.found)])
        list(self._pool.map(lambda fit: fit.begin(level), self._fits))

    def _model(self) -> Found:
        program, (whole, *others) = self._program, self._fits
        solution = whole.solution
        assert solution
        model = whole.regression.model(solution)
        columns = np.flatnonzero(model.coefficients)
        errors = [
            held_out_error(program.loss, program.y, fit.regression.scores(fit.solution), weights)
            for fit, weights in zip(others, program.held_out, strict=True)
            if fit.solution
        ]
        return Found(
            solution.level,
            model.intercept,
            columns,
            model.coefficients[columns],
            solution.objective,
            solution.gap,
            np.array(errors),
        )

    def validation(self) -> Validation | None:
        """By the folds, if there are any, of all models found so far."""
        if not self._program.folds:
            return None
        weights = np.array([weights.sum() for weights in self._program.held_out])
        return validate(np.stack([found.errors for found in self.found]), weights)

    def arrays(self) -> dict[str, np.ndarray]:
        """What it goes on from; all one-dimensional."""
        arrays = {"levels": self.levels, **path_arrays(self.found)}
        if not self.done:
            for number, fit in enumerate(self._fits):
                arrays |= {f"{number}.{name}": array for name, array in fit.arrays().items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `arrays` was."""
        self.levels = arrays["levels"].copy()
        self.found = found_of(arrays)
        if not self.done:
            for number, fit in enumerate(self._fits):
                prefix = f"{number}."
                fit.restore(
                    {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
                )


def path_arrays(found: list[Found]) -> dict[str, np.ndarray]:
    """The models for N values of lambda, as `found_of` takes them: `lambdas`, `intercepts`, `objectives`, `gaps`
    float64 (N,); `offsets` int64 (N+1,), where the `columns` int64 and the `coefficients` float64 of each begin;
    `errors` float64 (N*K,)."""
    sizes = [one.columns.size for one in found]
    return {
        "lambdas": np.array([one.level for one in found]),
        "intercepts": np.array([one.intercept for one in found]),
        "objectives": np.array([one.objective for one in found]),
        "gaps": np.array([one.gap for one in found]),
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "columns": np.concatenate([np.empty(0, np.int64), *(one.columns for one in found)]),
        "coefficients": np.concatenate([np.empty(0), *(one.values for one in found)]),
        "errors": np.concatenate([np.empty(0), *(one.errors for one in found)]),
    }


def found_of(arrays: Mapping[str, np.ndarray]) -> list[Found]:
    """What `path_arrays` was given."""
    count, offsets = arrays["lambdas"].size, arrays["offsets"]
    errors = arrays["errors"].reshape(count, -1) if count else np.empty((0, 0))
    return [
        Found(
            float(arrays["lambdas"][i]),
            float(arrays["intercepts"][i]),
            arrays["columns"][offsets[i] : offsets[i + 1]].copy(),
            arrays["coefficients"][offsets[i] : offsets[i + 1]].copy(),
            float(arrays["objectives"][i]),
            float(arrays["gaps"][i]),
            errors[i].copy(),
        )
        for i in range(count)
    ]
