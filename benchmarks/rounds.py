"""Run rules of the dynamic engine, and record the objective against the data processed and against time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blocks import Design
from ooc.dynamic.engine import DynamicEngine
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.selection_rules import SelectionRule
from ooc.workers.worker import ProgramSpec

LASSO = ProgramSpec("samplers.regression.rounds.lasso:LassoRounds", {})
LOGISTIC = ProgramSpec("samplers.regression.rounds.logistic:LogisticRounds", {})
_LOOKS = 10  # at the objective, in a pass over the data


class RoundsProblem(NamedTuple):
    """A design, its program and its penalty.

    best: smallest known objective.
    """

    design: Design
    spec: ProgramSpec
    penalty: float
    best: float = 0.0

    @property
    def samples(self) -> int:
        """Return the number of samples in one pass over the data."""
        return self.design.rows * self.design.columns if self.design.dense else self.design.entries


class ObjectiveCurve(NamedTuple):
    """Passes over the data, seconds and objectives, before the first round and at several later times."""

    passes: list[float]
    seconds: list[float]
    objectives: list[float]

    def to_excess(self, problem: RoundsProblem, excess: float) -> tuple[float, float] | None:
        """Return passes and seconds until the excess fell to a fraction of the initial excess; None if it did not."""
        for passes, seconds, left in zip(self.passes, self.seconds, self.excess(problem), strict=True):
            if left <= excess:
                return passes, seconds
        return None

    def excess(self, problem: RoundsProblem) -> list[float]:
        """Return the excess over the best objective, as a fraction of the initial excess."""
        whole = self.objectives[0] - problem.best
        return [(objective - problem.best) / whole for objective in self.objectives]

    @property
    def passes_per_second(self) -> float:
        return self.passes[-1] / self.seconds[-1]


def shotgun(parallel: int, seed: int) -> SelectionRule:
    """Return the rule of Shotgun: random parameters, without a check, and without overlapping rounds."""
    return SelectionRule("random", parallel, parallel, None, pipeline=RoundPipeline(1, 1, 1), seed=seed)


def penalised(design: Design, spec: ProgramSpec, ratio: float, workers: int) -> RoundsProblem:
    """Return a problem whose penalty is a fraction of the smallest penalty for which all coefficients are 0."""
    with DynamicEngine(design, spec, SelectionRule(), workers) as engine:
        engine.hold()
        begin(engine, 0.0)
        engine.survey()  # without a penalty, an update is a product with the labels
        most = float(np.sqrt(engine.priorities.max())) * (0.25 if spec == LOGISTIC else 1.0)
    return RoundsProblem(design, spec, ratio * most)


def begin(engine: DynamicEngine, penalty: float) -> None:
    """Start with coefficients of 0."""
    engine.program.begin(engine.arrays, engine.columns, penalty)  # type: ignore[attr-defined]


def run(
    problem: RoundsProblem,
    rule: SelectionRule,
    passes: float,
    workers: int,
    kept: list[np.ndarray] | None = None,
    *,
    least: float = 0.0,
) -> ObjectiveCurve:
    """Run rounds of a rule for a number of passes over the data, until the excess falls below `least` or the objective
    doubles.

    kept: list that receives the coefficients, float64 (p,), at each evaluation of the objective.
    """
    rounds = max(int(problem.design.columns / rule.parallel / _LOOKS), 1)
    curve = ObjectiveCurve([0.0], [0.0], [])
    by_priority = rule.schedule == "priority"
    with DynamicEngine(problem.design, problem.spec, rule, workers) as engine:
        engine.hold()
        begin(engine, problem.penalty)
        seconds = timed(engine.survey) if by_priority else 0.0
        look(engine, curve, kept)
        while curve.passes[-1] < passes and not is_over(curve, problem, least):
            seconds += timed(lambda: engine.run(rounds))
            seconds += timed(engine.survey_if_settled) if by_priority else 0.0
            curve.passes.append(engine.samples / problem.samples)
            curve.seconds.append(seconds)
            look(engine, curve, kept)
    return curve


def look(engine: DynamicEngine, curve: ObjectiveCurve, kept: list[np.ndarray] | None) -> None:
    program: Any = engine.program
    curve.objectives.append(program.objective(engine.arrays, engine.columns.size))
    if kept is not None:
        kept.append(engine.arrays["coefficients"][: engine.columns.size].copy())


def is_over(curve: ObjectiveCurve, problem: RoundsProblem, least: float) -> bool:
    """Return whether the run has converged or diverged."""
    last = curve.objectives[-1]
    return not last < 2 * curve.objectives[0] or curve.excess(problem)[-1] < least


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a function takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def solved(problem: RoundsProblem, rule: SelectionRule, passes: float, workers: int) -> RoundsProblem:
    """Return the problem with the smallest objective of a long run without overlapping rounds."""
    careful = rule._replace(pipeline=RoundPipeline(1, 4, 1))
    return problem._replace(best=min(run(problem, careful, passes, workers).objectives))
