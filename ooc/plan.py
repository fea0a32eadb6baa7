"""What a run keeps in memory: chosen from the dataset, the program, the workers and the budget.

The choice decides what is resident, never what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocks.dataset import Dataset
from blocks.errors import RequestError
from ooc.cells import Resident, StreamedPass
from ooc.program import Program
from ooc.shared import ArraySpec
from ooc.state import Layout

# Measured (anonymous memory with numpy, h5py and the command line; with numba and its compiled kernels; of a fork of
# the latter that has worked for a while), rounded up.
_COORDINATOR = 60_000_000
_TEMPLATE = 110_000_000
_WORKER = 25_000_000
_MOST_BUFFERS = 4  # one is sampled, one loaded, one written, one in hand


@dataclass(frozen=True)
class Plan:
    """workers: processes. resident: whether all local state stays in memory; otherwise `buffers` units of it do.

    bytes: what the process tree will hold. reasons: why, for people.
    """

    workers: int
    resident: bool
    buffers: int
    bytes: int
    reasons: tuple[str, ...]

    def buffer_specs(self, layout: Layout) -> dict[str, ArraySpec]:
        """The shared arrays that hold local state."""
        return Resident.specs(layout) if self.resident else StreamedPass.specs(layout, self.buffers)


def make_plan(dataset: Dataset, program: Program, workers: int, memory: int, *, beside: int = 0) -> Plan:
    """Choose what is resident within `memory` bytes; raises RequestError, with the smallest budget that would do.

    beside: bytes of other processes that the training starts.
    """
    layout = Layout(dataset.index.cells, program.local_state())
    fixed = _fixed_bytes(dataset, program, workers) + beside
    whole = sum(spec.bytes for spec in Resident.specs(layout).values())
    one = StreamedPass.specs(layout, 1)["buffer0"].bytes
    if fixed + whole <= memory:
        reason = f"all topics and proposals stay in memory ({_mb(whole)})"
        return Plan(workers, True, 0, fixed + whole, (reason, f"processes and their scratch take {_mb(fixed)}"))
    if (buffers := min(_MOST_BUFFERS, (memory - fixed) // one)) < 2:
        least = -(-(fixed + 2 * one) // 10**6) * 10**6  # rounded up: the number that is told must do
        raise RequestError(
            f"--memory {_mb(memory)} is too little: {workers} workers need at least {_mb(least)}",
            "Give more memory, or fewer --workers.",
        )
    reasons = (
        f"topics and proposals ({_mb(whole)}) do not fit beside the processes ({_mb(fixed)}): they are streamed",
        f"{buffers} buffers of {_mb(one)}, each for one slice or block, are filled and written back in the background",
    )
    return Plan(workers, False, int(buffers), int(fixed + buffers * one), reasons)


def _fixed_bytes(dataset: Dataset, program: Program, workers: int) -> int:
    shared = sum(spec.bytes for spec in program.shared_arrays().values())
    deltas = sum(spec.bytes for spec in program.delta_arrays().values())
    index = sum(array.nbytes for array in dataset.index if isinstance(array, np.ndarray))
    return _COORDINATOR + processes_bytes(workers) + index + shared + workers * (deltas + program.scratch_bytes())


def processes_bytes(workers: int) -> int:
    """What worker processes take before they allocate anything."""
    return _TEMPLATE + workers * _WORKER


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
