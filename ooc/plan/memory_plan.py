"""Choose what a run keeps in memory, given the dataset, the program, the number of workers and the memory limit.

The choice does not change results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocks.errors import RequestError
from blocks.plurals import count_of, size_text
from blocks.stored_dataset import StoredDataset
from ooc.program import StaticProgram
from ooc.ring.packet_slots import SLOTS, PacketSlots
from ooc.state.cell_layout import CellLayout
from ooc.state.unit_passes import ResidentState, StreamedPass
from ooc.workers.madvise import UNWRITTEN
from ooc.workers.shared_arrays import ArraySpec
from ooc.workers.worker import packet_sizes, slices_rotate

# Measured proportional set sizes, without the memory that programs declare: the process that has trained takes up to 88
# MB, and up to 100 MB while it writes a model; the process that has loaded the kernels and its forks together take 72
# to 80 MB, and 3 MB more for each fork that has worked for a while.
_COORDINATOR = 100_000_000
_TEMPLATE = 80_000_000
_WORKER = 5_000_000
_MOST_BUFFERS = 4  # one being sampled, one being loaded, one being written, and a spare


@dataclass(frozen=True)
class MemoryPlan:
    """What a run keeps in memory.

    workers: number of processes.
    resident: all local state stays in memory; otherwise `buffers` units of it do.
    bytes: memory of all processes.
    reasons: lines that describe the use of memory.
    streamed: lines that describe the data not kept in memory.
    mapped: whether arrays sliced by column are in a file.
    budget: memory limit in bytes, 0 for none.
    in_process: whether the training process itself is the only worker.
    start_mapped: whether arrays that are only used at the start of a run are in a file.
    """

    workers: int
    resident: bool
    buffers: int
    bytes: int
    reasons: tuple[str, ...]
    mapped: bool = False
    budget: int = 0
    in_process: bool = False
    streamed: tuple[str, ...] = ()
    start_mapped: bool = False

    def buffer_specs(self, layout: CellLayout) -> dict[str, ArraySpec]:
        """Return the specs of the shared arrays that hold local state."""
        return ResidentState.specs(layout) if self.resident else StreamedPass.specs(layout, self.buffers)


def make_plan(
    dataset: StoredDataset, program: StaticProgram, workers: int, memory: int, *, beside: int = 0
) -> MemoryPlan:
    """Choose what to keep in memory within a limit of `memory` bytes.

    Raises RequestError with the smallest sufficient limit.

    Sliced arrays have priority: in a file they would be read and written once per block, whereas local state is read
    and written once per phase. Arrays that are only used at the start of a run are in memory if they fit there together
    with the state.

    beside: bytes of further processes of the run, which start after the first iteration.
    """
    layout = CellLayout(dataset.index.cells, program.local_state())
    fixed = _fixed_bytes(program, workers) + travelling_bytes(dataset, program)
    model, two = sliced_bytes(program)
    later, (start, filed_start) = _later_bytes(program) + beside, start_bytes(program, workers)
    choices = [
        (mapped, buffers, start_mapped, int(fixed + max(later + kept, begins) + _state_bytes(layout, buffers)))
        for mapped, kept in ((False, model), (True, two))[: 2 if two < model else 1]
        for buffers in (0, *range(_MOST_BUFFERS, 1, -1))
        for start_mapped, begins in ((False, start), (True, filed_start))[: 2 if filed_start < start else 1]
    ]
    fitting = [choice for choice in choices if choice[-1] <= memory]
    if not fitting:
        least = -(-min(size for *_, size in choices) // 10**6) * 10**6  # rounded up: the reported number must suffice
        raise RequestError(
            f"--memory {_mb(memory)} is too small for {count_of(workers, 'worker')}: it must be at least {_mb(least)}",
            "Increase --memory, or reduce --workers.",
        )
    mapped, buffers, start_mapped, size = fitting[0]
    reasons: list[str] = []
    streamed: list[str] = []
    if layout.row_bytes:
        whole = size_text(layout.rows * layout.row_bytes)
        buffered = f"streamed from disk through {buffers} buffers of {size_text(_state_bytes(layout, 1))}"
        reasons.append(f"{program.state_name} ({whole}): {buffered if buffers else 'in memory'}")
        streamed += [f"the training state ({whole}) is streamed from disk"] if buffers else []
    if model:
        filed = f"in a file, up to {size_text(two)} of it in memory"
        reasons.append(f"model ({size_text(model)}): {filed if mapped else 'in memory'}")
        streamed += [f"the model ({size_text(model)}) is kept in a file"] if mapped else []
    if start:
        counts = f"counts that find the initial topics ({size_text(start)}, freed before the first iteration)"
        filed = f"in a file, up to {size_text(filed_start)} of them in memory"
        reasons.append(f"{counts}: {filed if start_mapped else 'in memory'}")
        streamed += [f"the {counts} are kept in a file"] if start_mapped else []
    reasons.append(f"processes and their buffers: {size_text(fixed + later)}")
    return MemoryPlan(
        workers, not buffers, buffers, size, tuple(reasons), mapped, memory, False, tuple(streamed), start_mapped
    )


def _state_bytes(layout: CellLayout, buffers: int) -> int:
    """Return the size in bytes of the local state in memory: `buffers` buffers, or all local state if `buffers` is
    0.
    """
    specs = StreamedPass.specs(layout, buffers) if buffers else ResidentState.specs(layout)
    return sum(spec.bytes for spec in specs.values())


def sliced_bytes(program: StaticProgram) -> tuple[int, int]:
    """Return the size in bytes of all sliced arrays, and of two slices (one is written while the other is changed)."""
    specs, whole, two = program.shared_arrays(), 0, 0
    for name, elements in program.sliced_arrays().items():
        pieces = np.sort(elements) * np.dtype(specs[name].dtype).itemsize
        whole, two = whole + int(pieces.sum()), two + int(pieces[-2:].sum())
    return whole, two


def _fixed_bytes(program: StaticProgram, workers: int) -> int:
    apart = {*program.sliced_arrays(), *program.start_arrays(), *program.later_arrays()}
    shared = sum(spec.bytes for name, spec in program.shared_arrays().items() if name not in apart)
    deltas = sum(spec.bytes for spec in program.delta_arrays().values())
    own = program.own_bytes() + workers * (deltas + program.scratch_bytes())
    return _COORDINATOR + processes_bytes(workers) + shared + own


def _later_bytes(program: StaticProgram) -> int:
    """Return the size in bytes of the arrays that are not used at the start, excluding sliced arrays."""
    specs = program.shared_arrays()
    return sum(specs[name].bytes for name in {*program.later_arrays()} - {*program.sliced_arrays()})


def start_bytes(program: StaticProgram, workers: int) -> tuple[int, int]:
    """Return the memory in bytes of the arrays used at the start, if all of them are in memory and if some are in a
    file.
    """
    specs = program.shared_arrays()
    whole = sum(specs[name].bytes for name in program.start_arrays())
    filed = sum(specs[name].bytes for name in program.filed_arrays())
    return whole, whole - filed + min(workers * UNWRITTEN, filed)


def travelling_bytes(dataset: StoredDataset, program: StaticProgram) -> int:
    """Return the size in bytes of the slots for slices in transit."""
    if not slices_rotate(program):
        return 0
    return sum(spec.bytes for spec in PacketSlots.specs(packet_sizes(dataset, program), SLOTS).values())


def processes_bytes(workers: int) -> int:
    """Return the memory in bytes of worker processes before they allocate anything."""
    return _TEMPLATE + workers * _WORKER


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
