"""Distribute the parts of units to worker processes, and return their answers in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from blocks.in_process import InProcessWorker
from blocks.stored_dataset import StoredDataset
from blocks.workers import WorkerPool
from ooc.program import Phase, StaticProgram
from ooc.state.slice_file import SliceFile
from ooc.state.unit_passes import LoadedUnit, UnitPass
from ooc.workers.engine_options import EngineOptions
from ooc.workers.stopwatch import Stopwatch
from ooc.workers.work_queue import WorkQueue
from ooc.workers.worker import OVERLAPPING, StageMessage, all_phases, unit_parts

Schedule = Callable[[Phase, int], Sequence[Sequence[int]]]  # returns the stages of a unit, each a list of parts
_AHEAD = 8  # minimum number of units queued, so that no worker is idle while another one processes a long part


class StageScheduler:
    """Protocol of functions that return the stages of a unit."""

    def __init__(self, dataset: StoredDataset, program: StaticProgram, switches: EngineOptions) -> None:
        self._dataset, self._program, self._switches = dataset, program, switches
        self._part_counts: dict[tuple[str, int], int] = {}

    def __call__(self, phase: Phase, unit: int) -> Sequence[Sequence[int]]:
        """Return the stages of a unit, each a list of parts in the order in which they are distributed."""
        stages = self._program.schedule(phase, unit, self._part_count(phase, unit))
        if self._switches.heaviest_first:
            return stages
        return [np.random.default_rng(unit).permutation(parts).tolist() for parts in stages]

    def _part_count(self, phase: Phase, unit: int) -> int:
        key = (phase.order, unit)
        if key not in self._part_counts:
            self._part_counts[key] = unit_parts(self._dataset, phase.order, unit)[1].size - 1
        return self._part_counts[key]


class WorkerDispatcher:
    """The coordinator's side of the workers of a static engine.

    slices: file of the program's sliced arrays, written back when the program says so; None if they are in memory.
    """

    def __init__(
        self,
        program: StaticProgram,
        scheduler: StageScheduler,
        workers: WorkerPool | InProcessWorker,
        claims: WorkQueue,
        slices: SliceFile | None,
        switches: EngineOptions,
        watch: Stopwatch,
    ) -> None:
        self._program, self._schedule, self._workers, self._claims = program, scheduler, workers, claims
        self._slices, self._switches, self._watch = slices, switches, watch
        self._phases = all_phases(program)

    def begin(self) -> None:
        """Send every worker its index, and wait until all workers have answered."""
        for worker in range(len(self._workers)):
            self._workers.send(worker, worker)
        expected = len(self._workers)
        while expected:
            expected -= sum(1 for _ in self._workers.receive())

    def stages(
        self, phase: Phase, units: UnitPass, iteration: int, sum_up: Callable[[Phase, int, int], object]
    ) -> Iterator[list[Any]]:
        """Process units one after the other, stage by stage; yields the answers of each stage in the order of its
        parts.

        sum_up: function called with phase, unit and stage after each stage, before the answers of the stage are
            yielded.
        """
        for unit in units.order:
            while not (next_one := units.poll(1)):
                self._wait(units)
            loaded, stages = next_one[0], self._schedule(phase, unit)
            if phase.overlaps and self._switches.macro:
                yield from self._overlapping(phase, loaded, stages, iteration)
                stages = ()
            for stage, parts in enumerate(stages):
                if parts:
                    answers = self._deal(self._message(phase, iteration, loaded, stage, parts))
                    self._leave_slice(phase, stage)
                    sum_up(phase, unit, stage)
                    yield answers
            units.release(loaded)

    def _overlapping(
        self, phase: Phase, loaded: LoadedUnit, stages: Sequence[Sequence[int]], iteration: int
    ) -> Iterator[list[Any]]:
        """Process overlapping stages, up to the first stage after which slices are written; yields the answers of each
        stage."""
        ends = [stage + 1 for stage in range(len(stages) - 1) if self._writes_slice(phase, stage)]
        for first, last in pairwise([0, *ends, len(stages)]):
            parts = [(stage, part) for stage in range(first, last) for part in stages[stage]]
            answers = iter(self._deal(self._message(phase, iteration, loaded, OVERLAPPING, parts)))
            self._leave_slice(phase, last - 1)
            for stage in range(first, last):
                yield list(islice(answers, len(stages[stage])))

    def walk(self, phase: Phase, units: UnitPass, iteration: int, schedule: Schedule | None = None) -> Iterator[Any]:
        """Process all parts of units as they are loaded, until the phase is over; yields answers in the order of units
        and parts.

        schedule: function that selects the parts to process; None for the schedule of the program.
        """
        schedule = schedule or self._schedule
        self._claims.clear()
        told: dict[int, LoadedUnit] = {}
        missing: dict[int, int] = {}  # number of answers still expected for each queued unit
        answers: dict[int, dict[int, Any]] = {}  # answers of units that were not yielded yet
        order, following = units.order, 0  # index in `order` of the unit whose answers are yielded next
        one_by_one = self._only_reads(phase) or self._writes_slice(phase, 0)
        one_by_one = one_by_one or not self._switches.macro
        together = 1 if one_by_one else len(self._workers)
        ahead = 1 if one_by_one else max(_AHEAD, 2 * together)
        while following < len(order):
            while len(told) + together <= ahead and (some := units.poll(together)):
                firsts = [(unit, schedule(phase, unit.unit)[0]) for unit in some]
                missing |= self._tell([self._message(phase, iteration, unit, 0, parts) for unit, parts in firsts])
                for loaded in some:
                    told[loaded.unit], answers[loaded.unit] = loaded, {}
            if not told:
                self._wait(units)
            for worker, message, answer in self._receive(units.wake) if told else ():
                answers[message.unit] |= answer
                if len(answer) == message.most:
                    self._workers.send(worker, message)
                    continue
                missing[message.unit] -= 1
                if not missing[message.unit]:
                    units.release(told.pop(message.unit))
                    self._leave_slice(phase, 0)
            while following < len(order) and order[following] in answers and order[following] not in told:
                parts = answers.pop(order[following])
                yield from (parts[part] for part in sorted(parts))
                following += 1

    def _wait(self, units: UnitPass) -> None:
        """Wait until more units of a streamed pass are in memory."""
        assert units.wake
        with self._watch.rather(units.waits_for):
            units.wake.recv_bytes()

    def _leave_slice(self, phase: Phase, stage: int) -> None:
        """Write back the slices that a finished stage or unit has changed."""
        if self._slices and self._writes_slice(phase, stage):
            with self._watch.rather("disk"):
                self._slices.write_back()

    def _writes_slice(self, phase: Phase, stage: int) -> bool:
        return bool(self._slices) and self._program.writes_slice(phase, stage)

    def _deal(self, message: StageMessage) -> list[Any]:
        """Process a stage; returns the answers of its parts in the order of its schedule."""
        self._claims.clear()
        missing = self._tell([message])[message.unit]
        answers: dict[int, Any] = {}
        while missing:
            for _, _, answer in self._receive():
                answers |= answer
                missing -= 1
        return [answers[part] for part in message.parts]

    def _tell(self, messages: Sequence[StageMessage]) -> dict[int, int]:
        """Queue the messages of all units for every worker, starting at a different unit for each worker; returns the
        number of answers expected per unit.

        Concurrent workers should be far apart, because the documents of a block have tokens in the same cache lines. If
        parts are answered one by one, each message is queued twice, so that a worker computes while an answer is read.
        """
        times = {message.unit: 1 if message.most > len(message.parts) else 2 for message in messages}
        for worker in range(len(self._workers)):
            first = worker % len(messages)
            for message in (*messages[first:], *messages[:first]):
                for _ in range(times[message.unit]):
                    self._workers.send(worker, message)
        return {unit: often * len(self._workers) for unit, often in times.items()}

    def _receive(self, wake: Connection | None = None) -> Iterator[tuple[int, StageMessage, dict[int, Any]]]:
        """Yield, for each answer that has arrived, the worker, the message that it answers, and the answers of the
        claimed parts."""
        return self._workers.receive(wake=wake, progress=self._claims.taken)

    def _message(
        self, phase: Phase, iteration: int, loaded: LoadedUnit, stage: int, parts: Sequence[Any]
    ) -> StageMessage:
        number = self._phases.index(phase)
        most = 1 if self._only_reads(phase) else len(parts) + 1
        return StageMessage(number, iteration, loaded.unit, stage, parts, most, loaded.buffer, loaded.slot)

    def _only_reads(self, phase: Phase) -> bool:
        """Return whether a phase serves the objective or the export, whose answers may be large."""
        return phase in self._program.reading_phases
