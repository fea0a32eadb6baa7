"""The arrays of training on one machine, in shared memory and in a file of slices."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import WorkFailed
from ooc.plan.memory_plan import MemoryPlan
from ooc.program import Phase, StaticProgram
from ooc.ring.rotating_slices import RotatingSlices
from ooc.state.cell_file import CellFile
from ooc.state.cell_layout import CellLayout
from ooc.state.slice_file import SliceFile
from ooc.state.unit_passes import ResidentPass, ResidentState, StreamedPass, UnitPass
from ooc.workers.dispatch import StageScheduler
from ooc.workers.engine_options import EngineOptions
from ooc.workers.shared_arrays import ArraySpec, SharedArrays
from ooc.workers.start_arrays import StartArrays
from ooc.workers.work_queue import CLAIMED, DONE, WorkQueue, claims_spec, done_spec
from ooc.workers.worker import STOOD_STILL, delta_name, own_arrays


class EngineArrays:
    """The arrays of one engine, which `close` frees.

    Attributes: `shared`, arrays in memory; `slices`, file of the sliced arrays, None if they are in memory; `start`,
    arrays that are freed or allocated after the start; `arrays`, all arrays of the program; `resident`, local state in
    memory, None if it is streamed; `claims`, the work queue; `known`, specs and file descriptors with which workers
    attach to the arrays.
    """

    def __init__(
        self,
        program: StaticProgram,
        layout: CellLayout,
        plan: MemoryPlan,
        switches: EngineOptions,
        scheduler: StageScheduler,
        rotation: RotatingSlices | None,
        slice_directory: Path,
    ) -> None:
        self._program, self._layout, self._plan = program, layout, plan
        specs = self._specs(switches, scheduler) | (rotation.specs() if rotation else {})
        sliced = {name: specs.pop(name) for name in program.sliced_arrays()} if plan.mapped else {}
        filed = {name: specs.pop(name) for name in program.filed_arrays()} if plan.start_mapped else {}
        start = {name: specs.pop(name) for name in program.start_arrays() if name in specs}
        later = {name: specs.pop(name) for name in program.later_arrays() if name in specs}
        with ExitStack() as stack:
            self.shared = stack.enter_context(closing(SharedArrays(specs)))
            self.start = stack.enter_context(closing(StartArrays(start, filed, later, slice_directory.parent)))
            self.known = [(specs, self.shared.descriptor), *self.start.known]
            self.slices: SliceFile | None = None
            if sliced:
                self.slices = stack.enter_context(closing(SliceFile(slice_directory, sliced)))
                self.known.append((sliced, self.slices.arrays.descriptor))
            self._closing = stack.pop_all()
        if rotation:
            rotation.attach(self.shared)
        everywhere = {**self.shared, **self.start, **(self.slices.arrays if self.slices else {})}
        self.arrays = {name: everywhere[name] for name in program.shared_arrays()}
        self.claims = WorkQueue(self.shared)
        self.resident = ResidentState(layout, self.shared) if plan.resident else None
        self.deltas = [
            {name: self.shared[delta_name(worker, name)] for name in program.delta_arrays()}
            for worker in range(plan.workers)
        ]
        self._stood_still = [self.shared[delta_name(worker, STOOD_STILL)] for worker in range(plan.workers)]

    def _specs(self, switches: EngineOptions, scheduler: StageScheduler) -> dict[str, ArraySpec]:
        specs = self._plan.buffer_specs(self._layout) | self._program.shared_arrays()
        queues = self._plan.workers if switches.own_queues else 1
        specs[CLAIMED] = claims_spec(max(map(self._layout.units, ("block", "slice"))), queues)
        overlapping = [scheduler(phase, 0) for phase in self._program.phases if phase.overlaps]
        specs[DONE] = done_spec([stage for stages in overlapping for stage in stages])
        for worker in range(self._plan.workers):
            specs |= own_arrays(self._program, worker)
        return specs

    @property
    def phases(self) -> int:
        """Return the number of phases of an iteration."""
        return len(self._program.phases)

    def primary(self) -> dict[str, np.ndarray]:
        """Return the arrays that belong to a generation, one-dimensional."""
        return {name: self.arrays[name].reshape(-1) for name in self._program.primary_arrays()}

    def fill(self, committed: Mapping[str, np.ndarray], directory: Path) -> None:
        """Set the primary arrays to the one-dimensional arrays of a generation.

        Raises WorkFailed, with the directory in the message, if these do not match the program.
        """
        expected = {name: (flat.dtype, flat.size) for name, flat in self.primary().items()}
        if expected != {name: (flat.dtype, flat.size) for name, flat in committed.items()}:
            raise WorkFailed(
                f"{directory}: the saved arrays do not have the names, types and sizes that the program expects",
                "Either the files are damaged, or the program was changed after the run was started.",
            )
        for name, flat in committed.items():
            if self.slices and name in self.slices.arrays:
                self.slices.fill(name, flat, int(self._program.sliced_arrays()[name].max()))
            else:
                self.arrays[name].reshape(-1)[:] = flat

    def clear_deltas(self) -> None:
        for delta in self.deltas:
            for array in delta.values():
                array.view("uint8")[:] = 0  # for structured dtypes this takes a seventh of the time of `array[:]`

    def take_still_seconds(self) -> float:
        """Return the seconds for which workers stood still since the last call, averaged over workers."""
        mean = float(np.mean(self._stood_still))
        for stood_still in self._stood_still:
            stood_still[:] = 0.0
        return max(mean, 0.0)  # clocks may differ slightly

    def cells(self, phase: Phase, source: CellFile | None, target: CellFile | None, *order: Any) -> UnitPass:
        """Return the pass of a phase over local state.

        order: order of the units and bell of the pass, if not the defaults.
        """
        if self.resident:
            return ResidentPass(phase, self._layout, self.resident, target, *order[:1])
        return StreamedPass(phase, self._layout, self.shared, self._plan.buffers, source, target, *order)

    def close(self) -> None:
        self._closing.close()
