"""Estimate the cost of an iteration: bytes transferred, and seconds given the speeds of workers, disk and network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from blocks.stored_dataset import StoredDataset
from ooc.plan.memory_plan import MemoryPlan, sliced_bytes
from ooc.program import StaticProgram
from ooc.state.cell_layout import CellLayout

# Processor seconds that workers lose for each byte of state that is read or written: checksums, copies, and their
# use of memory bandwidth (measured: docs/benchmarks.md).
_MOVING = 0.4e-9


class MeasuredSpeeds(NamedTuple):
    """Measured speeds.

    tokens_per_s: speed of one worker with its data in memory.
    disk, network: bytes per second in both directions together; network is per machine.
    """

    tokens_per_s: float
    disk: float
    network: float = float("inf")


@dataclass(frozen=True)
class IterationForecast:
    """Estimated cost of one iteration on one machine.

    state_bytes: size of the local state in a file.
    saved_bytes: size of a checkpoint: the local state and the shared arrays.
    data_bytes: size of the dataset, if it is read from disk in every iteration.
    read_bytes, written_bytes: bytes of local state, as in metrics.jsonl.
    rows_bytes: bytes read and written of the sliced arrays (such as word rows) if they are in a file.
    sent_bytes: bytes sent over the network in the first iteration.
    """

    state_bytes: int
    saved_bytes: int
    data_bytes: int
    read_bytes: int
    written_bytes: int
    rows_bytes: int
    sent_bytes: int
    sampling_s: float
    disk_s: float
    network_s: float

    @property
    def disk_bytes(self) -> int:
        return self.data_bytes + self.read_bytes + self.written_bytes + self.rows_bytes

    @property
    def limit(self) -> str:
        """Return the bottleneck of an iteration: "sampling", "disk" or "network"."""
        return max(("sampling", "disk", "network"), key=lambda what: getattr(self, f"{what}_s"))

    @property
    def iteration_s(self) -> float:
        """Return the estimated time of an iteration in seconds: sampling, disk and network overlap, so the slowest
        determines it."""
        return float(getattr(self, f"{self.limit}_s"))


def generation_bytes(cells: np.ndarray, program: StaticProgram) -> int:
    """Return the size in bytes of a saved state: the local state and the program's primary arrays.

    cells: number of samples in each cell of the dataset's grid, int64 (B, S).
    """
    arrays = program.shared_arrays()
    committed = sum(arrays[name].bytes for name in program.primary_arrays())
    return committed + int(CellLayout(cells, program.local_state()).tile_positions[-1])


def forecast(
    dataset: StoredDataset,
    program: StaticProgram,
    plan: MemoryPlan,
    speeds: MeasuredSpeeds,
    *,
    machines: int = 1,
    cache: int = 0,
) -> IterationForecast:
    """Estimate the cost of an iteration of a program on each of `machines` machines, one of which has the shard
    `dataset`.

    cache: bytes of memory, beyond the limit, that the kernel can use to cache files.
    """
    state = CellLayout(dataset.index.cells, program.local_state()).file_bytes
    moved = 0 if plan.resident else state
    read = moved * len(program.phases)
    written = moved * sum(phase.writes for phase in program.phases)
    data = 0 if dataset.data_bytes <= cache else dataset.data_bytes
    rows = 2 * dataset.block_count * sliced_bytes(program)[0] if plan.mapped else 0
    sent = program.sent_bytes(machines) if machines > 1 else 0
    return IterationForecast(
        state_bytes=state,
        saved_bytes=generation_bytes(dataset.index.cells, program),
        data_bytes=data,
        read_bytes=read,
        written_bytes=written,
        rows_bytes=rows,
        sent_bytes=sent,
        sampling_s=(dataset.samples / speeds.tokens_per_s + (read + written) * _MOVING) / plan.workers,
        disk_s=(data + read + written + rows) / speeds.disk,
        network_s=sent / speeds.network,
    )
