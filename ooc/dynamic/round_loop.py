"""One worker's way through the rounds of the dynamic engine, on arrays that all workers share."""

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

PRIORITIES = "rounds.priorities"  # (S, k): parameter j is number j // S of scheduler j % S
# Of schedulers: rounds scheduled, then waves aggregated; of workers: waves updated; of other machines: likewise; stop.
COUNTERS = "rounds.counters"
_PARAMETERS, COUNTS, SUMS, _CHANGES = (f"rounds.{name}" for name in ("parameters", "counts", "partial", "changes"))
_TREES = ("rounds.tree_priorities", "rounds.tree_parameters")
LOOKS = 1_500  # at counters, some 30 microseconds, before somebody else may have the processor


class Shape(NamedTuple):
    """Sizes: how many workers there are, and how many parameters may be held.

    rank, ranks: of a ring, whose machines have as many of the bands each.
    """

    workers: int
    most: int
    rank: int = 0
    ranks: int = 1

    def bands_here(self, bands: int) -> tuple[int, int]:
        """Of so many bands the first of this machine, and the one after its last."""
        return bands * self.rank // self.ranks, bands * (self.rank + 1) // self.ranks

    def bands_of(self, worker: int, bands: int) -> tuple[int, int]:
        """Of so many bands the first of a worker, and the one after its last."""
        first, last = self.bands_here(bands)
        here = last - first
        return first + here * worker // self.workers, first + here * (worker + 1) // self.workers


def round_specs(design: Design, program: RoundProgram, rule: Rule, shape: Shape) -> dict[str, ArraySpec]:
    """The shared arrays of a `RoundLoop`, besides the program's and those of the columns held."""
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
    """The slot of a round, and where the parameters of a wave are in it. counts: int64, parameters of each slot."""
    slot, waves = step.round % pipeline.slots, pipeline.waves
    count = int(counts[slot])
    return slot, slice(count * step.wave // waves, count * (step.wave + 1) // waves)


class Stopped(Exception):
    """Another process has failed: there is nothing to wait for."""


def stop(counters: np.ndarray) -> None:
    """Have all workers that wait for others raise Stopped."""
    raise_to(counters, len(counters) - 1, 1)


class RoundLoop:
    """The steps of worker `number`. Attributes: `samples`, how many it has read so far."""

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
        self.samples = 0

    def run(self, first: int, last: int, parameters: int) -> Iterator[bool]:
        """Do the rounds from `first` to `last` (exclusive) over so many parameters.

        Yields True whenever it has looked in vain for what it waits for from others, False after each step. Raises
        Stopped.
        """
        self._first, self._held = first, parameters
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
        """Which counters, from the first to the last (exclusive), must reach which value before a step is done."""
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
        """What counts waves, from 1 on."""
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
        """int64: the parameters of the rounds that are in the making when a round is computed."""
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
        self.samples += self._program.update(self._wave(step))
        raise_to(self._counters, 2 * self._pipeline.schedulers + self._number, self._mark(step))

    def _aggregate(self, step: Step) -> None:
        wave, scheduler = self._wave(step), step.round % self._pipeline.schedulers
        self._program.aggregate(wave)
        bound(wave.priorities)
        places = wave.parameters // self._pipeline.schedulers
        change(self._priorities_of(scheduler), self._trees[scheduler], places, wave.priorities)
        raise_to(self._counters, self._pipeline.schedulers + scheduler, self._mark(step))

    def _apply(self, step: Step) -> None:
        self._program.apply(self._wave(step))

    def start(self, parameters: int) -> None:
        """Let the rows of the bands follow the first values of so many parameters."""
        nothing = np.empty(0)
        held = np.arange(parameters), self._columns, self._bands
        self._program.start(Wave(*held, nothing, nothing, nothing, self._shared))

    def survey(self, parameters: np.ndarray) -> int:
        """Set the priorities of parameters, int64 (c,); returns how many samples that took."""
        schedulers, priorities = self._pipeline.schedulers, np.empty(parameters.size)
        samples = self._program.survey(Survey(parameters, self._columns, priorities, self._shared))
        bound(priorities)
        self._shared[PRIORITIES][parameters % schedulers, parameters // schedulers] = priorities
        return samples
