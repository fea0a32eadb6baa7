"""Run one worker's share of the rounds of the dynamic engine, on arrays that all workers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from blocks.design.design import Design
from ooc.dynamic.held_columns import band_bounds, held_columns_of_arrays
from ooc.dynamic.priority_sampling import PrioritySumTree, clip_priorities, empty_sums, sum_priorities
from ooc.dynamic.round_program import ParameterSurvey, ParameterWave, RoundProgram, WorkerSteps
from ooc.dynamic.round_schedule import SCHEDULE
from ooc.dynamic.round_steps import CandidateProposals, RoundState, StepParameters, owned_parameter_count
from ooc.dynamic.selection_rules import SelectionRule, candidate_check, generator, proposals
from ooc.workers.atomics import counters_spec, have_reached, raise_to
from ooc.workers.shared_arrays import ArraySpec

# Names of the arrays of `ooc.dynamic.round_steps.RoundState`.
_ROUNDS = tuple(f"rounds.{name}" for name in RoundState._fields)
COUNTERS, _PARAMETERS, COUNTS, PRIORITIES, *_TREES = _ROUNDS
SUMS, _CHANGES = "rounds.partial", "rounds.changes"
_AT_ONCE = 256  # maximum number of steps taken in one call


class RoundLoopShape(NamedTuple):
    """Number of workers, and maximum number of parameters held.

    rank, ranks: rank of this machine, and number of machines in the ring; bands are split evenly among the machines.
    """

    workers: int
    most: int
    rank: int = 0
    ranks: int = 1

    def bands_here(self, bands: int) -> tuple[int, int]:
        """Return the range of this machine's bands, first and last (exclusive), out of `bands` bands."""
        return bands * self.rank // self.ranks, bands * (self.rank + 1) // self.ranks

    def bands_of(self, worker: int, bands: int) -> tuple[int, int]:
        """Return the range of a worker's bands, first and last (exclusive), out of `bands` bands."""
        first, last = self.bands_here(bands)
        here = last - first
        return first + here * worker // self.workers, first + here * (worker + 1) // self.workers


def round_specs(
    design: Design, program: RoundProgram, rule: SelectionRule, shape: RoundLoopShape
) -> dict[str, ArraySpec]:
    """Return the specs of the shared arrays of a `RoundLoop`, except the program's arrays and the held columns."""
    slots, schedulers = rule.pipeline.slots, rule.pipeline.schedulers
    bands = band_bounds(design).size - 1
    most = -(-shape.most // schedulers)
    tree = empty_sums(most).priorities.size
    return {
        COUNTERS: counters_spec(2 * schedulers + shape.workers + 2),
        _PARAMETERS: ArraySpec((slots, rule.parallel), "int64"),
        COUNTS: ArraySpec((slots,), "int64"),
        SUMS: ArraySpec((slots, rule.parallel, bands, *program.sums_shape), "float64"),
        _CHANGES: ArraySpec((slots, rule.parallel, *program.change_shape), "float64"),
        PRIORITIES: ArraySpec((schedulers, most), "float64"),
        _TREES[0]: ArraySpec((schedulers, tree), "float64"),
        _TREES[1]: ArraySpec((schedulers, tree), "int64"),
    }


class RoundsStopped(Exception):
    """Raised in a worker that is waiting for another process when that process has failed."""


def set_stop_flag(counters: np.ndarray) -> None:
    """Set the stop flag, which makes all waiting workers raise RoundsStopped."""
    raise_to(counters, len(counters) - 1, 1)


def is_stopped(counters: np.ndarray) -> bool:
    """Return whether the stop flag is set."""
    return bool(have_reached(counters, len(counters) - 1, len(counters), 1, 1))


class RoundLoop:
    """Runs the steps of the worker with index `number` in rounds. Attributes: `samples`, number of values read so
    far.
    """

    def __init__(
        self,
        program: RoundProgram,
        rule: SelectionRule,
        shape: RoundLoopShape,
        number: int,
        shared: Mapping[str, np.ndarray],
    ) -> None:
        self._program, self._rule, self._shared = program, rule, shared
        pipeline, design = rule.pipeline, program.design
        self._mine = range(number, pipeline.schedulers, shape.workers)
        self._order = StepParameters(
            depth=pipeline.depth,
            schedulers=pipeline.schedulers,
            waves=pipeline.waves,
            slots=pipeline.slots,
            workers=shape.workers,
            worker=number,
            others=int(shape.ranks > 1),
            first=0,
            held=0,
        )
        self._rounds = RoundState(*(shared[name] for name in _ROUNDS))
        self._bands = shape.bands_of(number, shared[SUMS].shape[2])
        self._columns = held_columns_of_arrays(design, shared)
        entries = design.rows if design.dense else design.entries / design.columns
        self._check = candidate_check(rule, program.group, design.rows, entries)
        self.samples = 0

    def run(self, first: int, last: int, parameters: int) -> Iterator[bool]:
        """Run rounds `first` to `last` (exclusive) over `parameters` parameters.

        Yields True after each poll in which other workers were not ready, and False after each step or several. Raises
        RoundsStopped if another process has failed.
        """
        self._order = self._order._replace(first=first, held=parameters)
        random = {scheduler: generator(self._rule.seed, first, scheduler) for scheduler in self._mine}
        for scheduler in self._mine:
            trees = PrioritySumTree(self._rounds.tree_priorities[scheduler], self._rounds.tree_parameters[scheduler])
            sum_priorities(self._rounds.priorities[scheduler, : owned_parameter_count(scheduler, self._order)], trees)
        steps = self._rule.pipeline.steps(first, last, self._mine)
        for begin in range(0, len(steps), _AT_ONCE):
            some = steps[begin : begin + _AT_ONCE]
            ahead = self._ahead(some, proposals(some[some[:, 0] == SCHEDULE, 1], self._order, self._rule, random))
            while ahead.steps.size:
                done, samples = self._program.advance(ahead)
                if not done and is_stopped(self._rounds.counters):
                    raise RoundsStopped
                self.samples += samples
                ahead = ahead._replace(steps=ahead.steps[done:])
                yield done == 0

    def _ahead(self, steps: np.ndarray, proposed: CandidateProposals) -> WorkerSteps:
        return WorkerSteps(
            steps=steps,
            order=self._order,
            rounds=self._rounds,
            proposals=proposed,
            check=self._check,
            columns=self._columns,
            bands=self._bands,
            sums=self._shared[SUMS],
            changes=self._shared[_CHANGES],
            shared=self._shared,
        )

    def start(self, parameters: int) -> None:
        """Compute the row arrays in this worker's bands from the initial values of `parameters` parameters."""
        nothing = np.empty(0)
        held = np.arange(parameters), self._columns, self._bands
        self._program.start(ParameterWave(*held, nothing, nothing, nothing, self._shared))

    def survey(self, parameters: np.ndarray) -> int:
        """Set the priorities of parameters, int64 (c,); returns the number of values read."""
        schedulers, priorities = self._order.schedulers, np.empty(parameters.size)
        samples = self._program.survey(ParameterSurvey(parameters, self._columns, priorities, self._shared))
        clip_priorities(priorities)
        self._shared[PRIORITIES][parameters % schedulers, parameters // schedulers] = priorities
        return samples
