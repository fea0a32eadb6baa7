"""Interface between a model and the static engine: a program of phases over the grid of cells.

The state contract. A program's *primary* state is (a) its local state, `width` numbers of one dtype for each token,
kept by the engine in word-major order of each block, and (b) the shared arrays that the program declares primary. All
other state is derived from the primary state and is rebuilt after a resume by `restore` and `begin`. The engine commits
the primary state, with the cursor (iteration, phase) and the counters, as one generation; a program never touches a
file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from blocks.corpus.bags import document_counts
from blocks.corpus.dataset import Block, Slice
from blocks.errors import RequestError
from blocks.npz import write_npz
from blocks.ratings.matrix import ColumnSlice
from ooc.fields import fields_of, set_options
from ooc.ring.packets import Passage
from ooc.workers.shared_arrays import ArraySpec

Arrays = Mapping[str, np.ndarray]
_ORDERS = ("slice", "block", "grid")
_TRAVELS = ("", "made", "changed", "shown", "looked at")


@dataclass(frozen=True)
class Phase:
    """One pass over all cells.

    order: outer side of the grid. With "slice" all cells of a slice are visited together, with "block" all cells of a
    block. With "grid" all cells are one unit, whose parts are the blocks, and there is no local state. writes: whether
    local state changes.

    staged: units are processed one after the other, each in the stages that `schedule` returns, with an `aggregate`
    after every stage. Otherwise the parts of all units are processed in any order, with one `aggregate` when the phase
    ends.

    overlaps: each part of a stage waits only for the parts of the previous stage that it `follows`, not for the whole
    stage. The parts change shared arrays, not deltas.

    alone: a phase of `initial` that only the first of several machines runs, with its own data. The program's
    `spread_arrays` are copied from it to all machines before the next phase that is not `alone`.

    travels: use of the model's state of the slices, if this state travels on a ring of machines (see
    `ooc.ring.rotation`). "made": every machine adds its share, starting from 0. "changed": every machine has the state
    in turn and changes it. "shown": every machine has the state in turn, none changes it, and it stays at its rank.
    "looked at": each machine reads the state at its own rank. State made by a phase of `initial` belongs to a
    generation of the machine where it rests.
    """

    name: str
    order: Literal["slice", "block", "grid"]
    writes: bool = True
    staged: bool = False
    overlaps: bool = False
    alone: bool = False
    travels: Literal["", "made", "changed", "shown", "looked at"] = ""

    def __post_init__(self) -> None:
        for field, possible in (("order", _ORDERS), ("travels", _TRAVELS)):
            if (given := getattr(self, field)) not in possible:
                known = ", ".join(map(repr, possible))
                raise RequestError(f"Phase({self.name!r}): {field}={given!r} is not known", f"Choose one of: {known}.")


class LocalState(NamedTuple):
    """Layout of the numbers kept for each token. below: if not 0, the numbers are unsigned and less than `below`."""

    dtype: str
    width: int
    below: int = 0


@dataclass(frozen=True)
class Job:
    """A part of a unit (a slice or a block, by the phase's order) as a worker gets it.

    bounds: int64 (P+1,), first word of the slice, or document of the block, of each of the unit's parts. data: the
    unit's immutable data: a Block or Slice of a corpus, a RowBlock or ColumnSlice of a matrix, a SampleBlock of
    samples, or None for the grid. state: (rows, width), local state in memory. bases: int64 (B,), row of word-major
    position 0 of each block (may be negative: only rows of cells in memory exist). shared: arrays that all workers
    read. delta: this worker's own arrays, added to. stream: key of the job's random numbers: (iteration, phase, unit,
    stage, part). passage: the slice's travelling state for this part, or None. starts: first row of each block, or
    first column of each slice, and the total number.
    """

    phase: str
    unit: int
    stage: int
    part: int
    bounds: np.ndarray
    data: Any
    state: np.ndarray
    bases: np.ndarray
    shared: Arrays
    delta: Arrays
    stream: tuple[int, int, int, int, int]
    passage: Passage | None = None
    starts: Sequence[int] = ()

    @property
    def rows(self) -> slice:
        """Return the rows of the dataset in this part, or columns if the phase goes through slices."""
        if self.data is None:  # of the grid, whose parts are blocks
            return slice(self.starts[self.part], self.starts[self.part + 1])
        start = self.starts[self.unit]
        return slice(start + self.first, start + self.last)

    def own(self, name: str) -> np.ndarray:
        """Return a view of the elements of a shared array for the rows, or columns, of this part."""
        return self.shared[name][self.rows]

    @property
    def first(self) -> int:
        """Return the first word or document of the part."""
        return int(self.bounds[self.part])

    @property
    def last(self) -> int:
        """Return the word or document after the last one of the part."""
        return int(self.bounds[self.part + 1])

    def within(self, starts: np.ndarray) -> slice:
        """Return the slice of this part's documents, rows, words or columns among those of all units.

        starts: the first of each unit.
        """
        return slice(int(starts[self.unit]) + self.first, int(starts[self.unit]) + self.last)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of the rows, or columns, of this part of ratings, samples or documents.

        Returns offsets int64 (n+1,), columns, or rows, uint32 (N,), and values float32 (N,). The entries of a document
        are its distinct words, by rank and ascending, and their counts. Raises RequestError for words if the phase goes
        through slices: a slice of a corpus does not know its documents.
        """
        if isinstance(self.data, Block):
            return document_counts(self.data, self.first, self.last)
        if isinstance(self.data, Slice):
            raise RequestError(
                f"the phase {self.phase!r} goes through slices, and words have no entries",
                'Go through documents, with Phase(name, "block"); or ingest counts of words as ratings.',
            )
        others = self.data.rows if isinstance(self.data, ColumnSlice) else self.data.columns
        return self.data.offsets[self.first : self.last + 1], others, self.data.values

    def labels(self) -> np.ndarray:
        """Return the labels of the samples of this part, float64 (n,)."""
        return self.data.labels[self.first : self.last]

    def share(self, items: int) -> slice:
        """Return this part's slice of `items` items that are split evenly between all parts of the unit."""
        parts = self.bounds.size - 1
        return slice(items * self.part // parts, items * (self.part + 1) // parts)


Sweep = Callable[[Phase], Iterator[Any]]  # runs a phase; yields the answers in the order of units and parts


class StaticProgram:
    """Base class of all programs of the static engine: schedule / update / aggregate / objective over a dataset.

    A subclass has `phases`, declares its arrays as attributes (`ooc.fields.Field`) and its options as annotated
    attributes, with or without defaults, and defines `update`, and `aggregate` or `objective` for the numbers in
    `metrics.jsonl`. Or it has an `__init__` of its own and overrides `shared_arrays`, `primary_arrays` and
    `delta_arrays`. By default there is no local state, no initial phase and one stage of all parts for each unit; all
    shared arrays are primary, and the model is the file arrays.npz of all primary arrays.

    The coordinator and the process that the workers are forked from build equal instances.
    """

    initial: Sequence[Phase] = ()  # phases that fill the local state of a new run
    phases: Sequence[Phase] = ()  # phases of one iteration
    reading_phases: Sequence[Phase] = ()  # phases of `measure` and `export`, which change nothing
    exported: Sequence[Phase] = ()  # the phases that `export` sweeps, in that order
    state_name = "local state of the samples"  # for plans
    trains_on_shards = False  # each rank of a ring has a shard, and phases set what travels; else all have all data

    def __init__(self, dataset: Any, **options: Any) -> None:
        self.dataset = dataset
        if type(self).__init__ is StaticProgram.__init__:
            set_options(self, options)

    def local_state(self) -> LocalState:
        """Return the layout of the numbers that the engine keeps for each token or entry."""
        return LocalState("uint8", 0)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the specs of the arrays that workers read and `begin` and `aggregate` change."""
        return {name: declared.spec(self.dataset, self) for name, declared in fields_of(type(self)).items()}

    def primary_arrays(self) -> Sequence[str]:
        """Return the names of the shared arrays that belong to a generation."""
        fields = fields_of(type(self))
        return tuple(name for name in self.shared_arrays() if name not in fields or not fields[name].derived)

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return the shared arrays that may be kept in a file by slice or by block.

        For each name, the number of elements of each piece, int64 (n,). Between two stages for which `writes_slice`
        returns True, at most one piece changes.
        """
        return {}

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        """Return whether to write the sliced arrays after a stage, or after a unit of a phase that is not staged.

        It must return True for the last stage that changes a piece. stage: 0 for a phase that is not staged.
        """
        return False

    def start_arrays(self) -> Collection[str]:
        """Return the shared arrays that only phases of `initial` use, none of them primary; freed afterwards."""
        return ()

    def filed_arrays(self) -> Collection[str]:
        """Return the `start_arrays` that may be in a file: code that changes UNWRITTEN bytes must call `write_back`."""
        return ()

    def spread_arrays(self) -> Collection[str]:
        """Return the shared arrays set by phases that run `alone`: 8-byte numbers, or an even number of 4-byte ones."""
        return ()

    def later_arrays(self) -> Collection[str]:
        """Return the shared arrays that no phase of `initial` uses: they take no memory before these phases end."""
        return ()

    def summed_arrays(self) -> Sequence[str]:
        """Return the primary int64 arrays to which `aggregate` adds local counts; a ring adds up those of all ranks."""
        return ()

    def partial_sums(self, phase: Phase, unit: int, stage: int, shared: Arrays) -> Sequence[np.ndarray]:
        """Return the float64 arrays with a stage's sums over local data, of phases that are staged.

        A ring of machines replaces these arrays by the sums over the data of all machines before the next stage.
        """
        return ()

    def rooms(self, slice_: int, bounds: np.ndarray) -> np.ndarray:
        """Return the largest size in bytes of each part of a slice's travelling state, int64 (P,). bounds: see Job."""
        return np.zeros(bounds.size - 1, np.int64)

    def delta_arrays(self) -> dict[str, ArraySpec]:
        """Return the specs of each worker's own arrays, which are set to zero when a phase or stage begins."""
        fields = fields_of(type(self))
        return {name: spec for name, spec in StaticProgram.shared_arrays(self).items() if fields[name].summed}

    def own_bytes(self) -> int:
        """Return the bytes that the program takes in the coordinator and in the workers' parent process."""
        return 0

    def scratch_bytes(self) -> int:
        """Return the bytes that `update` allocates in each worker."""
        return 0

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """Return the bytes of the model that each of `machines` machines with equal data sends in an iteration."""
        return sum(spec.bytes for spec in self.shared_arrays().values())

    def warm_up(self) -> None:
        """Compile, or load from the cache, every kernel that `update` calls."""

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        """Return the stages of a unit of `parts` parts: for each, its parts in the order in which workers get them.

        Results do not depend on the order inside a stage. A phase that is not staged has one stage.
        """
        return [range(parts)]

    def follows(self, phase: Phase, stage: int, part: int) -> Collection[int]:
        """Return the parts of the previous stage that a part of this stage waits for, if the phase `overlaps`."""
        raise NotImplementedError

    def initialize(self, shared: Arrays) -> None:
        """Set the initial values of a new run, in the coordinator before the phases of `initial`."""
        for name, declared in fields_of(type(self)).items():
            declared.fill(shared[name], [getattr(self, "seed", 0), *name.encode()])

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        """Compute derived state that takes a sweep over the restored primary state; called in the coordinator."""

    def census(self, iteration: int, sweep: Sweep, shared: Arrays) -> Sequence[np.ndarray]:
        """Return statistics of the local data for `adapt`.

        The statistics are one-dimensional arrays; none if there is nothing to adapt. Called in the coordinator between
        iteration `iteration` and the next. A pure function of the primary state: if the process is killed before the
        next commit, it is computed again.
        """
        return ()

    def adapt(self, censuses: Sequence[Sequence[np.ndarray]], shared: Arrays) -> None:
        """Change primary arrays, except the summed ones, by the statistics of all machines.

        Called in the coordinator.
        """

    def begin(self, phase: Phase, shared: Arrays) -> None:
        """Compute the arrays that workers read from the primary arrays, in the coordinator before a phase."""

    def update(self, job: Job) -> Any:
        """Process one part in a worker. The returned value goes to `aggregate`, `objective` or `export`."""
        raise NotImplementedError

    def add_deltas(self, shared: Arrays, deltas: Sequence[Arrays]) -> None:
        """Add the deltas of `summed` fields to their arrays, in the coordinator before `aggregate`."""
        for name, declared in fields_of(type(self)).items():
            if declared.summed:
                for delta in deltas:
                    shared[name][...] += delta[name]

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        """Add the workers' deltas to the shared arrays, in the coordinator after a phase or a stage.

        answers: in the order of units and parts, or of the stage's schedule. Returns sums over tokens to report, which
        are added up over an iteration and divided by the number of tokens.
        """
        return {}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        """Return sums over the data, from which `objective` is computed. `sweep` runs one of `reading_phases`."""
        return {}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        """Return the objective and its terms for the current state. sums: of `measure`, over all machines."""
        return sums

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        """Write the model of the current state into an empty directory."""
        write_npz(directory / "arrays.npz", {name: shared[name] for name in self.primary_arrays()})
