"""Interface between a model and the static engine: a model is a program of phases over the grid of cells.

The state contract. A program's *primary* state is (a) its local state, `width` numbers of one dtype for each token,
stored by the engine in the word-major order of each block, and (b) the shared arrays that the program declares to be
primary. All other state is derived from the primary state and is rebuilt after a resume by `restore` and `begin`. The
engine commits the primary state, with the cursor (iteration, phase) and the counters, as one generation; a program
never touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from blocks.corpus.bags import document_counts
from blocks.corpus.dataset import TokenBlock, WordSlice
from blocks.errors import RequestError
from blocks.npz import write_npz
from blocks.ratings.matrix import MatrixColumnSlice
from ooc.program_fields import program_fields, set_options
from ooc.ring.packet_slots import PartInTransit
from ooc.workers.shared_arrays import ArraySpec

Arrays = Mapping[str, np.ndarray]
_ORDERS = ("slice", "block", "grid")
_TRAVELS = ("", "made", "changed", "shown", "looked at")


@dataclass(frozen=True)
class Phase:
    """One pass over all cells.

    Parameters
    ----------
    name : str
        Name of the phase, given to `update` as `job.phase`.
    order : "slice", "block" or "grid"
        Outer loop over the grid. With "slice", all cells of a slice are visited together; with "block", all cells of a
        block. With "grid", all cells are one unit, whose parts are the blocks, and there is no local state.
    writes : bool
        Whether local state changes.
    staged : bool
        Whether units are processed one after the other, each in the stages that `schedule` returns, with an `aggregate`
        after every stage. Otherwise the parts of all units are processed in any order, with one `aggregate` at the end
        of the phase.
    overlaps : bool
        Whether each part of a stage waits only for the parts of the previous stage that it `follows`, rather than for
        the whole stage. The parts change shared arrays, not deltas.
    alone : bool
        Whether only the first of several machines runs this phase, a phase of `initial`, on its own data. The program's
        `spread_arrays` are copied from it to all machines before the next phase that is not `alone`.
    travels : "", "made", "changed", "shown" or "looked at"
        How the phase uses the slices' model state, if this state travels on a ring of machines (see
        `ooc.ring.rotation`). "made": each machine in turn adds its share, starting from 0. "changed": each machine in
        turn receives the state and changes it. "shown": each machine in turn receives the state, which no machine
        changes and which stays on its rank. "looked at": each machine reads the state on its own rank. State made by a
        phase of `initial` is part of the generations of the machine on which it is stored.
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
                raise RequestError(f"Phase({self.name!r}): unknown {field}={given!r}", f"Choose one of: {known}.")


class LocalState(NamedTuple):
    """Layout of the numbers stored for each token.

    Parameters
    ----------
    dtype : str
        Type of the numbers.
    width : int
        Number of numbers for each token.
    below : int
        If not 0, all numbers are nonnegative and less than `below`.
    """

    dtype: str
    width: int
    below: int = 0


@dataclass(frozen=True)
class Job:
    """A part of a unit (a slice or a block, depending on the phase's order), as handed to a worker.

    Parameters
    ----------
    phase : str
        Name of the phase.
    unit, stage, part : int
        Numbers of the unit, of its stage and of its part, from 0.
    bounds : int64 array of shape (P + 1,)
        The first word (in a slice) or document (in a block) of each part of the unit.
    data : TokenBlock, WordSlice, RowBlock, MatrixColumnSlice, SampleBlock or None
        The unit's immutable data: a TokenBlock or WordSlice of a corpus, a RowBlock or MatrixColumnSlice of a matrix, a
        SampleBlock of samples, or None for the grid.
    state : array of shape (rows, width)
        Local state in memory.
    bases : int64 array of shape (B,)
        Number to add to a word-major position of each block to get its row in `state`; negative if the first cells of
        the block are not in memory.
    shared : mapping of str to array
        Arrays that all workers read.
    delta : mapping of str to array
        This worker's own arrays, to which it adds.
    stream : tuple of int
        Key of the job's random numbers: (iteration, phase, unit, stage, part).
    passage : PartInTransit, optional
        State that travels with the slice, for this part.
    starts : sequence of int
        First row of each block, or first column of each slice, followed by the total count.
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
    passage: PartInTransit | None = None
    starts: Sequence[int] = ()

    @property
    def rows(self) -> slice:
        """Return the rows of the dataset in this part, or the columns if the phase goes through slices."""
        if self.data is None:  # the unit is the grid, whose parts are blocks
            return slice(self.starts[self.part], self.starts[self.part + 1])
        start = self.starts[self.unit]
        return slice(start + self.first, start + self.last)

    def own(self, name: str) -> np.ndarray:
        """Return a view of a shared array's elements for the rows, or columns, of this part."""
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
        """Return the slice of this part's documents, rows, words or columns, numbered over all units.

        starts: the first document, row, word or column of each unit.
        """
        return slice(int(starts[self.unit]) + self.first, int(starts[self.unit]) + self.last)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of the rows, or columns, in this part of ratings, samples or documents.

        Returns offsets, int64 (n+1,), columns (or rows), uint32 (N,), and values, float32 (N,). The entries of a
        document are the ranks of its distinct words, ascending, and their counts.
        Raises RequestError for words if the phase goes through slices: a slice of a corpus does not know its documents.
        """
        if isinstance(self.data, TokenBlock):
            return document_counts(self.data, self.first, self.last)
        if isinstance(self.data, WordSlice):
            raise RequestError(
                f"the phase {self.phase!r} goes through slices, which a corpus does not store",
                'Go through documents, with Phase(name, "block"); or ingest the word counts as ratings.',
            )
        others = self.data.rows if isinstance(self.data, MatrixColumnSlice) else self.data.columns
        return self.data.offsets[self.first : self.last + 1], others, self.data.values

    def labels(self) -> np.ndarray:
        """Return the labels of the samples in this part, float64 (n,)."""
        return self.data.labels[self.first : self.last]

    def share(self, items: int) -> slice:
        """Return this part's slice of `items` items that are split evenly among the parts of the unit."""
        parts = self.bounds.size - 1
        return slice(items * self.part // parts, items * (self.part + 1) // parts)


Sweep = Callable[[Phase], Iterator[Any]]  # runs a phase; yields the answers in order of units and parts


class StaticProgram:
    """Base class of all programs of the static engine: schedule / update / aggregate / objective over a dataset.

    A subclass sets `phases`, declares its arrays as attributes (`ooc.program_fields.Field`) and its options as
    annotated attributes, with or without defaults, and defines `update`, and `aggregate` or `objective` for the numbers
    in `metrics.jsonl`. Alternatively, it defines `__init__` and overrides `shared_arrays`, `primary_arrays` and
    `delta_arrays`. By default, there is no local state and no initial phase, each unit has one stage with all its
    parts, all shared arrays are primary, and the model is a file arrays.npz with all primary arrays.

    The coordinator and the process from which workers are forked build equal instances.
    """

    initial: Sequence[Phase] = ()  # phases that fill the local state of a new run
    phases: Sequence[Phase] = ()  # phases of one iteration
    reading_phases: Sequence[Phase] = ()  # read-only phases of `measure` and `export`
    exported: Sequence[Phase] = ()  # phases that `export` sweeps, in this order
    state_name = "local state of the samples"  # description of the local state in plans
    trains_on_shards = False  # whether each rank has a shard, with `travels` set; otherwise all data
    # maximum number of samples that are trained without worker processes, which take about as long to start as 100
    # iterations of the slowest sampler
    few_samples = 50_000

    def __init__(self, dataset: Any, **options: Any) -> None:
        self.dataset = dataset
        if type(self).__init__ is StaticProgram.__init__:
            set_options(self, options)

    def local_state(self) -> LocalState:
        """Return the layout of the numbers that the engine stores for each token or entry."""
        return LocalState("uint8", 0)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the specs of the arrays that workers read, and that `begin` and `aggregate` change."""
        return {name: declared.spec(self.dataset, self) for name, declared in program_fields(type(self)).items()}

    def primary_arrays(self) -> Sequence[str]:
        """Return the names of the shared arrays that belong to a generation."""
        fields = program_fields(type(self))
        return tuple(name for name in self.shared_arrays() if name not in fields or not fields[name].derived)

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return the shared arrays that may be kept in a file by slice or by block.

        Returns, for each name, the number of elements in each piece, int64 (n,). Between two stages for which
        `writes_slice` returns True, at most one piece changes.
        """
        return {}

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        """Return whether to write the sliced arrays after a stage, or after a unit of a phase that is not staged.

        Must return True for the last stage that changes a piece.

        stage: 0 for a phase that is not staged.
        """
        return False

    def start_arrays(self) -> Collection[str]:
        """Return the names of the shared arrays that only phases of `initial` use; they are freed afterwards, and
        cannot be primary, that is, saved in checkpoints.
        """
        return ()

    def filed_arrays(self) -> Collection[str]:
        """Return the names of the `start_arrays` that may be in a file. Code that changes them must call `write_back`
        after every UNWRITTEN bytes."""
        return ()

    def spread_arrays(self) -> Collection[str]:
        """Return the names of the shared arrays that phases marked `alone` set. They must hold 8-byte numbers, or an
        even count of 4-byte numbers."""
        return ()

    def later_arrays(self) -> Collection[str]:
        """Return the names of the shared arrays that no phase of `initial` uses; their memory is allocated after these
        phases."""
        return ()

    def summed_arrays(self) -> Sequence[str]:
        """Return the names of the primary int64 arrays to which `aggregate` adds local counts; on a ring, the counts of
        all ranks are summed."""
        return ()

    def partial_sums(self, phase: Phase, unit: int, stage: int, shared: Arrays) -> Sequence[np.ndarray]:
        """Return the float64 arrays with the sums of a stage over local data, for staged phases.

        On a ring of machines, these arrays are replaced with the sums over the data of all machines before the next
        stage.
        """
        return ()

    def rooms(self, slice_: int, bounds: np.ndarray) -> np.ndarray:
        """Return the maximum size in bytes of each part of a slice's travelling state, int64 (P,).

        bounds: see Job.
        """
        return np.zeros(bounds.size - 1, np.int64)

    def delta_arrays(self) -> dict[str, ArraySpec]:
        """Return the specs of each worker's own arrays, which are set to zero at the start of a phase or stage."""
        fields = program_fields(type(self))
        return {name: spec for name, spec in StaticProgram.shared_arrays(self).items() if fields[name].summed}

    def own_bytes(self) -> int:
        """Return the memory in bytes that the program takes in the coordinator and in the workers' parent process."""
        return 0

    def scratch_bytes(self) -> int:
        """Return the number of bytes that `update` allocates in each worker."""
        return 0

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """Return the number of bytes of the model that each machine sends per iteration, if `machines` machines have
        equal amounts of data.
        """
        return sum(spec.bytes for spec in self.shared_arrays().values())

    def warm_up(self) -> None:
        """Compile every kernel that `update` calls, or load it from the cache."""

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        """Return the stages of a unit of `parts` parts, each as a list of parts in the order in which workers get them.

        Results do not depend on the order within a stage. A phase that is not staged has one stage.
        """
        return [range(parts)]

    def follows(self, phase: Phase, stage: int, part: int) -> Collection[int]:
        """Return the parts of the previous stage for which a part of this stage waits, if the phase `overlaps`."""
        raise NotImplementedError

    def initialize(self, shared: Arrays) -> None:
        """Set the initial values of a new run; called in the coordinator before the phases of `initial`."""
        for name, declared in program_fields(type(self)).items():
            declared.fill(shared[name], [getattr(self, "seed", 0), *name.encode()])

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        """Compute derived state that requires a sweep over the restored primary state; called in the coordinator."""

    def census(self, iteration: int, sweep: Sweep, shared: Arrays) -> Sequence[np.ndarray]:
        """Return statistics of the local data for `adapt`.

        The statistics are one-dimensional arrays, or an empty sequence if there is nothing to adapt. Called in the
        coordinator between iteration `iteration` and the next one. Must be a pure function of the primary state: it is
        called again if the process is killed before the next commit.
        """
        return ()

    def adapt(self, censuses: Sequence[Sequence[np.ndarray]], shared: Arrays) -> None:
        """Change primary arrays, except summed arrays, based on the statistics of all machines.

        Called in the coordinator.
        """

    def begin(self, phase: Phase, shared: Arrays) -> None:
        """Compute the arrays that workers read from the primary arrays; called in the coordinator before a phase."""

    def update(self, job: Job) -> Any:
        """Process one part in a worker. The returned value is passed to `aggregate`, `objective` or `export`."""
        raise NotImplementedError

    def add_deltas(self, shared: Arrays, deltas: Sequence[Arrays]) -> None:
        """Add the deltas of `summed` fields to their arrays; called in the coordinator before `aggregate`."""
        for name, declared in program_fields(type(self)).items():
            if declared.summed:
                for delta in deltas:
                    shared[name][...] += delta[name]

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        """Add the workers' deltas to the shared arrays; called in the coordinator after a phase or stage.

        answers: answers of the parts in order of units and parts, or in the order of the stage's schedule.
        Returns sums over tokens for the metrics, which are added up over an iteration and divided by the number of
        tokens.
        """
        return {}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        """Return sums over the data, from which `objective` is computed.

        sweep: function that runs one of `reading_phases`.
        """
        return {}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        """Return the objective and its terms for the current state.

        sums: sums that `measure` returned, over all machines.
        """
        return sums

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        """Write the model of the current state into an empty directory."""
        write_npz(directory / "arrays.npz", {name: shared[name] for name in self.primary_arrays()})
