"""One worker's way through the rounds of the dynamic engine, on arrays that all workers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from blocks.design import Design
from ooc.dynamic_program import DynamicProgram, Survey, Wave
from ooc.held_columns import band_bounds, held
from ooc.priorities import Sums, add_up, add_up_changed, empty_sums
from ooc.rounds import Step
from ooc.schedules import Checker, Rule, Turn
from ooc.shared import ArraySpec
from ooc.signals import counters_spec, have_reached, raise_to

PRIORITIES = "rounds.priorities"
COUNTERS = "rounds.counters"  # of schedulers: rounds scheduled, then waves aggregated; of workers: waves updated; stop
_PARAMETERS, _COUNTS, _SUMS, _CHANGES = (f"rounds.{name}" for name in ("parameters", "counts", "sums", "changes"))
_TREES = ("rounds.tree_priorities", "rounds.tree_left")
_LOOKS = 1000  # at counters, before somebody else may have the processor


class Shape(NamedTuple):
    """Sizes: how many workers there are, and how many parameters may be held."""

    workers: int
    most: int


def round_specs(design: Design, program: DynamicProgram, rule: Rule, shape: Shape) -> dict[str, ArraySpec]:
    """The shared arrays of a `RoundLoop`, besides the program's and those of the columns held."""
    slots, schedulers = rule.pipeline.slots, rule.pipeline.schedulers
    bands = band_bounds(design).size - 1
    tree = empty_sums(-(-shape.most // schedulers)).left.size
    return {
        COUNTERS: counters_spec(2 * schedulers + shape.workers + 1),
        _PARAMETERS: ArraySpec((slots, rule.parallel), "int64"),
        _COUNTS: ArraySpec((slots,), "int64"),
        _SUMS: ArraySpec((slots, rule.parallel, bands, program.sums), "float64"),
        _CHANGES: ArraySpec((slots, rule.parallel), "float64"),
        PRIORITIES: ArraySpec((shape.most,), "float64"),
        _TREES[0]: ArraySpec((schedulers, tree), "float64"),
        _TREES[1]: ArraySpec((schedulers, tree), "int64"),
    }


class Stopped(Exception):
    """Another process has failed: there is nothing to wait for."""


def stop(counters: np.ndarray) -> None:
    """Have all workers that wait for others raise Stopped."""
    raise_to(counters, len(counters) - 1, 1)


class RoundLoop:
    """The steps of worker `number`. Attributes: `samples`, how many it has read so far."""

    def __init__(
        self, program: DynamicProgram, rule: Rule, shape: Shape, number: int, shared: Mapping[str, np.ndarray]
    ) -> None:
        self._program, self._rule, self._pipeline = program, rule, rule.pipeline
        self._workers, self._number, self._shared = shape.workers, number, shared
        self._mine = range(number, rule.pipeline.schedulers, shape.workers)
        self._counters, self._parameters, self._counts = shared[COUNTERS], shared[_PARAMETERS], shared[_COUNTS]
        bands = shared[_SUMS].shape[2]
        self._bands = bands * number // shape.workers, bands * (number + 1) // shape.workers
        self._columns = held(program.design, shared)
        self._trees = [Sums(*trees) for trees in zip(*(shared[name] for name in _TREES), strict=True)]
        rows, columns = program.design.rows, program.design.columns
        self._checker = Checker(rule, rows, rows if program.design.dense else program.design.entries / columns)
        self._parts = np.zeros(rule.pipeline.schedulers + 1, np.int64)
        self.samples = 0

    def run(self, first: int, last: int, parameters: int) -> Iterator[int]:
        """Do the rounds from `first` to `last` (exclusive) over so many parameters.

        While it has to wait for others it yields how often it has looked for what it waits for. Raises Stopped.
        """
        schedulers = self._pipeline.schedulers
        self._parts = np.arange(schedulers + 1) * parameters // schedulers
        for scheduler in self._mine:
            add_up(self._priorities_of(scheduler), self._trees[scheduler])
        do = {"schedule": self._schedule, "update": self._update, "aggregate": self._aggregate, "apply": self._apply}
        for step in self._pipeline.steps(first, last, self._mine):
            yield from self._wait(step)
            do[step.what](step)

    def _wait(self, step: Step) -> Iterator[int]:
        schedulers, mark = self._pipeline.schedulers, self._mark(step)
        scheduler = step.round % schedulers
        counters = {
            "schedule": range(0),
            "update": range(scheduler, scheduler + 1),
            "aggregate": range(2 * schedulers, 2 * schedulers + self._workers),
            "apply": range(schedulers + scheduler, schedulers + scheduler + 1),
        }[step.what]
        value = step.round + 1 if step.what == "update" else mark
        looked = 0
        while not have_reached(self._counters, counters.start, counters.stop, value, _LOOKS):
            if have_reached(self._counters, len(self._counters) - 1, len(self._counters), 1, 1):
                raise Stopped
            looked += 1
            yield looked

    def _mark(self, step: Step) -> int:
        """What counts waves, from 1 on."""
        return step.round * self._pipeline.waves + step.wave + 1

    def _priorities_of(self, scheduler: int) -> np.ndarray:
        return self._shared[PRIORITIES][self._parts[scheduler] : self._parts[scheduler + 1]]

    def _schedule(self, step: Step) -> None:
        turn, scheduler = divmod(step.round, self._pipeline.schedulers)
        slot, chosen = step.round % self._pipeline.slots, np.empty(0, np.int64)
        first, last = self._parts[scheduler : scheduler + 2].tolist()
        if first < last:
            priorities, sums = self._priorities_of(scheduler), self._trees[scheduler]
            candidates = self._program.schedule(Turn(step.round, turn, first, last, priorities, sums, self._rule))
            chosen = self._checker.independent(self._columns, candidates)
        self._parameters[slot, : chosen.size] = chosen
        self._counts[slot] = chosen.size
        raise_to(self._counters, scheduler, step.round + 1)

    def _wave(self, step: Step) -> Wave:
        slot, waves = step.round % self._pipeline.slots, self._pipeline.waves
        count = int(self._counts[slot])
        mine = slice(count * step.wave // waves, count * (step.wave + 1) // waves)
        return Wave(
            parameters=self._parameters[slot, mine],
            columns=self._columns,
            bands=self._bands,
            sums=self._shared[_SUMS][slot, mine],
            changes=self._shared[_CHANGES][slot, mine],
            priorities=self._shared[PRIORITIES],
            shared=self._shared,
        )

    def _update(self, step: Step) -> None:
        self.samples += self._program.update(self._wave(step))
        raise_to(self._counters, 2 * self._pipeline.schedulers + self._number, self._mark(step))

    def _aggregate(self, step: Step) -> None:
        wave, scheduler = self._wave(step), step.round % self._pipeline.schedulers
        self._program.aggregate(wave)
        places = wave.parameters - self._parts[scheduler]
        add_up_changed(self._priorities_of(scheduler), self._trees[scheduler], places)
        raise_to(self._counters, self._pipeline.schedulers + scheduler, self._mark(step))

    def _apply(self, step: Step) -> None:
        self._program.apply(self._wave(step))

    def survey(self, first: int, last: int) -> int:
        """Set the priorities of some parameters; returns how many samples that took."""
        return self._program.survey(Survey(first, last, self._columns, self._shared[PRIORITIES], self._shared))
