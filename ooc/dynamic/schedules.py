"""Choose the parameters of a round of the dynamic engine: default schedules and the check of their candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from ooc.dynamic.dependencies import NOBODY, independent_columns, independent_vectors, unit_vectors
from ooc.dynamic.held_columns import HeldDense, HeldSparse
from ooc.dynamic.priorities import Sums, draw
from ooc.dynamic.rounds import Pipeline

_FEW = 256  # parameters
_SAMPLED = 512  # mean sampled entries per column; designs with more entries are checked on a sample of rows


class Rule(NamedTuple):
    """How the parameters of a round are chosen. schedule: a key of `SCHEDULES`. parallel: maximum number of parameters
    in a round. candidates: number of draws from which the parameters are chosen. rho: any two columns in a round have
    |x_j' x_k| < rho, see `ooc.dynamic.dependencies`; None for no check. centred: whether x_j' x_k is the correlation
    rather than the cosine. eta: number added to each priority, as a fraction of the mean priority.
    """

    schedule: str = "priority"
    parallel: int = 64
    candidates: int = 128
    rho: float | None = 0.2
    centred: bool = True
    eta: float = 0.1
    pipeline: Pipeline = Pipeline(depth=3, schedulers=4, waves=1)
    seed: int = 0

    def for_parameters(self, count: int) -> Rule:
        """Return the rule for `count` parameters; with few parameters, there is one scheduler, and rounds do not
        overlap."""
        return self._replace(pipeline=Pipeline(1, 1, 1)) if count < _FEW else self


class Turn(NamedTuple):
    """Input of a schedule function: a round to be scheduled. turn: number of the round among those of its scheduler.
    parameters: range of parameters that the scheduler owns. priorities: float64 (k,), priorities of these parameters.
    sums: see `ooc.dynamic.priorities`. random: random number generator of the scheduler.
    """

    turn: int
    parameters: range
    priorities: np.ndarray
    sums: Sums
    random: np.random.Generator
    rule: Rule

    @property
    def candidates(self) -> int:
        """Return the number of candidates to propose, at most the number of parameters."""
        return min(self.rule.candidates, len(self.parameters))

    def numbered(self, places: np.ndarray) -> np.ndarray:
        """Return the parameters, int64, at the given positions in the range."""
        return self.parameters.start + self.parameters.step * places


def generator(seed: int, first: int, scheduler: int) -> np.random.Generator:
    """Return the random number generator of a scheduler for the rounds of one run that starts with round `first`."""
    return np.random.Generator(np.random.Philox(key=[seed, (first << 16) + scheduler]))


def by_priority(turn: Turn) -> np.ndarray:
    """Draw parameters with p(j) proportional to priority_j + eta; returns the distinct ones, int64, in the order of
    draws.

    The fewer parameters have a large priority, the fewer distinct parameters are drawn.
    """
    mean = turn.sums.priorities[1] / turn.priorities.size
    eta = turn.rule.eta * mean if mean > 0 else 1.0
    drawn = np.empty(turn.candidates, np.int64)
    count = draw(turn.priorities, turn.sums, eta, turn.random.random(drawn.size), drawn)
    return turn.numbered(drawn[:count])


def at_random(turn: Turn) -> np.ndarray:
    """Draw parameters with equal probability (Shotgun); returns int64."""
    return turn.numbered(turn.random.choice(len(turn.parameters), turn.candidates, replace=False))


def in_turn(turn: Turn) -> np.ndarray:
    """Return the next parameters in cyclic order, int64.

    Each cycle starts one parameter later, so that a parameter is not always in a round with the same others.
    """
    passed, size = turn.turn * turn.candidates, len(turn.parameters)
    return turn.numbered((passed + passed // size + np.arange(turn.candidates)) % size)


SCHEDULES: dict[str, Callable[[Turn], np.ndarray]] = {
    "priority": by_priority,
    "random": at_random,
    "cyclic": in_turn,
}


def check(rule: Rule) -> None:
    """Raise RequestError if a rule is invalid."""
    depth, schedulers, waves = rule.pipeline
    wrong = {
        f"--schedule: unknown schedule {rule.schedule!r}; choose one of {', '.join(SCHEDULES)}": rule.schedule
        not in SCHEDULES,
        f"--parallelism must be at least 1, got {rule.parallel}": rule.parallel < 1,
        f"candidates must be at least the parallelism {rule.parallel}, got {rule.candidates}": rule.candidates
        < rule.parallel,
        f"--rho must be above 0, got {rule.rho}": rule.rho is not None and not rule.rho > 0,
        f"eta must be above 0, got {rule.eta}": not rule.eta > 0,
        f"the depth of the pipeline and its waves must be at least 1, got {depth} and {waves}": depth < 1 or waves < 1,
        f"schedulers must be at least the depth {depth} of the pipeline, got {schedulers}": schedulers < depth,
    }
    for what in (what for what, holds in wrong.items() if holds):
        raise RequestError(what)


class Checker:
    """Selects candidates that can be updated simultaneously, based on correlations in all rows or a sample of rows."""

    def __init__(self, rule: Rule, rows: int, entries_of_a_column: float) -> None:
        self._rule = rule
        sampled = min(rows, int(rows * _SAMPLED / max(entries_of_a_column, 1.0)))
        self._rows = np.sort(np.random.default_rng(rule.seed).permutation(rows)[:sampled])
        self._sampled = np.zeros(rows, bool)
        self._sampled[self._rows] = True
        self._last = np.full(rows, NOBODY)

    def independent(
        self, columns: HeldSparse | HeldDense, candidates: np.ndarray, updated: np.ndarray, group: int = 1
    ) -> np.ndarray:
        """Return the first candidates, int64 (k,), for one round, that are independent of each other and of `updated`.

        updated: int64, parameters that are being updated at the same time. group: number of columns per parameter.
        """
        rule, taken = self._rule, updated.size
        if rule.rho is None:
            return candidates[: rule.parallel]
        chosen, together = np.empty(taken + rule.parallel, np.int64), np.concatenate((updated, candidates))
        members = (group * together[:, None] + np.arange(group)).reshape(-1)
        if isinstance(columns, HeldDense):
            vectors = np.empty((members.size, self._rows.size), np.float32)
            unit_vectors(columns.values, members, self._rows, rule.centred, vectors)
            count = independent_vectors(vectors, group, taken, rule.rho, chosen)
        else:
            bounds = columns.bounds
            entries = bounds[:, 0], bounds[:, -1], columns.rows, columns.values
            sample = self._sampled, rule.centred, rule.rho, self._last
            count = independent_columns(*entries, members, group, taken, *sample, chosen)
        return together[chosen[taken:count]]
