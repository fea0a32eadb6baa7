"""What a model is to the engine: a program of phases over the grid of cells.

The state contract. A program's *primary* state is (a) its local state, `width` numbers of one dtype for each token,
kept by the engine in word-major order of each block, and (b) the shared arrays that it declares primary. Everything
else is derived from these and is rebuilt after a resume by `restore` and `begin`. The engine commits the primary state,
with the cursor (iteration, phase) and the counters, as one generation; a program never touches a file.
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
    """One pass over all cells. `order` is the outer side of the grid: "slice" visits all cells of a slice together,
    "block" all cells of a block; in "grid" all are one unit, whose parts are the blocks, and there is no local state.
    `writes`: whether local state changes.

    staged: units are done one after the other, each in the stages that `schedule` gives, with an `aggregate` after
    every stage. Otherwise the parts of all units are done in any order, with one `aggregate` when the phase ends.

    overlaps: a stage need not wait for the whole of the one before it, but each of its parts for those that it
    `follows` alone. What the parts change lies in shared arrays, and not in deltas.

    alone: a phase of `initial` that only the first of several machines does, with its data; what it leaves in the
    program's `spread_arrays` all have before the next phase that is not done alone.

    travels: what happens to what the model has of the slices, if they travel on a ring of machines (see
    `ooc.ring.rotation`). "made": every machine adds its share to them, which begin with 0. "changed": every machine
    has them in turn. "shown": likewise, but nobody changes them, and they rest where they did. "looked at": each
    machine has those that rest with it. What a phase of `initial` makes belongs to a generation, of the machine that it
    rests with."""

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
    """The numbers kept for each token. below: if not 0, they are unsigned and less than this."""

    dtype: str
    width: int
    below: int = 0


@dataclass(frozen=True)
class Job:
    """A part of a unit (a slice or a block, as the phase's order says) as a worker gets it.

    bounds: int64 (P+1,), first word of the slice, or document of the block, of each of the unit's parts. data: the
    unit's immutable data, a Block or Slice of a corpus, a RowBlock or ColumnSlice of a matrix, a SampleBlock of
    samples, None for the grid.
    state: (rows, width), local state that is in memory now. bases: int64 (B,), row of word-major position 0 of each
    block (may be negative: only rows of cells that are in memory exist). shared: arrays all workers read. delta: this
    worker's own arrays, added to. stream: integers that name the job, for random numbers: (iteration, phase, unit,
    stage, part). passage: what travels of the slice, for this part, if anything does. starts: the first row of each
    block, or column of each slice, among all, and their number.
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
        """The rows of this part, or its columns if the phase goes through slices, among all of the dataset."""
        if self.data is None:  # of the grid, whose parts are blocks
            return slice(self.starts[self.part], self.starts[self.part + 1])
        start = self.starts[self.unit]
        return slice(start + self.first, start + self.last)

    def own(self, name: str) -> np.ndarray:
        """The elements that a shared array has for the rows, or columns, of this part: a view."""
        return self.shared[name][self.rows]

    @property
    def first(self) -> int:
        """First word or document of the part."""
        return int(self.bounds[self.part])

    @property
    def last(self) -> int:
        """The one after its last."""
        return int(self.bounds[self.part + 1])

    def within(self, starts: np.ndarray) -> slice:
        """The documents, rows, words or columns of this part among those of all units, of which `starts` has the first
        of each."""
        return slice(int(starts[self.unit]) + self.first, int(starts[self.unit]) + self.last)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The entries of this part's rows, or columns, of ratings, samples or documents.

        Offsets int64 (n+1,), the columns, or rows, that they are in uint32 (N,), and values float32 (N,). Of a document
        its different words, by their ranks, ascending, and how often each occurs in it. Raises RequestError for words,
        if the phase goes through slices: a slice of a corpus does not know its documents.
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
        """The labels of the samples of this part, float64 (n,)."""
        return self.data.labels[self.first : self.last]

    def share(self, items: int) -> slice:
        """Of so many items, dealt evenly to all parts of the unit one after the other, those of this part."""
        parts = self.bounds.size - 1
        return slice(items * self.part // parts, items * (self.part + 1) // parts)


Sweep = Callable[[Phase], Iterator[Any]]  # runs a phase; yields its answers in the order of units and parts


class StaticProgram:
    """schedule / update / aggregate / objective over a dataset: the base class of all programs of the static engine.

    A subclass has `phases`, declares its arrays as attributes (`ooc.fields.Field`) and its options as annotated
    attributes, with or without defaults, and gives `update` and what `metrics.jsonl` is to tell by `aggregate` or
    `objective`. Or it has an `__init__` of its own and says what it has by methods: `shared_arrays`, `primary_arrays`,
    `delta_arrays`. Unless it says otherwise no local state is kept, no phase fills anything first, all shared arrays
    are primary, a unit has one stage of all its parts, and the model is the file arrays.npz of all primary arrays.

    A program is built alike in the coordinator and in the process that the workers are forked from.
    """

    initial: Sequence[Phase] = ()  # these fill the local state of a new run
    phases: Sequence[Phase] = ()  # of one iteration
    reading_phases: Sequence[Phase] = ()  # of the objective and the export: they change nothing
    exported: Sequence[Phase] = ()  # those that `export` sweeps, in that order
    state_name = "numbers of samples"  # what plans call the local state, in the plural
    trains_on_shards = False  # on a ring each rank has a shard, and phases say what travels; else all have all data

    def __init__(self, dataset: Any, **options: Any) -> None:
        self.dataset = dataset
        if type(self).__init__ is StaticProgram.__init__:
            set_options(self, options)

    def local_state(self) -> LocalState:
        """The numbers that the engine keeps for each token or entry."""
        return LocalState("uint8", 0)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Arrays that workers read and `begin` and `aggregate` change."""
        return {name: declared.spec(self.dataset, self) for name, declared in fields_of(type(self)).items()}

    def primary_arrays(self) -> Sequence[str]:
        """Those of the shared arrays that belong to a generation."""
        fields = fields_of(type(self))
        return tuple(name for name in self.shared_arrays() if name not in fields or not fields[name].derived)

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Those of the shared arrays that may lie in a file, kept slice after slice, or block after block.

        For each, int64 (n,), its elements in each of these pieces. Between two times that `writes_slice` says so it is
        changed in one piece at most.
        """
        return {}

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        """Whether the sliced arrays are to be written after a stage, or after a unit of a phase that is not staged.

        So it must be said of the last of those that change a piece. stage: 0 for a phase that is not staged.
        """
        return False

    def start_arrays(self) -> Collection[str]:
        """Those of the shared arrays that only phases of `initial` use, none of them primary: freed after these."""
        return ()

    def filed_arrays(self) -> Collection[str]:
        """Those of `start_arrays` that may lie in a file: whoever changes UNWRITTEN bytes calls `write_back`."""
        return ()

    def spread_arrays(self) -> Collection[str]:
        """Those of the shared arrays that phases `alone` set: of 8-byte numbers, or an even number of 4-byte ones."""
        return ()

    def later_arrays(self) -> Collection[str]:
        """Those of the shared arrays that no phase of `initial` uses: they take no memory before these are done."""
        return ()

    def summed_arrays(self) -> Sequence[str]:
        """Those of the primary arrays, int64, that `aggregate` adds to what happened here: on a ring of machines they
        are made to hold what happened everywhere."""
        return ()

    def partial_sums(self, phase: Phase, unit: int, stage: int, shared: Arrays) -> Sequence[np.ndarray]:
        """Arrays, float64, that a stage of a unit leaves with sums over the data that is here: on a ring of machines
        they are made to hold those over all data before the next stage. Only of phases that are staged."""
        return ()

    def rooms(self, slice_: int, bounds: np.ndarray) -> np.ndarray:
        """int64 (P,), the bytes that each part of what travels of a slice takes at most. bounds: see Job."""
        return np.zeros(bounds.size - 1, np.int64)

    def delta_arrays(self) -> dict[str, ArraySpec]:
        """Arrays that each worker has of its own, zero when a phase or stage begins, and adds to."""
        fields = fields_of(type(self))
        return {name: spec for name, spec in StaticProgram.shared_arrays(self).items() if fields[name].summed}

    def own_bytes(self) -> int:
        """Memory that the program takes in the coordinator and in the process that the workers are forked from."""
        return 0

    def scratch_bytes(self) -> int:
        """Memory that `update` allocates in each worker."""
        return 0

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """What one of some machines, each with as much data, passes on of the model in iteration `iteration`."""
        return sum(spec.bytes for spec in self.shared_arrays().values())

    def warm_up(self) -> None:
        """Compile, or load from the cache, every kernel that `update` calls."""

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        """The stages of a unit that has so many parts, each the parts that are dealt to the workers, in that order.

        Results do not depend on the order inside a stage. A phase that is not staged has one stage.
        """
        return [range(parts)]

    def follows(self, phase: Phase, stage: int, part: int) -> Collection[int]:
        """The parts of the stage before that a part of a stage waits for, if the phase `overlaps`."""
        raise NotImplementedError

    def initialize(self, shared: Arrays) -> None:
        """In the coordinator, once for a new run, before the phases that are `initial`: set the first values."""
        for name, declared in fields_of(type(self)).items():
            declared.fill(shared[name], [getattr(self, "seed", 0), *name.encode()])

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        """In the coordinator, once the primary state is there: derive what takes a sweep over it."""

    def census(self, iteration: int, sweep: Sweep, shared: Arrays) -> Sequence[np.ndarray]:
        """In the coordinator, after `iteration` iterations and before the next: what `adapt` has to know of the data
        here, one-dimensional arrays; none if nothing is to be adapted.

        A pure function of the primary state: after a kill that came before the next commit it is done again.
        """
        return ()

    def adapt(self, censuses: Sequence[Sequence[np.ndarray]], shared: Arrays) -> None:
        """In the coordinator: change primary arrays, but for summed ones, as the censuses of all machines call for."""

    def begin(self, phase: Phase, shared: Arrays) -> None:
        """In the coordinator, before a phase: derive what workers read from the primary arrays."""

    def update(self, job: Job) -> Any:
        """In a worker: do one part. The answer goes to `aggregate`, `objective` or `export`."""
        raise NotImplementedError

    def add_deltas(self, shared: Arrays, deltas: Sequence[Arrays]) -> None:
        """In the coordinator, before `aggregate`: add the deltas of fields that are `summed` to their arrays."""
        for name, declared in fields_of(type(self)).items():
            if declared.summed:
                for delta in deltas:
                    shared[name][...] += delta[name]

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        """In the coordinator, after a phase or a stage: fold the workers' deltas into the shared arrays.

        answers: in the order of units and parts, or of the stage's schedule. Returns sums over tokens to report,
        added up over an iteration and divided by the number of tokens.
        """
        return {}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        """Sums over the data, of which `objective` is made. `sweep` runs one of `reading_phases`."""
        return {}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        """The objective and its parts for the present state. sums: of `measure`, over the data of all machines."""
        return sums

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        """Write the model of the present state into an empty directory."""
        write_npz(directory / "arrays.npz", {name: shared[name] for name in self.primary_arrays()})
