"""Which parameters a round of the dynamic engine updates: the default schedules, and the check of what they propose."""

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
_SAMPLED = 512  # entries of a column, on average, in the rows that the checker looks at, if there are more


class Rule(NamedTuple):
    """How rounds are made up.

    schedule: a key of `SCHEDULES`. parallel: parameters of a round, at most. candidates: from how many draws these are
    chosen. rho: two of a round have |x_j' x_k| < rho, see `ooc.dynamic.dependencies`; None does not look. centred:
    whether this is the correlation rather than the cosine. eta: added to each priority, as a share of their mean."""

    schedule: str = "priority"
    parallel: int = 64
    candidates: int = 128
    rho: float | None = 0.2
    centred: bool = True
    eta: float = 0.1
    pipeline: Pipeline = Pipeline(depth=3, schedulers=4, waves=1)
    seed: int = 0

    def for_parameters(self, count: int) -> Rule:
        """Return the rule for `count` parameters: few are one scheduler's, without rounds that overlap."""
        return self._replace(pipeline=Pipeline(1, 1, 1)) if count < _FEW else self


class Turn(NamedTuple):
    """A round that is to be scheduled: the `turn`-th of its scheduler, which has the parameters of a range.

    priorities: float64 (k,), of these parameters, and `sums`, see `ooc.dynamic.priorities`. random: of the scheduler.
    """

    turn: int
    parameters: range
    priorities: np.ndarray
    sums: Sums
    random: np.random.Generator
    rule: Rule

    @property
    def candidates(self) -> int:
        """How many candidates are wanted; there are no more than parameters."""
        return min(self.rule.candidates, len(self.parameters))

    def numbered(self, places: np.ndarray) -> np.ndarray:
        """int64: the parameters at some places of the range."""
        return self.parameters.start + self.parameters.step * places


def generator(seed: int, first: int, scheduler: int) -> np.random.Generator:
    """The random numbers of a scheduler for the rounds from number `first` on that are done together."""
    return np.random.Generator(np.random.Philox(key=[seed, (first << 16) + scheduler]))


def by_priority(turn: Turn) -> np.ndarray:
    """int64: parameters drawn with p(j) ~ priority_j + eta, in their order; the fewer, the fewer are worth it."""
    mean = turn.sums.priorities[1] / turn.priorities.size
    eta = turn.rule.eta * mean if mean > 0 else 1.0
    drawn = np.empty(turn.candidates, np.int64)
    count = draw(turn.priorities, turn.sums, eta, turn.random.random(drawn.size), drawn)
    return turn.numbered(drawn[:count])


def at_random(turn: Turn) -> np.ndarray:
    """int64: all have the same chance (Shotgun)."""
    return turn.numbered(turn.random.choice(len(turn.parameters), turn.candidates, replace=False))


def in_turn(turn: Turn) -> np.ndarray:
    """int64: one after the other. Each time round they begin one further, so that none always meets the same others
    in a round, and before it."""
    passed, size = turn.turn * turn.candidates, len(turn.parameters)
    return turn.numbered((passed + passed // size + np.arange(turn.candidates)) % size)


SCHEDULES: dict[str, Callable[[Turn], np.ndarray]] = {
    "priority": by_priority,
    "random": at_random,
    "cyclic": in_turn,
}


def check(rule: Rule) -> None:
    """Raise RequestError if a rule makes no sense."""
    depth, schedulers, waves = rule.pipeline
    wrong = {
        f"--schedule: {rule.schedule!r} is not known; choose one of {', '.join(SCHEDULES)}": rule.schedule
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
    """Keeps of candidates those that may be updated at once; of rows, where there are many, it looks at some."""

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
        """Those of the candidates, int64 (k,), that are kept, in the same order: as many as a round may have.

        updated: int64, parameters that others depend on, too, as they are being updated. group: columns of each.
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
