"""What an iteration will take: bytes moved, and seconds by the speeds of workers, disk and network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from blocks.store import Store
from ooc.plan.memory_plan import Plan, sliced_bytes
from ooc.program import StaticProgram
from ooc.state.layout import Layout

# Seconds of a processor that the workers lose to each byte of state that is read or written: checksums, copies, and
# what these take of the memory's bandwidth (measured: docs/memory.md).
_MOVING = 0.4e-9


class Speeds(NamedTuple):
    """tokens_per_s: of one worker, with its data in memory. disk, network: bytes a second, both ways together; the
    network of one machine."""

    tokens_per_s: float
    disk: float
    network: float = float("inf")


@dataclass(frozen=True)
class Forecast:
    """Of one machine and one iteration. state_bytes: of a generation. data_bytes: of the dataset, if it is read from
    the disk in every iteration. read_bytes, written_bytes: of local state, as `metrics.jsonl` counts them. rows_bytes:
    read and written of rows in a file. sent_bytes: over the network, in the first iteration.
    """

    state_bytes: int
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
        """What an iteration waits for: "sampling", "disk" or "network"."""
        return max(("sampling", "disk", "network"), key=lambda what: getattr(self, f"{what}_s"))

    @property
    def iteration_s(self) -> float:
        """Loading, writing and sending go on while tokens are sampled: the slowest of them counts."""
        return float(getattr(self, f"{self.limit}_s"))


def forecast(
    dataset: Store, program: StaticProgram, plan: Plan, speeds: Speeds, *, machines: int = 1, cache: int = 0
) -> Forecast:
    """Predict an iteration of a program on each of some machines, whose share of the documents is `dataset`.

    cache: bytes of memory beyond the budget that the kernel has to keep files in.
    """
    state = Layout(dataset.index.cells, program.local_state()).file_bytes
    moved = 0 if plan.resident else state
    read = moved * len(program.phases)
    written = moved * sum(phase.writes for phase in program.phases)
    data = 0 if dataset.data_bytes <= cache else dataset.data_bytes
    rows = 2 * dataset.block_count * sliced_bytes(program)[0] if plan.mapped else 0
    sent = program.sent_bytes(machines) if machines > 1 else 0
    return Forecast(
        state_bytes=state,
        data_bytes=data,
        read_bytes=read,
        written_bytes=written,
        rows_bytes=rows,
        sent_bytes=sent,
        sampling_s=(dataset.samples / speeds.tokens_per_s + (read + written) * _MOVING) / plan.workers,
        disk_s=(data + read + written + rows) / speeds.disk,
        network_s=sent / speeds.network,
    )
