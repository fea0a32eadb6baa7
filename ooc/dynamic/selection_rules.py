"""Rules by which the dynamic engine chooses the parameters of a round, and the schedules that propose them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from ooc.dynamic.candidate_independence import NOBODY, CandidateCheck
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.round_steps import CandidateProposals, StepParameters, owned_parameter_count

_FEW = 256  # parameters
_SAMPLED = 512  # mean sampled entries per column; designs with more entries are checked on a sample of rows


class SelectionRule(NamedTuple):
    """How the parameters of a round are chosen.

    schedule: a key of `SCHEDULES`.
    parallel: maximum number of parameters in a round.
    candidates: number of draws from which the parameters are chosen.
    rho: any two columns in a round have |x_j' x_k| < rho, see `ooc.dynamic.candidate_independence`; None for no check.
    centred: whether x_j' x_k is the correlation rather than the cosine.
    eta: number added to each priority, as a fraction of the mean priority.
    """

    schedule: str = "priority"
    parallel: int = 64
    candidates: int = 128
    rho: float | None = 0.2
    centred: bool = True
    eta: float = 0.1
    pipeline: RoundPipeline = RoundPipeline(depth=3, schedulers=4, waves=1)
    seed: int = 0

    def for_parameters(self, count: int) -> SelectionRule:
        """Return the rule for `count` parameters; with few parameters, there is one scheduler, and rounds do not
        overlap."""
        return self._replace(pipeline=RoundPipeline(1, 1, 1)) if count < _FEW else self


def generator(seed: int, first: int, scheduler: int) -> np.random.Generator:
    """Return the random number generator of a scheduler for the rounds of one run that starts with round `first`."""
    return np.random.Generator(np.random.Philox(key=[seed, (first << 16) + scheduler]))


def at_random(turns: range, size: int, rule: SelectionRule, random: np.random.Generator) -> np.ndarray:
    """Return candidates of equal probability (Shotgun), int64 (turns, c)."""
    count = min(rule.candidates, size)
    return np.array([random.choice(size, count, replace=False) for _ in turns]).reshape(-1, count)


def in_turn(turns: range, size: int, rule: SelectionRule, _: np.random.Generator) -> np.ndarray:
    """Return the next parameters in cyclic order, int64 (turns, c).

    Each cycle starts one parameter later, so that a parameter is not always in a round with the same others.
    """
    passed = np.array(turns)[:, None] * min(rule.candidates, size)
    return (passed + passed // size + np.arange(min(rule.candidates, size))) % size


def uniforms(turns: range, size: int, rule: SelectionRule, random: np.random.Generator) -> np.ndarray:
    """Return random numbers in [0, 1), float64 (turns, c), by which `ooc.dynamic.round_steps.parameters_in_flight`
    draws candidates by priority."""
    return random.random((len(turns), min(rule.candidates, size)))


# Functions of some turns of a scheduler, the number of its parameters, the rule and the scheduler's generator.
SCHEDULES: dict[str, Callable[[range, int, SelectionRule, np.random.Generator], np.ndarray]] = {
    "priority": uniforms,
    "random": at_random,
    "cyclic": in_turn,
}


def proposals(
    numbers: np.ndarray, order: StepParameters, rule: SelectionRule, random: Mapping[int, np.random.Generator]
) -> CandidateProposals:
    """Return the random numbers or positions from which rounds choose their candidates. numbers: int64 (r,), ascending,
    the rounds.

    random: generators of the schedulers, each of which continues with its next turn.
    """
    first, last = (int(number) // order.schedulers for number in (numbers[0], numbers[-1])) if numbers.size else (0, -1)
    by_priority = rule.schedule == "priority"
    found = np.zeros((last + 1 - first, order.schedulers, rule.candidates), np.float64 if by_priority else np.int64)
    for scheduler, own in random.items():
        turns = numbers[numbers % order.schedulers == scheduler] // order.schedulers
        if turns.size and (size := owned_parameter_count(scheduler, order)):
            some = range(turns[0], turns[-1] + 1)
            drawn = SCHEDULES[rule.schedule](some, size, rule, own)
            found[some.start - first : some.stop - first, scheduler, : drawn.shape[1]] = drawn
    empty = np.empty((0, 0, 0), np.int64 if by_priority else np.float64)
    return CandidateProposals(first, rule.eta, *((found, empty) if by_priority else (empty, found)))


def check_rule(rule: SelectionRule) -> None:
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


def candidate_check(rule: SelectionRule, group: int, rows: int, entries_of_a_column: float) -> CandidateCheck:
    """Return how the candidates of a rule are checked: on all rows, or on a sample of the rows of longer columns."""
    count = min(rows, int(rows * _SAMPLED / max(entries_of_a_column, 1.0)))
    sample = np.sort(np.random.default_rng(rule.seed).permutation(rows)[:count])
    sampled = np.zeros(rows, bool)
    sampled[sample] = True
    rho = np.inf if rule.rho is None else float(rule.rho)
    return CandidateCheck(rule.parallel, group, rho, rule.centred, sample, sampled, np.full(rows, NOBODY))
