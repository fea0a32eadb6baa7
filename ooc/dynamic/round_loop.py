"""Run one worker's share of the rounds of the dynamic engine, on arrays that all workers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from blocks.design.design import Design
from ooc.dynamic.held_columns import band_bounds, held
from ooc.dynamic.priorities import Sums, add_up, bound, change, empty_sums
from ooc.dynamic.round_program import RoundProgram, Survey, Wave
from ooc.dynamic.rounds import Pipeline, Step
from ooc.dynamic.schedules import Checker, Rule, Turn, generator
from ooc.workers.atomics import counters_spec, have_reached, raise_to
from ooc.workers.shared_arrays import ArraySpec

PRIORITIES = "rounds.priorities"  # float64 (S, k) for S schedulers; parameter j is at [j % S, j // S]
# Counts of rounds scheduled, and of waves aggregated, by each scheduler; of waves updated by each worker, and by all
# other machines; and the stop flag.
COUNTERS = "rounds.counters"
_PARAMETERS, COUNTS, SUMS, _CHANGES = (f"rounds.{name}" for name in ("parameters", "counts", "partial", "changes"))
_TREES = ("rounds.tree_priorities", "rounds.tree_parameters")
LOOKS = 1_500  # polls of a counter, about 30 microseconds, before the worker yields the processor


class Shape(NamedTuple):
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


def round_specs(design: Design, program: RoundProgram, rule: Rule, shape: Shape) -> dict[str, ArraySpec]:
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


def place_of(step: Step, pipeline: Pipeline, counts: np.ndarray) -> tuple[int, slice]:
    """Return the slot of a round and the slice of its parameters that belongs to a wave.

    counts: int64, number of parameters in each slot.
    """
    slot, waves = step.round % pipeline.slots, pipeline.waves
    count = int(counts[slot])
    return slot, slice(count * step.wave // waves, count * (step.wave + 1) // waves)


class Stopped(Exception):
    """Raised in a worker that is waiting for another process when that process has failed."""


def stop(counters: np.ndarray) -> None:
    """Set the stop flag, which makes all waiting workers raise Stopped."""
    raise_to(counters, len(counters) - 1, 1)


class RoundLoop:
    """Runs the steps of the worker with index `number` in rounds. Attributes: `samples`, number of values read so
    far.
    """

    def __init__(
        self, program: RoundProgram, rule: Rule, shape: Shape, number: int, shared: Mapping[str, np.ndarray]
    ) -> None:
        self._program, self._rule, self._pipeline = program, rule, rule.pipeline
        self._shape, self._number, self._shared = shape, number, shared
        self._mine = range(number, rule.pipeline.schedulers, shape.workers)
        self._counters, self._parameters, self._counts = shared[COUNTERS], shared[_PARAMETERS], shared[COUNTS]
        self._bands = shape.bands_of(number, shared[SUMS].shape[2])
        self._columns = held(program.design, shared)
        self._trees = [Sums(*trees) for trees in zip(*(shared[name] for name in _TREES), strict=True)]
        rows, columns = program.design.rows, program.design.columns
        self._checker = Checker(rule, rows, rows if program.design.dense else program.design.entries / columns)
        self._first = self._held = 0
        self._random: dict[int, np.random.Generator] = {}
        self._waves: dict[tuple[int, int], Wave] = {}  # waves updated but not yet applied, by round and wave number
        self.samples = 0

    def run(self, first: int, last: int, parameters: int) -> Iterator[bool]:
        """Run rounds `first` to `last` (exclusive) over `parameters` parameters.

        Yields True after each poll in which other workers were not ready, and False after each step. Raises Stopped if
        another process has failed.
        """
        self._first, self._held, self._waves = first, parameters, {}
        self._random = {scheduler: generator(self._rule.seed, first, scheduler) for scheduler in self._mine}
        for scheduler in self._mine:
            add_up(self._priorities_of(scheduler), self._trees[scheduler])
        do = {"schedule": self._schedule, "update": self._update, "aggregate": self._aggregate, "apply": self._apply}
        for step in self._pipeline.steps(first, last, self._mine):
            yield from self._wait(step)
            do[step.what](step)
            yield False

    def _wait(self, step: Step) -> Iterator[bool]:
        for first, last, value in self._needed(step):
            while not have_reached(self._counters, first, last, value, LOOKS):
                if have_reached(self._counters, len(self._counters) - 1, len(self._counters), 1, 1):
                    raise Stopped
                yield True

    def _needed(self, step: Step) -> list[tuple[int, int, int]]:
        """Return the counters that a step waits for, as tuples (first, last (exclusive), minimum value)."""
        schedulers = self._pipeline.schedulers
        scheduler, mark = step.round % schedulers, self._mark(step)
        if step.what == "schedule":
            before = self._pipeline.in_the_making(step.round, self._first)
            return [(other % schedulers, other % schedulers + 1, other + 1) for other in before]
        if step.what == "update":
            return [(scheduler, scheduler + 1, step.round + 1)]
        if step.what == "aggregate":
            others = 1 if self._shape.ranks > 1 else 0
            return [(2 * schedulers, 2 * schedulers + self._shape.workers + others, mark)]
        return [(schedulers + scheduler, schedulers + scheduler + 1, mark)]

    def _mark(self, step: Step) -> int:
        """Return the value of a wave counter after a step. Waves are counted from 1 over all rounds."""
        return step.round * self._pipeline.waves + step.wave + 1

    def _priorities_of(self, scheduler: int) -> np.ndarray:
        return self._shared[PRIORITIES][scheduler, : len(self._parameters_of(scheduler))]

    def _parameters_of(self, scheduler: int) -> range:
        return range(scheduler, self._held, self._pipeline.schedulers)

    def _schedule(self, step: Step) -> None:
        turn, scheduler = divmod(step.round, self._pipeline.schedulers)
        slot, chosen = step.round % self._pipeline.slots, np.empty(0, np.int64)
        if parameters := self._parameters_of(scheduler):
            priorities, sums = self._priorities_of(scheduler), self._trees[scheduler]
            random = self._random[scheduler]
            candidates = self._program.schedule(Turn(turn, parameters, priorities, sums, random, self._rule))
            updated = self._updated(step.round)
            chosen = self._checker.independent(self._columns, candidates, updated, self._program.group)
            chosen = chosen[np.argsort(-priorities[chosen // self._pipeline.schedulers], kind="stable")]
        self._parameters[slot, : chosen.size] = chosen
        self._counts[slot] = chosen.size
        raise_to(self._counters, scheduler, step.round + 1)

    def _updated(self, number: int) -> np.ndarray:
        """Return the parameters, int64, of the rounds that are incomplete when round `number` is computed."""
        slots = [other % self._pipeline.slots for other in self._pipeline.in_the_making(number, self._first)]
        return np.concatenate(
            [self._parameters[slot, : self._counts[slot]] for slot in slots] or [np.empty(0, np.int64)]
        )

    def _wave(self, step: Step) -> Wave:
        slot, mine = place_of(step, self._pipeline, self._counts)
        return Wave(
            parameters=self._parameters[slot, mine],
            columns=self._columns,
            bands=self._bands,
            sums=self._shared[SUMS][slot, mine],
            changes=self._shared[_CHANGES][slot, mine],
            priorities=np.empty(mine.stop - mine.start),
            shared=self._shared,
        )

    def _update(self, step: Step) -> None:
        wave = self._waves[step.round, step.wave] = self._wave(step)
        self.samples += self._program.update(wave)
        raise_to(self._counters, 2 * self._pipeline.schedulers + self._number, self._mark(step))

    def _aggregate(self, step: Step) -> None:
        wave, scheduler = self._waves[step.round, step.wave], step.round % self._pipeline.schedulers
        self._program.aggregate(wave)
        bound(wave.priorities)
        places = wave.parameters // self._pipeline.schedulers
        change(self._priorities_of(scheduler), self._trees[scheduler], places, wave.priorities)
        raise_to(self._counters, self._pipeline.schedulers + scheduler, self._mark(step))

    def _apply(self, step: Step) -> None:
        self._program.apply(self._waves.pop((step.round, step.wave)))

    def start(self, parameters: int) -> None:
        """Compute the row arrays in this worker's bands from the initial values of `parameters` parameters."""
        nothing = np.empty(0)
        held = np.arange(parameters), self._columns, self._bands
        self._program.start(Wave(*held, nothing, nothing, nothing, self._shared))

    def survey(self, parameters: np.ndarray) -> int:
        """Set the priorities of parameters, int64 (c,); returns the number of values read."""
        schedulers, priorities = self._pipeline.schedulers, np.empty(parameters.size)
        samples = self._program.survey(Survey(parameters, self._columns, priorities, self._shared))
        bound(priorities)
        self._shared[PRIORITIES][parameters % schedulers, parameters // schedulers] = priorities
        return samples
