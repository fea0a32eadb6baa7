"""The worker's side of the engine: turn a message into jobs, run them with the program, and answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from msgspec import convert

from blocks.compiler import compile_kernels
from blocks.errors import OocError, WorkFailed
from blocks.files import REMEDY
from blocks.kinds import open_rows
from blocks.stored_dataset import StoredDataset, range_parts
from ooc import user_programs
from ooc.program import Job, Phase, StaticProgram
from ooc.program_sources import source_checksum
from ooc.ring.packet_slots import SLOTS, PacketSlots, PartInTransit
from ooc.state.cell_layout import CellLayout
from ooc.state.unit_passes import RESIDENT
from ooc.workers.mapped_units import cached_units
from ooc.workers.shared_arrays import ArraySpec, SharedArrays
from ooc.workers.stopwatch import still_seconds
from ooc.workers.work_queue import WorkQueue

_NOTHING = np.empty((0, 0), np.uint8)
OVERLAPPING = -1  # stage number of a message about several stages, see `Phase.overlaps`
STOOD_STILL = "stood_still"  # float64 (1,) for each worker: `still_seconds` while processing parts


PROGRAMS = "samplers.programs"  # module that defines the programs of the models


class ProgramSpec(NamedTuple):
    """A description from which any process can build a program.

    target: "module:Class", or "samplers.programs:NAME" for a model.
    options: JSON values.
    """

    target: str
    options: dict[str, Any]

    @property
    def is_known(self) -> bool:
        """Return whether the program is part of ooc rather than a user's code."""
        return self.target in importlib.import_module(PROGRAMS).TARGETS

    @property
    def current(self) -> ProgramSpec:
        """Return the spec of the same program under its current name."""
        return ProgramSpec(*importlib.import_module(PROGRAMS).current(*self))

    def build(self, dataset: StoredDataset) -> StaticProgram:
        """Import the program and create an instance for a dataset.

        Raises RequestError if the program does not exist, and WorkFailed if it is part of ooc and does not accept the
        options.
        """
        if not self.is_known:
            return user_programs.build_program(self.target, dataset, self.options)
        program, options = importlib.import_module(PROGRAMS).find(*self)
        types, wrong = _types_of(program), f"of the program {self.target}"
        for name, value in options.items():
            try:
                convert(value, types.get(name, Any))
            except (TypeError, ValueError) as error:
                raise WorkFailed(f"the option {name!r} {wrong}: {error}", REMEDY) from error
        try:
            return program(dataset, **options)
        except OocError:
            raise
        except (TypeError, ValueError, KeyError) as error:
            raise WorkFailed(f"the options {wrong}: {error}", REMEDY) from error

    def source_checksum(self) -> str | None:
        """Return the XXH3-128 of the files of a user's program, without running it; None for programs of ooc."""
        return None if self.is_known else source_checksum(self.target.partition(":")[0])


def _types_of(program: type) -> dict[str, Any]:
    """Return the types of the options that a program and its base classes accept."""
    found: dict[str, Any] = {}
    for parent in reversed(program.__mro__):
        if "__init__" in vars(parent) and parent is not object:
            found |= get_type_hints(parent.__init__)  # type: ignore[misc]
    return found


class StaticWorkerArguments(NamedTuple):
    """Arguments of the workers, set before they are forked."""

    dataset: str
    program: ProgramSpec
    arrays: list[tuple[dict[str, ArraySpec], int]]  # specs and descriptors, arguments of SharedArrays
    coordinator: int  # process id


class StageMessage(NamedTuple):
    """Message to all workers: a stage of a unit, in which each worker processes the parts that it claims.

    stage: index of the stage, or `OVERLAPPING` for several stages; `range_parts` are then pairs of stage and part.
    phase: index of the phase among all phases of the program.
    most: maximum number of parts per answer; more than there are parts for a single answer.
    slot: slot of the unit's slice of the model, if slices rotate.
    """

    phase: int
    iteration: int
    unit: int
    stage: int
    parts: Sequence[Any]
    most: int
    buffer: str
    slot: int = -1

    def __str__(self) -> str:
        return f"unit {self.unit}, stage {self.stage}, phase {self.phase} of iteration {self.iteration + 1}"


def all_phases(program: StaticProgram) -> list[Phase]:
    """Return all phases of a program; messages refer to phases by their index in this list."""
    return [*program.initial, *program.phases, *program.reading_phases]


def slices_rotate(program: StaticProgram) -> bool:
    """Return whether the program's slices rotate on a ring."""
    return any(phase.travels for phase in all_phases(program))


def packet_sizes(dataset: StoredDataset, program: StaticProgram) -> list[np.ndarray]:
    """Return, for each slice, the maximum size in bytes of each of its parts in transit, int64 (P,)."""
    return [program.rooms(number, slice_parts(dataset, number)) for number in range(dataset.slice_count)]


def delta_name(worker: int, name: str) -> str:
    return f"delta{worker}.{name}"


def own_arrays(program: StaticProgram, worker: int) -> dict[str, ArraySpec]:
    """Return the shared arrays that only one worker writes."""
    deltas = {delta_name(worker, name): spec for name, spec in program.delta_arrays().items()}
    return deltas | {delta_name(worker, STOOD_STILL): ArraySpec((1,), "float64")}


def attach(attachment: StaticWorkerArguments) -> Callable[[StageMessage], Any]:
    """Build the program, compile its kernels, and return the message handler (see `blocks.workers`)."""
    dataset = open_rows(Path(attachment.dataset))
    program = attachment.program.build(dataset)
    compile_kernels(program.warm_up)
    shared = [SharedArrays(*known) for known in attachment.arrays]
    arrays = {name: array for known in shared for name, array in known.items()}
    return JobHandler(dataset, program, arrays, WorkQueue(shared[0], attachment.coordinator))


class JobHandler:
    """Handles the messages of one worker."""

    def __init__(
        self, dataset: StoredDataset, program: StaticProgram, arrays: Mapping[str, np.ndarray], claims: WorkQueue
    ) -> None:
        self._dataset, self._program, self._claims = dataset, program, claims
        self._layout = CellLayout(dataset.index.cells, program.local_state())
        self._phases = all_phases(program)
        self._arrays = arrays
        self._shared = {name: arrays[name] for name in program.shared_arrays()}
        self._slots = PacketSlots(packet_sizes(dataset, program), SLOTS, arrays) if slices_rotate(program) else None
        self._number = 0
        self._delta: dict[str, np.ndarray] = {}
        self._stood_still = np.zeros(1)
        self.unit = cached_units(self._unit, dataset)
        self._starts = lru_cache(maxsize=3)(self._first_rows)
        self._buffer_bases = lru_cache(maxsize=4)(self._layout.buffer_bases)

    def __call__(self, message: StageMessage | int) -> dict[Any, Any] | None:
        """Return the answers of the parts that this worker claimed; None for the first message, which is the worker's
        index.
        """
        if isinstance(message, int):
            self._number = message
            self._delta = {name: self._arrays[delta_name(message, name)] for name in self._program.delta_arrays()}
            self._stood_still = self._arrays[delta_name(message, STOOD_STILL)]
            return None
        claimed = islice(self._claims.take(message.unit, message.parts, self._number), message.most)
        before = still_seconds()
        if message.stage == OVERLAPPING:
            answers = dict(self._do_overlapping(message, claimed))
        else:
            answers = {part: self.do(message, part) for part in claimed}
        self._stood_still += still_seconds() - before
        return answers

    def _do_overlapping(self, message: StageMessage, claimed: Iterable[tuple[int, int]]) -> Iterator[tuple[Any, Any]]:
        """Process parts of several stages, each after the parts that it depends on, unless the run ends."""
        phase, first = self._phases[message.phase], message.parts[0][0]
        for stage, part in claimed:
            if stage > first and not self._claims.wait(stage - 1, self._program.follows(phase, stage, part)):
                return
            yield (stage, part), self.do(message._replace(stage=stage), part)
            self._claims.finish(stage, part)

    def do(self, message: StageMessage, part: int) -> Any:
        """Process a part, whether claimed or not."""
        phase = self._phases[message.phase]
        data, bounds = self.unit(phase.order, message.unit)
        if message.buffer == RESIDENT:
            bases = self._layout.block_rows[:-1]
        else:
            bases = self._buffer_bases(phase.order, message.unit)
        job = Job(
            phase=phase.name,
            unit=message.unit,
            stage=message.stage,
            part=part,
            bounds=bounds,
            data=data,
            state=self._arrays.get(message.buffer, _NOTHING),
            bases=bases,
            shared=self._shared,
            delta=self._delta,
            stream=(message.iteration, message.phase, message.unit, message.stage, part),
            passage=self._passage(message, part),
            starts=self._starts(phase.order),
        )
        with user_programs.user_errors(self._program):
            return self._program.update(job)

    def _first_rows(self, order: str) -> list[int]:
        """Return the first row of each block, or the first column of each slice, followed by the total count."""
        return (self._dataset.slice_bounds if order == "slice" else self._dataset.block_bounds).tolist()

    def _passage(self, message: StageMessage, part: int) -> PartInTransit | None:
        if self._slots is None or message.slot < 0:
            return None
        return self._slots.passage(message.slot, message.unit, part)

    def _unit(self, order: str, unit: int) -> tuple[Any, np.ndarray]:
        return unit_parts(self._dataset, order, unit)


def unit_parts(dataset: StoredDataset, order: str, unit: int) -> tuple[Any, np.ndarray]:
    """Return the data of a unit, and the bounds of its parts: int64 (P+1,), the first column, row or block of each
    part."""
    if order == "grid":
        return None, np.arange(dataset.block_count + 1)
    if order == "block":
        data = dataset.block(unit)
        return data, range_parts(data.offsets, dataset.part_size)
    return dataset.slice(unit), slice_parts(dataset, unit)


def slice_parts(dataset: StoredDataset, slice_: int) -> np.ndarray:
    """Return the bounds of a slice's parts, which are the same on all machines."""
    first, last = dataset.index.slice_bounds[slice_ : slice_ + 2]
    samples = np.concatenate(([0], np.cumsum(dataset.column_samples()[first:last])))
    return range_parts(samples, dataset.part_size * dataset.shards)
