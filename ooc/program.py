"""What a model is to the engine: a program of phases over the grid of cells.

The state contract. A program's *primary* state is (a) its local state, `width` numbers of one dtype for each token,
kept by the engine in word-major order of each block, and (b) the shared arrays that it declares primary. Everything
else is derived from these and is rebuilt after a resume by `begin`. The engine commits the primary state, with the
cursor (iteration, phase) and the counters, as one generation; a program never touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from blocks.dataset import Block, Slice
from ooc.shared import ArraySpec

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Phase:
    """One pass over all cells. `order` is the outer side of the grid: "slice" visits all cells of a slice together,
    "block" all cells of a block. `writes`: whether local state changes."""

    name: str
    order: Literal["slice", "block"]
    writes: bool = True


class LocalState(NamedTuple):
    """The numbers kept for each token."""

    dtype: str
    width: int


@dataclass(frozen=True)
class Job:
    """A part of a unit (a slice or a block, as the phase's order says) as a worker gets it.

    first, last: the words of the slice, or documents of the block, that make the part. data: the unit's immutable data.
    state: (rows, width), local state that is in memory now. bases: int64 (B,), row of word-major position 0 of each
    block (may be negative: only rows of cells that are in memory exist). shared: arrays all workers read. delta: this
    worker's own arrays, added to. stream: integers that name the part, for random numbers: (iteration, phase, unit,
    part).
    """

    phase: str
    unit: int
    first: int
    last: int
    data: Block | Slice
    state: np.ndarray
    bases: np.ndarray
    shared: Arrays
    delta: Arrays
    stream: tuple[int, int, int, int]


Sweep = Callable[[Phase], Iterator[Any]]  # runs a phase; yields its answers in the order of units and parts


class Program(Protocol):
    """schedule / update / aggregate / objective over a dataset.

    A program is built alike in the coordinator and in the process that the workers are forked from.
    """

    initial: Phase  # fills the local state of a new run
    phases: Sequence[Phase]  # of one iteration
    reading_phases: Sequence[Phase]  # of the objective and the export: they change nothing

    def local_state(self) -> LocalState: ...

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Arrays that workers read and `begin` and `aggregate` change."""
        ...

    def primary_arrays(self) -> Sequence[str]:
        """Those of the shared arrays that belong to a generation."""
        ...

    def delta_arrays(self) -> dict[str, ArraySpec]:
        """Arrays that each worker has of its own, zero when a phase begins, and adds to."""
        ...

    def scratch_bytes(self) -> int:
        """Memory that `update` allocates in each worker."""
        ...

    def warm_up(self) -> None:
        """Compile, or load from the cache, every kernel that `update` calls."""
        ...

    def schedule(self, phase: Phase, parts: int) -> Sequence[int]:
        """The order in which the parts of a unit are dealt to the workers (results do not depend on it)."""
        ...

    def begin(self, phase: Phase, shared: Arrays) -> None:
        """In the coordinator, before a phase: derive what workers read from the primary arrays."""
        ...

    def update(self, job: Job) -> Any:
        """In a worker: do one part. The answer goes to `aggregate`, `objective` or `export`."""
        ...

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        """In the coordinator, after a phase: fold the workers' deltas into the shared arrays.

        answers: in the order of units and parts. Returns sums to report, added up over an iteration.
        """
        ...

    def objective(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        """The objective and its parts for the present state. `sweep` runs one of `reading_phases`."""
        ...

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        """Write the model of the present state into an empty directory."""
        ...
