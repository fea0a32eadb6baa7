"""The static engine: walks the grid of cells in the order each phase declares.

read block, map slice -> schedule -> update (workers, shared memory) -> aggregate -> commit
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.arrays import Pieces
from blocks.errors import OocError, WorkFailed
from blocks.memory import Held
from blocks.store import Store
from blocks.workers import Workers
from ooc.cells import Loaded, Pass, Resident, ResidentPass, StreamedPass
from ooc.claims import CLAIMED, DONE, Claims, claims_spec, done_spec
from ooc.plan import Plan
from ooc.program import Phase
from ooc.shared import ArraySpec, SharedArrays
from ooc.slices import SLICES, SliceFile
from ooc.state import CellFile, Cursor, Generations, Layout, remove_uncommitted
from ooc.stopwatch import Stopwatch
from ooc.switches import Switches
from ooc.worker import (
    OVERLAPPING,
    STOOD_STILL,
    Attachment,
    Message,
    ProgramSpec,
    all_phases,
    delta_name,
    own_arrays,
    unit_parts,
)

_AHEAD = 8  # units, at least, that workers know of at a time, so that none need wait while another is at a long part


class Told(NamedTuple):
    """What has been done so far, on all machines; seconds and sums are of the iteration that was done last.

    elapsed_s: of the machine that took longest. seconds: by their purpose, means over machines. sums: over samples.
    memory_bytes: that each machine holds.
    """

    samples: int
    samples_processed: int
    elapsed_s: float
    seconds: dict[str, float]
    sums: dict[str, float]
    memory_bytes: list[int]
    bytes_read: int
    bytes_written: int
    bytes_sent: int


class StaticEngine:
    """Runs the phases of a program over a dataset, with the workers and the memory that a plan gives.

    Use as a context manager. Attributes: `cursor`, what has been done so far; `program`; `shared`, all that
    the workers see; `arrays`, the program's; `committed`, whether the newest generation is the present state.
    """

    def __init__(
        self,
        dataset: Store,
        spec: ProgramSpec,
        generations: Generations,
        plan: Plan,
        switches: Switches = Switches(),  # noqa: B008, it cannot change
    ) -> None:
        self._dataset, self._plan, self._generations, self._switches = dataset, plan, generations, switches
        self.program = spec.build(dataset)
        self._layout = Layout(dataset.index.cells, self.program.local_state())
        self._phases = all_phases(self.program)
        self._parts: dict[tuple[str, int], int] = {}
        self.cursor = Cursor()
        self._watch, self._held = Stopwatch(), Held()
        self.committed = False
        with ExitStack() as stack:
            self._share(spec, stack)
            self._closing = stack.pop_all()
        for worker in range(plan.workers):
            self._workers.send(worker, worker)
        self._count_down(plan.workers)

    def _share(self, spec: ProgramSpec, stack: ExitStack) -> None:
        """Allocate the arrays, in memory and in files, and start the workers that share them; `stack` ends all that."""
        specs = self._plan.buffer_specs(self._layout) | self.program.shared_arrays()
        queues = self._plan.workers if self._switches.own_queues else 1
        specs |= self._travelling_specs()
        specs[CLAIMED] = claims_spec(max(map(self._layout.units, ("block", "slice"))), queues)
        overlapping = [self._schedule(phase, 0) for phase in self.program.phases if phase.overlaps]
        specs[DONE] = done_spec([stage for stages in overlapping for stage in stages])
        for worker in range(self._plan.workers):
            specs |= own_arrays(self.program, worker)
        sliced = {name: specs.pop(name) for name in self.program.sliced_arrays()} if self._plan.mapped else {}
        self.shared = stack.enter_context(closing(SharedArrays(specs)))
        self._claims = Claims(self.shared)
        self._resident = Resident(self._layout, self.shared) if self._plan.resident else None
        known = [(specs, self.shared.descriptor)]
        self._slices = None
        if sliced:
            self._slices = stack.enter_context(
                closing(SliceFile(self._generations.directory.with_name(SLICES), sliced))
            )
            known.append((sliced, self._slices.arrays.descriptor))
        everywhere = {**self.shared, **(self._slices.arrays if self._slices else {})}
        self.arrays = {name: everywhere[name] for name in self.program.shared_arrays()}
        self._workers = stack.enter_context(
            Workers(
                "ooc.worker:attach",
                Attachment(str(self._dataset.opened_at), spec, known, os.getpid()),
                self._plan.workers,
                inherit=[descriptor for _, descriptor in known],
            )
        )
        self._deltas = [
            {name: self.shared[delta_name(worker, name)] for name in self.program.delta_arrays()}
            for worker in range(self._plan.workers)
        ]
        self._stood_still = [self.shared[delta_name(worker, STOOD_STILL)] for worker in range(self._plan.workers)]

    def _travelling_specs(self) -> dict[str, ArraySpec]:
        """Shared arrays for slices of the model that travel; on one machine nothing does."""
        return {}

    def told(self) -> Told:
        """What has been done so far, on all machines."""
        cursor = self.cursor
        return Told(
            samples=self._dataset.samples,
            samples_processed=cursor.samples_processed,
            elapsed_s=cursor.elapsed_s,
            seconds=cursor.seconds,
            sums=cursor.sums,
            memory_bytes=[self._held([os.getpid(), *self.pids])],
            bytes_read=cursor.bytes_read,
            bytes_written=cursor.bytes_written,
            bytes_sent=cursor.bytes_sent,
        )

    @property
    def is_first(self) -> bool:
        """Whether this machine is the first of the ring, which writes what is for all."""
        return True

    def gather(self, value: Any) -> list[Any]:
        """What all machines say, JSON values, in the order of their ranks."""
        return [value]

    def _count_down(self, expected: int) -> None:
        while expected:
            expected -= sum(1 for _ in self._workers.receive())

    def __enter__(self) -> StaticEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._claims.refuse()
        self._closing.close()
        remove_uncommitted(self._generations.directory)

    @property
    def pids(self) -> list[int]:
        """Processes of the workers."""
        return self._workers.pids

    def start(self, gives_up: Callable[[], object] = lambda: False) -> bool:
        """Bring the state to the newest generation, or fill it for a new run and commit that.

        gives_up: asked after each stage that fills it; if it says so, False is returned and nothing is committed.
        """
        if self._generations:
            self._resume()
        else:
            if not all(self._run(phase, gives_up) for phase in self.program.initial):
                return False
            self.commit()
            self.cursor.seconds = {}
        self.program.restore(self.sweep, self.arrays)
        return True

    def start_stages(self) -> int:
        """How often `start` will ask whether to give up."""
        if self._generations:
            return 0
        return sum(
            sum(1 for unit in range(self._layout.units(phase.order)) for parts in self._schedule(phase, unit) if parts)
            if phase.staged
            else 1
            for phase in self.program.initial
        )

    def _resume(self) -> None:
        try:
            if self._resident:
                self._resident.load(self._generations)
            else:
                self._generations.check()
            with self._generations.restoring():
                self._restore()
        except OocError as error:
            self._generations.fall_back(error)
            self._resume()

    def _restore(self) -> None:
        committed = self._committed_arrays()
        self._require_known(committed)
        if self._generations.cursor.phase >= len(self.program.phases):
            raise WorkFailed(f"{self._generations.directory} is damaged: there is no such phase")
        for name, flat in committed.items():
            if self._slices and name in self._slices.arrays:
                self._slices.fill(name, flat, int(self.program.sliced_arrays()[name].max()))
            else:
                self.arrays[name].reshape(-1)[:] = flat
        self.cursor = self._generations.cursor
        self.committed = True

    def _require_known(self, committed: Mapping[str, np.ndarray]) -> None:
        """Raise WorkFailed unless the arrays of a generation are the primary ones of this program."""
        kept = {**self.arrays, **(self._slices.arrays if self._slices else {})}
        expected = {name: (kept[name].dtype, kept[name].size) for name in self.program.primary_arrays()}
        if expected != {name: (flat.dtype, flat.size) for name, flat in committed.items()}:
            raise WorkFailed(f"{self._generations.directory} is damaged: its arrays are not those of the program")

    def _committed_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the newest generation, flat."""
        return self._generations.arrays()

    def commit(self) -> None:
        """Make the present state durable as the newest generation, unless it is: streamed state, after each phase."""
        if self._resident and not self.committed:
            with self._watch.on("commit"):
                cells = self._generations.create()
                try:
                    self.cursor.bytes_written += self._resident.write_all(cells)
                    self._publish(cells)
                finally:
                    cells.close()
            self.cursor.spend(self._watch.take())

    def _publish(self, cells: CellFile) -> None:
        self._generations.commit(cells, self._arrays_to_commit(), self.cursor)
        self.committed = True

    def _arrays_to_commit(self) -> dict[str, np.ndarray | Pieces]:
        return {name: self.arrays[name].reshape(-1) for name in self.program.primary_arrays()}

    @property
    def commits(self) -> bool:
        """Whether each phase that writes local state commits it, because it is streamed."""
        return self._resident is None

    def step(self, *, checkpoint: bool = False) -> None:
        """Run the phase that the cursor points at and move the cursor; streamed state is committed.

        checkpoint: state in memory is, too, if the phase writes it: in the background, while units are worked on.
        """
        if self.cursor.phase == 0:
            self.cursor.sums = {}
            with self._watch.on("aggregation"):
                self._adapt()
        self._run(self.program.phases[self.cursor.phase], checkpoint=checkpoint and self._switches.background)

    def _adapt(self) -> None:
        if found := self.program.census(self.cursor.iteration, self.sweep, self.arrays):
            self.program.adapt([found], self.arrays)

    @property
    def may_stop(self) -> bool:
        """Whether the work so far would survive: streamed state is committed at each phase that writes it."""
        return self.cursor.phase == 0 or (self.commits and self.committed)

    def _run(self, phase: Phase, gives_up: Callable[[], object] = lambda: False, *, checkpoint: bool = False) -> bool:
        """Run a phase that writes and fold what it did into the shared arrays and the cursor; False if it gave up."""
        self.committed = False
        with self._watch.on("commit"):
            target = self._generations.create() if phase.writes and (self.commits or checkpoint) else None
        try:
            with self._watch.on("sampling"), self._open(phase, target) as units:
                for answers in self._stages(phase, units) if phase.staged else [list(self._walk(phase, units))]:
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

    def _put_together(self, phase: Phase) -> None:
        """Let the other machines know what a phase has changed, and hear it from them."""

    def _advance(self, phase: Phase) -> None:
        self.cursor.spend(self._watch.take())
        self.cursor.within("page_cache", max(float(np.mean(self._stood_still)), 0.0))  # clocks may disagree a little
        for stood_still in self._stood_still:
            stood_still[:] = 0.0
        if phase in self.program.initial:
            return
        self.cursor.phase += 1
        if self.cursor.phase == len(self.program.phases):
            self.cursor.phase = 0
            self.cursor.iteration += 1
            self.cursor.samples_processed += self._dataset.samples

    def objective(self) -> dict[str, float]:
        """The program's objective for the present state."""
        return self.program.objective(self.program.measure(self.sweep, self.arrays), self.arrays)

    def export(self, directory: Path) -> None:
        """Write the model of the present state."""
        self.program.export(self.sweep, self.arrays, directory)

    def sweep(self, phase: Phase) -> Iterator[Any]:
        """Run a phase that only reads over all cells; yields the answers in the order of units and parts."""
        with self._open(phase) as units:
            yield from self._walk(phase, units)

    def _aggregate(self, phase: Phase, answers: list[Any]) -> dict[str, float]:
        with self._watch.on("aggregation"):
            sums = self.program.aggregate(phase, self.arrays, self._deltas, answers)
            for delta in self._deltas:
                for array in delta.values():
                    array.view("uint8")[:] = 0  # of records it takes a seventh of the time that `array[:]` takes
            return sums

    @contextmanager
    def _open(self, phase: Phase, target: CellFile | None = None) -> Iterator[Pass]:
        """The units of a phase that begins. target: where streamed state is written to."""
        with self._watch.rather("aggregation"):
            self.program.begin(phase, self.arrays)
        source = None
        if not self._resident and phase not in self.program.initial:
            source = self._generations.open()
        units = self._pass(phase, source, target)
        try:
            yield units
        finally:
            with self._watch.rather("disk"):
                units.close()
            if source:
                source.close()
        units.check()
        self._passed(phase)
        self.cursor.bytes_read += units.bytes_read
        self.cursor.bytes_written += units.bytes_written

    def _passed(self, phase: Phase) -> None:
        """All units of a phase are done."""

    def _pass(self, phase: Phase, source: CellFile | None, target: CellFile | None) -> Pass:
        return self._cells(phase, source, target)

    def _cells(self, phase: Phase, source: CellFile | None, target: CellFile | None, *order: Any) -> Pass:
        """The pass over local state. order: of the units, and the bell to ring, if they are not the usual ones."""
        if self._resident:
            return ResidentPass(phase, self._layout, self._resident, target, *order[:1])
        return StreamedPass(phase, self._layout, self.shared, self._plan.buffers, source, target, *order)

    def _stages(self, phase: Phase, units: Pass) -> Iterator[list[Any]]:
        """One unit after the other, one stage after the other; yields the answers of each in the order of its parts."""
        for unit in units.order:
            while not (next_one := units.poll(1)):
                self._wait(units)
            loaded, stages = next_one[0], self._schedule(phase, unit)
            if phase.overlaps and self._switches.macro:
                yield from self._overlapping(phase, loaded, stages)
                stages = ()
            for stage, parts in enumerate(stages):
                if parts:
                    answers = self._deal(self._message(phase, loaded, stage, parts))
                    self._leave_slice(phase, stage)
                    self._sum_up(phase, unit, stage)
                    yield answers
            units.release(loaded)

    def _overlapping(self, phase: Phase, loaded: Loaded, stages: Sequence[Sequence[int]]) -> Iterator[list[Any]]:
        """Have the workers do stages that overlap, up to where slices are written; yields the answers of each."""
        ends = [stage + 1 for stage in range(len(stages) - 1) if self._writes_slice(phase, stage)]
        for first, last in pairwise([0, *ends, len(stages)]):
            parts = [(stage, part) for stage in range(first, last) for part in stages[stage]]
            answers = iter(self._deal(self._message(phase, loaded, OVERLAPPING, parts)))
            self._leave_slice(phase, last - 1)
            for stage in range(first, last):
                yield list(islice(answers, len(stages[stage])))

    def _sum_up(self, phase: Phase, unit: int, stage: int) -> None:
        """Add to the sums that a stage has left those of the other machines."""

    def _wait(self, units: Pass) -> None:
        """Nobody has anything to do until more of a streamed phase is in memory."""
        assert units.wake
        with self._watch.rather(units.waits_for):
            units.wake.recv_bytes()

    def _leave_slice(self, phase: Phase, stage: int) -> None:
        """The workers are done with a stage or unit: have what it changed in the file of slices written."""
        if self._slices and self._writes_slice(phase, stage):
            with self._watch.rather("disk"):
                self._slices.write_back()

    def _writes_slice(self, phase: Phase, stage: int) -> bool:
        return bool(self._slices) and self.program.writes_slice(phase, stage)

    def _deal(self, message: Message) -> list[Any]:
        """Have the workers do a stage; returns the answers of its parts, in the order of its schedule."""
        self._claims.clear()
        missing = self._tell([message])[message.unit]
        answers: dict[int, Any] = {}
        while missing:
            for _, _, answer in self._receive():
                answers |= answer
                missing -= 1
        return [answers[part] for part in message.parts]

    def _walk(self, phase: Phase, units: Pass) -> Iterator[Any]:
        """Have the workers do all parts of the units in memory, until every unit of the phase was handed back."""
        self._claims.clear()
        told: dict[int, Loaded] = {}
        missing: dict[int, int] = {}  # how often workers will still answer for a unit they were told of
        answers: dict[int, dict[int, Any]] = {}  # of units not yielded yet
        order, following = units.order, 0  # place in it of the unit whose answers are due next
        one_by_one = self._only_reads(phase) or self._writes_slice(phase, 0)
        one_by_one = one_by_one or not self._switches.macro
        together = 1 if one_by_one else len(self._workers)
        ahead = 1 if one_by_one else max(_AHEAD, 2 * together)
        while following < len(order):
            while len(told) + together <= ahead and (some := units.poll(together)):
                messages = [self._message(phase, unit, 0, self._schedule(phase, unit.unit)[0]) for unit in some]
                missing |= self._tell(messages)
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

    def _tell(self, messages: Sequence[Message]) -> dict[int, int]:
        """Tell every worker of some units, each of another one first; returns how many answers come for each unit.

        What two workers do at once should be far apart: documents of one block have tokens in the same cache lines.
        They are told twice if they are to answer part by part: so each has more to do while its answer is read.
        """
        times = {message.unit: 1 if message.most > len(message.parts) else 2 for message in messages}
        for worker in range(len(self._workers)):
            first = worker % len(messages)
            for message in (*messages[first:], *messages[:first]):
                for _ in range(times[message.unit]):
                    self._workers.send(worker, message)
        return {unit: often * len(self._workers) for unit, often in times.items()}

    def _receive(self, wake: Connection | None = None) -> Iterator[tuple[int, Message, dict[int, Any]]]:
        """What workers answer next: who, to which message, and the answers of the parts that were claimed."""
        return self._workers.receive(wake=wake, progress=self._claims.taken)

    def _schedule(self, phase: Phase, unit: int) -> Sequence[Sequence[int]]:
        stages = self.program.schedule(phase, unit, self._part_count(phase, unit))
        if self._switches.heaviest_first:
            return stages
        return [np.random.default_rng(unit).permutation(parts).tolist() for parts in stages]

    def _message(self, phase: Phase, loaded: Loaded, stage: int, parts: Sequence[Any]) -> Message:
        number = self._phases.index(phase)
        most = 1 if self._only_reads(phase) else len(parts) + 1
        return Message(number, self.cursor.iteration, loaded.unit, stage, parts, most, loaded.buffer, loaded.slot)

    def _only_reads(self, phase: Phase) -> bool:
        """Whether a phase is for the objective or the export: its answers may be large."""
        return phase in self.program.reading_phases

    def _part_count(self, phase: Phase, unit: int) -> int:
        key = (phase.order, unit)
        if key not in self._parts:
            self._parts[key] = unit_parts(self._dataset, phase.order, unit)[1].size - 1
        return self._parts[key]
