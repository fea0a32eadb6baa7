"""The static engine: process the grid of cells in the order that each phase declares.

read block, map slice -> schedule -> update (workers, shared memory) -> aggregate -> commit
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from blocks.in_process import InProcessWorker
from blocks.memory import MemoryMeter
from blocks.stored_dataset import StoredDataset
from blocks.workers import WorkerPool
from ooc.committed_state import CommittedState
from ooc.plan.memory_plan import MemoryPlan
from ooc.program import Phase
from ooc.program_fields import common_fields_unchanged
from ooc.ring.generations import check_all_have
from ooc.ring.ranks import RankCollectives
from ooc.ring.replication import PartReplication, is_replicated
from ooc.ring.ring import LocalRing, Ring
from ooc.ring.rotating_slices import RotatingSlices
from ooc.ring.stale_allreduce import StaleAllreduce
from ooc.runs.counters import WorkCounters
from ooc.state.cell_file import CellFile
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations, TrainingCursor, remove_uncommitted
from ooc.state.slice_file import SLICES
from ooc.state.unit_passes import UnitPass
from ooc.user_programs import metrics_of_method
from ooc.workers.dispatch import StageScheduler, WorkerDispatcher
from ooc.workers.engine_arrays import EngineArrays
from ooc.workers.engine_options import EngineOptions
from ooc.workers.stopwatch import Stopwatch
from ooc.workers.worker import ProgramSpec, StaticWorkerArguments, attach, slices_rotate


class StaticEngine:
    """Runs the phases of a program on a dataset, with the workers and memory of a plan. Use as a context manager.

    ring: machines that train together, each with a shard of the dataset; None for a single machine. staleness: number
    of macro-steps by which the sums over all ranks in the program's `summed_arrays` may be out of date; None if no
    other ranks add to them. scratch: directory for slices stored on this rank, by default the directory of the state.

    Each rank processes its own blocks, and their cells if slices rotate (see `ooc.ring.rotation`). Changes of summed
    arrays are summed over the ranks (see `ooc.ring.stale_allreduce`). Each rank commits its own state; training resumes
    from the newest generation that all ranks have.

    Attributes: `cursor`, progress; `program`; `shared`, all arrays that workers see; `arrays`, the arrays of the
    program; `committed`, whether the newest generation is the current state.
    """

    def __init__(
        self,
        dataset: StoredDataset,
        spec: ProgramSpec,
        generations: StateGenerations,
        plan: MemoryPlan,
        switches: EngineOptions = EngineOptions(),  # noqa: B008, it cannot change
        *,
        ring: Ring | None = None,
        staleness: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        self._dataset, self._plan, self._generations, self._switches = dataset, plan, generations, switches
        self.program = spec.build(dataset)
        self._layout = CellLayout(dataset.index.cells, self.program.local_state())
        self._scheduler = StageScheduler(dataset, self.program, switches)
        self.cursor = TrainingCursor()
        self._watch, self._held = Stopwatch(), MemoryMeter()
        self._sent_before = 0  # bytes sent before this process
        self._sums_sent = 0  # bytes of partial sums sent by this process
        self.committed = False
        slice_directory = generations.directory.with_name(SLICES)
        with ExitStack() as stack:
            self._ranks = stack.enter_context(closing(RankCollectives(ring or LocalRing(), self._watch)))
            self._replication: PartReplication | None = None
            if is_replicated(dataset, self.program, self._ranks.ring.ranks):
                self._replication = PartReplication(dataset, self.program, self._scheduler, self._ranks)
            self._rotation: RotatingSlices | None = None
            if slices_rotate(self.program):
                rotation = RotatingSlices(dataset, self.program, self._ranks.ring, scratch or slice_directory)
                self._rotation = stack.enter_context(closing(rotation))
            arrays = EngineArrays(
                self.program, self._layout, plan, switches, self._scheduler, self._rotation, slice_directory
            )
            self._engine_arrays = stack.enter_context(closing(arrays))
            attachment = StaticWorkerArguments(str(dataset.opened_at), spec, arrays.known, os.getpid())
            self._workers = _workers(attachment, plan)
            stack.callback(self._workers.close)
            self._dispatcher = WorkerDispatcher(
                self.program,
                self._scheduler,
                self._workers,
                arrays.claims,
                arrays.slices,
                switches,
                self._watch,
            )
            self._dispatcher.begin()
            self._closing = stack.pop_all()
        self.shared, self.arrays = arrays.shared, arrays.arrays
        summed = {name: self.arrays[name] for name in self.program.summed_arrays()}
        is_summed = staleness is not None and not self._replication
        self._totals = StaleAllreduce(summed, self._ranks, staleness or 0) if is_summed else None
        self._state = CommittedState(generations, self._engine_arrays, self._ranks, self._rotation, self._totals)

    def counters(self) -> WorkCounters:
        """Return the counters of all machines together."""
        cursor = self.cursor
        cursor.bytes_sent = self._sent_before + self._ranks.ring.bytes_sent + self._sums_sent
        counts = self.is_first or not self._replication  # otherwise the first rank's counts cover all data
        own_counters = WorkCounters(
            samples=self._dataset.samples if counts else 0,
            samples_processed=cursor.samples_processed if counts else 0,
            elapsed_s=cursor.elapsed_s,
            seconds=cursor.seconds,
            sums=cursor.sums if counts else {},
            memory_bytes=[self._held([os.getpid(), *self.pids])],
            bytes_read=cursor.bytes_read,
            bytes_written=cursor.bytes_written,
            bytes_sent=cursor.bytes_sent,
        )
        return WorkCounters.of_all([WorkCounters(*each) for each in self.gather(own_counters)])

    @property
    def is_first(self) -> bool:
        """Return whether this machine is rank 0, which writes the results."""
        return self._ranks.is_first

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all machines, in rank order."""
        return self._ranks.gather(value)

    def __enter__(self) -> StaticEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine_arrays.claims.refuse()
        self._closing.close()
        remove_uncommitted(self._generations.directory)

    @property
    def pids(self) -> Sequence[int]:
        """Return the process ids of the workers."""
        return self._workers.pids

    def start(self, gives_up: Callable[[], object] = lambda: False) -> bool:
        """Restore the newest generation, or initialize a new run and commit it.

        gives_up: function called after each stage of the initialization; if it returns true, nothing is committed, and
        False is returned.
        """
        have = self.gather(bool(self._generations))
        if any(have):
            check_all_have(have)
            self._engine_arrays.start.end()
            self.cursor = self._state.restore()
            self._sent_before = self.cursor.bytes_sent
            self.committed = True
        else:
            self._engine_arrays.start.begin()
            self.program.initialize(self.arrays)
            if not self._fill(gives_up):
                return False
            self._engine_arrays.start.end()
            self.commit()
            self.cursor.seconds = {}
        self.program.restore(self.sweep, self.arrays)
        return True

    def _fill(self, gives_up: Callable[[], object]) -> bool:
        """Run the phases that fill the state of a new run; returns False if this rank or rank 0 gave up."""
        for alone, phases in groupby(self.program.initial, lambda phase: phase.alone):
            done = all(self._run(phase, gives_up) for phase in phases)
            if not (all(self.gather(done)) if alone else done):
                return False
            if alone:
                with self._watch.on("network"):
                    for name in self.program.spread_arrays():
                        self._ranks.spread(self.arrays[name])
        return True

    def start_stages(self) -> int:
        """Return the number of stages of `start`, after each of which it calls gives_up."""
        if self._generations:
            return 0
        return sum(
            sum(1 for unit in range(self._layout.units(phase.order)) for parts in self._scheduler(phase, unit) if parts)
            if phase.staged
            else 1
            for phase in self.program.initial
            if self.is_first or not phase.alone
        )

    def commit(self) -> None:
        """Commit the current state as the newest generation, unless it is already committed, as streamed state is after
        each phase."""
        if self._engine_arrays.resident and not self.committed:
            with self._watch.on("commit"):
                cells = self._generations.create()
                try:
                    self.cursor.bytes_written += self._engine_arrays.resident.write_all(cells)
                    self._publish(cells)
                finally:
                    cells.close()
            self.cursor.spend(self._watch.take())

    def _publish(self, cells: CellFile) -> None:
        self._state.publish(cells, self.cursor)
        self.committed = True

    @property
    def commits(self) -> bool:
        """Return whether each phase that writes local state commits it, because the state is streamed."""
        return self._engine_arrays.resident is None

    def step(self, *, checkpoint: bool = False) -> None:
        """Run the phase at the cursor, and advance the cursor; streamed state is committed.

        checkpoint: whether to commit state in memory, too, in the background of a phase that changes it.
        """
        if self.cursor.phase == 0:
            self.cursor.sums = {}
            with self._watch.on("aggregation"):
                self._adapt()
        self._run(self.program.phases[self.cursor.phase], checkpoint=checkpoint and self._switches.background)

    def _adapt(self) -> None:
        if found := self.program.census(self.cursor.iteration, self.sweep, self.arrays):
            everywhere = [tuple(found)] if self._replication else self._ranks.exchange(found)
            self.program.adapt(everywhere, self._exact())

    def _exact(self) -> dict[str, np.ndarray]:
        """Return the program's arrays; summed arrays are copies with the current sums over all ranks."""
        return {**self.arrays, **(self._totals.exact() if self._totals else {})}

    @property
    def may_stop(self) -> bool:
        """Return whether stopping now loses nothing, as streamed state is committed after each phase that writes it."""
        return self.cursor.phase == 0 or (self.commits and self.committed)

    def _run(self, phase: Phase, gives_up: Callable[[], object] = lambda: False, *, checkpoint: bool = False) -> bool:
        """Run a phase that writes, and add its results to the shared arrays and the cursor, unless it gave up."""
        self.committed = False
        with self._watch.on("commit"):
            writes = phase.writes and self._layout.local.width > 0
            target = self._generations.create() if writes and (self.commits or checkpoint) else None
        try:
            with self._watch.on("sampling"), self._open(phase, target) as units:
                for answers in self._answers(phase, units):
                    for name, value in self._aggregate(phase, answers).items():
                        self.cursor.sums[name] = self.cursor.sums.get(name, 0.0) + value
                    if gives_up():
                        return False
            self._put_together(phase)
            self._advance(phase)
            if target:
                with self._watch.on("commit"):
                    self._publish(target)
                self.cursor.spend(self._watch.take())
            return True
        finally:
            if target:
                target.close()

    def _answers(self, phase: Phase, units: UnitPass) -> Iterator[list[Any]]:
        """Yield the answers of the workers for each call of `aggregate`: of a stage, or of the whole phase."""
        if phase.alone and not self.is_first:
            return
        if phase.staged:
            yield from self._dispatcher.stages(phase, units, self.cursor.iteration, self._sum_up)
        else:
            schedule = self._replication.schedule if self._replication else None
            with common_fields_unchanged(self.program, phase, self.arrays):
                answers = list(self._dispatcher.walk(phase, units, self.cursor.iteration, schedule))
            if self._replication:
                answers = self._replication.exchange(phase, answers, self.arrays, self._engine_arrays.deltas)
                if self._engine_arrays.slices:
                    self._engine_arrays.slices.write_back()
            yield answers

    def _sum_up(self, phase: Phase, unit: int, stage: int) -> None:
        """Add the sums of the other machines to the sums of a stage."""
        ring = self._ranks.ring
        before = ring.bytes_summed
        for sums in self.program.partial_sums(phase, unit, stage, self.arrays):
            self._ranks.add_up(sums)
        self._sums_sent += ring.bytes_summed - before

    def _put_together(self, phase: Phase) -> None:
        """Exchange the changes of a phase with the other machines, unless one machine runs the phase alone."""
        if not self._totals or not self.program.summed_arrays() or phase.alone:
            return
        with self._watch.on("network"):
            off = self._totals.advance()
            if phase in self.program.initial:
                self._totals.settle()
                return
        sums, name = self.cursor.sums, "s_error"
        sums[name] = sums.get(name, 0.0) + off / (len(self.program.phases) * self._ranks.ring.ranks)

    def _advance(self, phase: Phase) -> None:
        self.cursor.spend(self._watch.take())
        self.cursor.within("page_cache", self._engine_arrays.take_still_seconds())
        if phase in self.program.initial:
            return
        self.cursor.phase += 1
        if self.cursor.phase == len(self.program.phases):
            self.cursor.phase = 0
            self.cursor.iteration += 1
            self.cursor.samples_processed += self._dataset.samples

    def objective(self) -> dict[str, float]:
        """Return the program's objective in the current state."""
        if self._replication:
            sums = metrics_of_method(self.program.measure, self._divided_sweep, self.arrays)
        else:
            sums = self._ranks.summed(metrics_of_method(self.program.measure, self.sweep, self.arrays))
        return metrics_of_method(self.program.objective, sums, self._exact())

    def export(self, directory: Path) -> None:
        """Write the model of the current state on rank 0, from the state of all ranks."""
        arrays, sweep = self._exact(), self.sweep if self._replication else self._everywhere
        if self.is_first:
            self.program.export(sweep, arrays, directory)
        elif not self._replication:
            for phase in self.program.exported:
                deque(self._everywhere(phase), maxlen=0)

    def sweep(self, phase: Phase) -> Iterator[Any]:
        """Run a read-only phase over all cells; yields the answers in order of units and parts."""
        with self._open(phase) as units:
            yield from self._dispatcher.walk(phase, units, self.cursor.iteration)

    def _divided_sweep(self, phase: Phase) -> Iterator[Any]:
        """Run a read-only phase that is divided among the ranks; yields the answers of all parts on all ranks."""
        assert self._replication
        with self._open(phase) as units:
            own_answers = list(self._dispatcher.walk(phase, units, self.cursor.iteration, self._replication.schedule))
        yield from self._replication.exchange(
            phase, own_answers, self.arrays, self._engine_arrays.deltas, changes=False
        )

    def _everywhere(self, phase: Phase) -> Iterator[Any]:
        """Run a read-only phase on all ranks; yields the answers in order of units on rank 0 only."""
        first = self._rotation.rank_of_first(self.cursor) if self._rotation and phase.travels else 0
        return self._ranks.collect(self.sweep(phase), first)

    def _aggregate(self, phase: Phase, answers: list[Any]) -> dict[str, float]:
        with self._watch.on("aggregation"):
            self.program.add_deltas(self.arrays, self._engine_arrays.deltas)
            sums = metrics_of_method(self.program.aggregate, phase, self.arrays, self._engine_arrays.deltas, answers)
            self._engine_arrays.clear_deltas()
            return sums

    @contextmanager
    def _open(self, phase: Phase, target: CellFile | None = None) -> Iterator[UnitPass]:
        """Yield the pass over the units of a phase. target: file for streamed state."""
        with self._watch.rather("aggregation"):
            self.program.begin(phase, self.arrays)
        stored = self.commits and phase not in self.program.initial
        source = self._generations.open() if stored else None
        units = self._pass(phase, source, target)
        try:
            yield units
        except BaseException as error:
            self._ranks.fail(error)
            raise
        finally:
            with self._watch.rather("disk"):
                units.close()
            if source:
                source.close()
        units.check()
        if self._rotation and phase.travels:
            self._rotation.arrived()
        self.cursor.bytes_read += units.bytes_read
        self.cursor.bytes_written += units.bytes_written

    def _pass(self, phase: Phase, source: CellFile | None, target: CellFile | None) -> UnitPass:
        if not self._rotation or not phase.travels:
            return self._engine_arrays.cells(phase, source, target)
        return self._rotation.open(
            phase, self.cursor, lambda order, bell: self._engine_arrays.cells(phase, source, target, order, bell)
        )


def _workers(attachment: StaticWorkerArguments, plan: MemoryPlan) -> WorkerPool | InProcessWorker:
    """Return worker processes, or a worker in this process if the plan says so."""
    if plan.in_process:
        return InProcessWorker(attach(attachment))
    inherit = [descriptor for _, descriptor in attachment.arrays]
    return WorkerPool("ooc.workers.worker:attach", attachment, plan.workers, inherit=inherit)
