"""Resumable solver of a regression for one lambda by rounds of the dynamic engine.

A step does enough rounds to update every column once, then computes the duality gap from all columns, as
`samplers.regression.solver.working_sets` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from blocks.design.design import Design
from blocks.errors import WorkFailed
from ooc.dynamic.engine import DynamicEngine, shared_bytes
from ooc.dynamic.selection_rules import SelectionRule
from ooc.plan.memory_plan import processes_bytes
from ooc.workers.worker import ProgramSpec
from samplers.regression.linear_algebra.columns import combine
from samplers.regression.path.solver import Found, found_model, found_models, path_arrays, require_path
from samplers.regression.program import RegressionProgram
from samplers.regression.solver.correlations import ResidualCorrelationRequest
from samplers.regression.solver.dual_gap import compute_dual_gap, penalty_slopes, steepest_slope
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.solver.working_sets import RegressionSolution

_SPECS = {"squared": "lasso:LassoRounds", "logistic": "logistic:LogisticRounds"}
_DIVERGED = 2.0  # relative to the objective of the null model
MOST_STEPS = 1000  # maximum number of steps of a run


def selection_rule(
    design: Design, schedule: str, parallelism: int, rho: float | None, seed: int, *, centred: bool
) -> SelectionRule:
    """Return the rule of rounds; without a bound rho on correlations, a round updates all drawn columns."""
    candidates = parallelism if rho is None else 2 * parallelism
    return SelectionRule(schedule, parallelism, candidates, rho, centred, seed=seed).for_parameters(design.columns)


def round_bytes(program: RegressionProgram, rule: SelectionRule, workers: int) -> int:
    """Return the size in bytes of all columns, which are held in memory, and the memory of the workers."""
    return processes_bytes(workers) + sum(shared_bytes(program.design, _spec(program), rule, workers))


def _spec(program: RegressionProgram) -> ProgramSpec:
    options = {"intercept": program.intercept} if program.loss == "squared" else {}
    return ProgramSpec(f"samplers.regression.rounds.{_SPECS[program.loss]}", options)


class RoundSolver:
    """Solver of a program without folds for its only lambda.

    room: bytes for columns with nonzero coefficients. Attributes: those of
        `samplers.regression.path.solver.LambdaPathSolver`; `found` has the result of each step.
    """

    def __init__(self, program: RegressionProgram, rule: SelectionRule, workers: int, room: int) -> None:
        self._program, self._rule = program, rule
        (self._features,), (self._whole,) = program.build(workers, room, SolverLimit(), None)
        self._engine = DynamicEngine(program.design, _spec(program), rule, workers)
        self.lambdas, self.found = np.empty(0), list[Found]()
        self.errors: list[list[float]] = []
        self._bound = -np.inf  # lower bound on the objective for any coefficients

    def close(self) -> None:
        self._engine.__exit__()

    @property
    def pids(self) -> list[int]:
        return [os.getpid(), *self._engine.pids]

    @property
    def bytes_read(self) -> int:
        return self._features.bytes_read

    @property
    def samples(self) -> int:
        return self._features.samples + self._engine.samples

    @property
    def largest(self) -> float:
        return self._whole.largest

    @property
    def constant(self) -> np.ndarray:
        return self._whole.constant

    @property
    def gap(self) -> float:
        """Return the duality gap after the last step, relative to the loss of the null model."""
        return self.found[-1].gap / self._whole.nothing.fit.loss if self.found else np.inf

    @property
    def solved(self) -> int:
        return len(self.found)

    @property
    def models(self) -> list[Found]:
        return self.found[-1:]

    @property
    def done(self) -> bool:
        return self.gap <= self._program.tolerance

    def validation(self) -> None:
        """Return None, as there are no folds."""

    def begin(self) -> None:
        """Load the columns, and start with all coefficients 0."""
        asked = self._program.levels
        self.lambdas = np.array([asked["lambda"]]) if "lambda" in asked else self._whole.lambdas(1, asked["ratio"])
        self._hold()
        if self._rule.schedule == "priority":
            self._engine.survey()

    def _hold(self) -> None:
        """Load the columns, scaled to norm 1; penalties refer to the scaled coefficients."""
        engine, regression, lam = self._engine, self._whole.regression, float(self.lambdas[0])
        engine.hold(regression.usable)
        l1, l2 = regression.penalty.at(lam, engine.columns)
        scales, rounds = regression.norms[engine.columns], engine.program
        if self._program.loss == "squared":
            rounds.begin(engine.arrays, engine.columns, l1 / scales, l2 / scales**2)  # type: ignore[attr-defined]
        else:
            labels = 2 * self._program.y - 1
            rounds.begin(engine.arrays, engine.columns, l1 / scales, labels)  # type: ignore[attr-defined]

    def step(self) -> None:
        """Do one step of rounds.

        Raises WorkFailed if the rounds diverge or do not converge.
        """
        engine = self._engine
        engine.run(max(engine.columns.size // self._rule.parallel, 1))
        if self._rule.schedule == "priority":
            engine.survey_if_settled()
        self.found.append(self._look())
        self._check()

    def _look(self) -> Found:
        """Compute the objective and the duality gap of the current coefficients, with a recomputed residual."""
        regression, lam = self._whole.regression, float(self.lambdas[0])
        held, scores = self._engine.columns, np.empty(self._program.design.rows)
        b = self._engine.arrays["coefficients"][: held.size] / regression.norms[held]
        support, values = held[b != 0], b[b != 0]
        combine(regression.features.gather(support), np.arange(support.size), values, scores)
        fit = regression.loss.fit(scores, self._whole.nothing.fit.free)
        wanted = ResidualCorrelationRequest(fit.residual, lam, support)
        seen = regression.correlations.see(wanted, regression.usable)
        l1, l2 = regression.penalty.at(lam, support)
        slopes = penalty_slopes(seen.chosen, seen.values, support, l2 * values)
        gains = regression.correlations.gains[: seen.chosen.size]
        steepest = steepest_slope(seen.chosen, slopes, gains, lam, regression.penalty.l1, regression.norms)
        found = compute_dual_gap(regression.loss, fit, steepest, l1, l2, values)
        self._bound = max(self._bound, found.bound)
        gap = max(found.objective - self._bound, 0.0)
        return found_model(self._whole, RegressionSolution(lam, support, values, fit, found.objective, gap))

    def _check(self) -> None:
        lam, rule, last = float(self.lambdas[0]), self._rule, self.found[-1]
        remedy = "Reduce --parallelism or --rho, use --schedule priority, or omit --schedule."
        if not last.objective < _DIVERGED * self._whole.nothing.objective:
            raise WorkFailed(
                f"lambda {lam:g}: --schedule {rule.schedule} with rounds of {rule.parallel} updates diverges:"
                f" the objective is {last.objective:g}, and {self._whole.nothing.objective:g} for the null model",
                remedy,
            )
        if self.solved >= MOST_STEPS and not self.done:
            raise WorkFailed(
                f"lambda {lam:g}: did not converge in {MOST_STEPS} passes; the duality gap is {last.gap:g}",
                f"Increase --tolerance. {remedy}",
            )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state to resume from, as one-dimensional arrays. Of earlier steps, only their number is kept, not
        their results.
        """
        steps = {"levels": self.lambdas, "steps": np.array([self.solved]), "bound": np.array([self._bound])}
        rounds = {f"rounds.{name}": array for name, array in self._engine.committed().items()}
        return steps | path_arrays(self.models) | rounds

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state of `arrays`."""
        self.lambdas, self._bound = arrays["levels"].copy(), float(arrays["bound"][0])
        steps = int(arrays["steps"][0])
        require_path(self.lambdas, self._program.length, 0)
        if not 0 <= steps <= MOST_STEPS:
            raise ValueError(f"{steps} steps")
        self.found = found_models(arrays) * steps
        self._hold()
        begin = "rounds."
        self._engine.restore({name.removeprefix(begin): array for name, array in arrays.items() if begin in name})
