"""Jobs of workers in the stochastic engine: process ranges of elements, combine shared variables, compute losses."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.errors import ModelDiverged, WorkFailed
from ooc import user_functions
from ooc.program import Arrays, Job
from ooc.rng import stream_key
from ooc.stochastic import element_loops
from ooc.stochastic.elements import KINDS, ElementVisits, element_arrays, tiny_block
from ooc.stochastic.parallelism_degree import ParallelismChoice, exact_sum
from ooc.stochastic.pass_tasks import (
    CombineVariables,
    ComputeHeldOutLosses,
    GatherVariables,
    ProcessElements,
    RestoreLocalVariables,
    RestoreVariables,
    SaveVariables,
)
from ooc.stochastic.program_functions import only_adds
from ooc.stochastic.variable_arrays import (
    gathered_variable,
    make_queue,
    slot_variable,
    sole_variable,
    spare_name,
    unchanged_variable,
    variable_slots,
)
from ooc.stochastic.variables import FULL, KEPT, LOST, SCALE, STATE, WEIGHTS, Queue, begin, place_of
from ooc.stochastic.worker_combination import GatheredVariable, combine, gather, gather_and_combine
from ooc.workers.mapped_units import cached_units

if TYPE_CHECKING:
    from ooc.stochastic.program import StochasticProgram


class ElementRange(NamedTuple):
    """Elements of one block, and the local variables of all elements and entries of the block."""

    block: int
    visits: ElementVisits
    local: Any
    kept: tuple[np.ndarray, ...]


class ElementTaskResult(NamedTuple):
    """Answer to a task.

    finite: whether the variables that the task set are finite.
    """

    seconds: float
    finite: bool = True


class ElementJobs:
    """Runs the jobs of one program in one process."""

    def __init__(self, program: StochasticProgram) -> None:
        self._program = program
        self._constants = {name: constant(value) for name, value in program.constants().items()}
        self._work = {name: x.spec(0).zeros() for name, x in program.locals.items() if x.per == "work"}
        self._loops = element_loops.load(program, self._names())
        self._sole = program.most == 1 and only_adds(program)
        dataset = program.dataset
        copies = isinstance(dataset, Dataset)  # the words of documents, which are in memory
        cached = lru_cache(maxsize=2) if copies else partial(cached_units, dataset=dataset)
        self._block = cached(lambda number: element_arrays(dataset.block(number)))

    def _names(self) -> element_loops.DeclaredVariableNames:
        program = self._program
        per = {kind: [name for name, x in program.locals.items() if x.per == kind] for kind in ("element", "entry")}
        numbers = {name: number for number, (name, x) in enumerate(program.declared.items()) if x.delayed}
        return element_loops.DeclaredVariableNames(
            elements=KINDS[type(program.dataset)],
            maps=program.functions,
            variables=list(program.declared),
            delayed=numbers,
            constants=list(self._constants),
            by_element=per["element"],
            by_entry=per["entry"],
            work=list(self._work),
        )

    def do(self, job: Job) -> Any:
        """Run a job; returns `ElementTaskResult`, or the values of a function."""
        program, arrays = self._program, job.shared
        if job.phase in program.functions:
            return self._values(job)
        trial = job.phase == program.trial.name
        choice = ParallelismChoice(*arrays["choice"].tolist())
        task = program.stages.of(job.phase, choice)[job.stage][job.part]
        began, finite = time.perf_counter(), True
        if isinstance(task, SaveVariables | RestoreVariables):
            self._copy(task, arrays)
        elif isinstance(task, RestoreLocalVariables):
            self._copy_local(task, arrays, back=True)
        elif trial:
            self._try(task, arrays, choice.passes)
        elif isinstance(task, ComputeHeldOutLosses):
            self._test(task, arrays, choice.passes)
        elif isinstance(task, GatherVariables):
            self._gather(task, arrays)
        elif isinstance(task, CombineVariables):
            finite = self._combine(task, arrays)
        else:
            if program.may_undo(task.degree):
                self._copy_local(task, arrays)
            self.process(task, arrays, choice.passes)
        return ElementTaskResult(time.perf_counter() - began, finite)

    def _try(
        self,
        task: ProcessElements | GatherVariables | CombineVariables | ComputeHeldOutLosses,
        arrays: Arrays,
        passes: int,
    ) -> None:
        """Run a task of a trial on copies of the variables; local variables are restored afterwards."""
        tried = {**arrays, **{name: arrays[spare_name(name)] for name in self._program.declared}}
        if isinstance(task, ComputeHeldOutLosses):
            self._test(task, tried, passes)
        elif isinstance(task, GatherVariables):
            self._gather(task, tried)
        elif isinstance(task, CombineVariables):
            for name in self._program.declared:
                self._set(name, tried, share_of(len(tried[name]), task), task, trial=True)
        else:
            self._copy_local(task, arrays)
            self.process(task, tried, passes, trial=True)
            self._copy_local(task, arrays, back=True)

    def process(self, task: ProcessElements, arrays: Arrays, passes: int, *, trial: bool = False) -> None:
        """Process the elements of one worker.

        passes: number of earlier passes.
        """
        program, queue = self._program, make_queue(self._program.delays)
        shared = self._shared(arrays, task.slot, queue, in_place=is_alone(task.degree, trial))
        weight = task.degree if program.strategy == "reweight" else 1
        for block, *where in self._stretches(task.first, task.last, arrays, passes):
            self._ask_ahead(block)
            visits, local, kept = where
            at = self._loops.process_elements(self._block(block), visits, weight, shared, local, queue, kept)
            if at >= 0:
                self._report(at, queue)

    def _gather(self, task: GatherVariables, arrays: Arrays) -> None:
        for name in self._program.declared:
            gathered, slots = gathered_variable(name, arrays), variable_slots(name, arrays, task.workers)
            rows = share_of(len(gathered.sums), task)
            if task.begins:
                for array in gathered:
                    array[slice(*rows)] = 0
            gather(slots, rows, self._late_times(task.degree), gathered)
            if task.share == 0:
                before = 0.0 if task.begins else arrays[f"{name}.weighed"]
                arrays[f"{name}.weighed"][:] = before + slots.states[:, WEIGHTS].sum()

    def _combine(self, task: CombineVariables, arrays: Arrays) -> bool:
        """Combine a share of the variables; returns whether it is finite.

        Raises ModelDiverged if it is not finite and the pass cannot be undone.
        """
        finite = True
        for name in self._program.declared:
            rows = share_of(len(arrays[name]), task)
            self._set(name, arrays, rows, task)
            if is_finite(arrays[name][slice(*rows)]):
                continue
            finite = False
            if not self._program.may_undo(task.degree):
                raise ModelDiverged(
                    f"training diverged: `{name}` of {type(self._program).__name__} is no longer finite",
                    "Train a new run with smaller steps, or a smaller --parallelism.",
                )
        return finite

    def _copy(self, task: SaveVariables | RestoreVariables, arrays: Arrays) -> None:
        """Save or restore a share of the shared variables."""
        for name in self._program.committed:
            now, before = arrays[name], arrays[spare_name(name)]
            rows = slice(*share_of(len(now), task))
            if isinstance(task, SaveVariables):
                before[rows] = now[rows]
            else:
                now[rows] = before[rows]

    def _copy_local(self, task: ProcessElements | RestoreLocalVariables, arrays: Arrays, *, back: bool = False) -> None:
        """Save or restore the local variables of a range of elements."""
        program = self._program
        if not program.restored:
            return
        bounds = {"element": (task.first, task.last), "entry": (program.entry(task.first), program.entry(task.last))}
        per = {f"local.{name}": local.per for name, local in program.locals.items()}
        for name in program.restored:
            span = slice(*bounds[per.get(name, "element")])
            now, before = arrays[name][span], arrays[spare_name(name)][span]
            if back:
                now[:] = before
            else:
                before[:] = now

    def _set(
        self, name: str, arrays: Arrays, rows: tuple[int, int], task: CombineVariables, *, trial: bool = False
    ) -> None:
        """Set rows of a variable, and of its mean if it has one, to the combined value. A trial leaves the mean
        unchanged."""
        if self._sole:
            return  # the value is already in place
        base = arrays[name]
        none = np.empty((0, base.shape[1]))
        mean = none if trial else arrays.get(f"{name}.mean", none)
        how = task.degree, self._accumulates, base, mean
        if not task.workers:
            combine(gathered_variable(name, arrays), base, rows, *how)
            return
        alone = is_alone(task.degree, trial)
        slots = variable_slots(name, arrays, task.workers, in_place=alone)
        if alone and not mean.size and slots.states[0, SCALE] == slots.states[0, KEPT] == 1.0:
            return  # the value is already in place
        row = GatheredVariable(
            *(np.zeros((min(len(array), 1), array.shape[1])) for array in gathered_variable(name, arrays))
        )
        gather_and_combine(slots, rows, self._late_times(task.degree), row, base, *how)
        if task.share == 0:
            arrays[f"{name}.weighed"][:] = slots.states[:, WEIGHTS].sum()

    @property
    def _accumulates(self) -> bool:
        return self._program.strategy == "accumulate"

    def _late_times(self, degree: int) -> int:
        """Return how many more times a delayed addition counts when `degree` workers are combined."""
        return 0 if self._accumulates else degree - 1

    def _test(self, task: ComputeHeldOutLosses, arrays: Arrays, passes: int) -> None:
        shared = self._unchanged({name: arrays[name] for name in self._program.declared})
        stretches = self._stretches(task.first, task.last, arrays, passes)
        loss = exact_sum(exact_sum(self._map("loss", shared, stretch)) for stretch in stretches)
        arrays["tests"][:, task.place] = loss, task.last - task.first

    def _values(self, job: Job) -> np.ndarray:
        shared = self._unchanged({name: job.shared[name] for name in self._program.declared})
        first = int(self._program.first_elements[job.unit])
        passes = ParallelismChoice(*job.shared["choice"].tolist()).passes
        stretches = self._stretches(first + job.first, first + job.last, job.shared, passes)
        return np.concatenate([self._map(job.phase, shared, stretch) for stretch in stretches] or [np.empty(0)])

    def elsewhere(self, name: str, dataset: Any, arrays: Arrays) -> Iterator[np.ndarray]:
        """Yield the values of a function for another dataset of the same kind, with local variables of 0."""
        program, shared = self._program, self._unchanged(arrays)
        for number in range(dataset.block_count):
            block = element_arrays(dataset.block(number))
            elements = block.offsets.size - 1
            counts = {"element": elements, "entry": int(block.offsets[-1])}
            kept = {name: x.spec(counts[x.per]).zeros() for name, x in program.locals.items() if x.per in counts}
            found = np.empty(elements)
            visits = ElementVisits(0, elements, 0, 0, stream_key(program.seed))
            getattr(self._loops, f"{name}_elements")(block, visits, shared, self._local(kept), found)
            yield found

    def _map(self, name: str, shared: Any, stretch: ElementRange) -> np.ndarray:
        found = np.empty(stretch.visits.last - stretch.visits.first)
        block = self._block(stretch.block)
        getattr(self._loops, f"{name}_elements")(block, stretch.visits, shared, stretch.local, found)
        return found

    def _shared(self, arrays: Arrays, slot: int, queue: Queue, *, in_place: bool = False) -> Any:
        """Return the variables that user functions see as `shared`: the copy of the worker in a slot.

        in_place: whether the worker is the only one, and changes the variables themselves.
        """
        declared = list(enumerate(self._program.declared.items()))
        if self._sole:
            variables = [sole_variable(each, arrays[name], number, queue) for number, (name, each) in declared]
        else:
            variables = [
                slot_variable(name, each, arrays, number, slot, queue, in_place=in_place)
                for number, (name, each) in declared
            ]
            for variable in variables:
                begin(variable.store, in_place)
        return self._loops.Shared(*variables, *self._constants.values())

    def _unchanged(self, bases: Arrays) -> Any:
        queue = make_queue(0)
        variables = [
            unchanged_variable(declared, bases[name], number, queue)
            for number, (name, declared) in enumerate(self._program.declared.items())
        ]
        return self._loops.Shared(*variables, *self._constants.values())

    def _stretches(self, first: int, last: int, arrays: Arrays, passes: int) -> Iterator[ElementRange]:
        """Yield the elements from `first` to `last` (exclusive), block by block."""
        program = self._program
        starts, entries = program.first_elements, program.first_entries
        block = int(np.searchsorted(starts, first, side="right")) - 1
        before, machine = (program.before, 0) if program.before is not None else (0, program.machine)
        key = stream_key(program.seed, passes, machine)
        while first < last:
            place, end = int(starts[block]), int(starts[block + 1])
            visits = ElementVisits(first - place, min(last, end) - place, place + before, passes, key)
            spans = {"element": slice(place, end), "entry": slice(int(entries[block]), int(entries[block + 1]))}
            locals_ = program.locals.items()
            kept = {name: arrays[f"local.{name}"][spans[x.per]] for name, x in locals_ if x.per in spans}
            delayed = tuple(array[spans["element"]] for array in self._delayed(arrays))
            yield ElementRange(block, visits, self._local(kept), delayed)
            first, block = min(last, end), block + 1

    def _ask_ahead(self, block: int) -> None:
        """Ask the kernel to read the next block in advance."""
        dataset = self._program.dataset
        dataset.ask_for_block((block + 1) % dataset.block_count)

    def _delayed(self, arrays: Arrays) -> tuple[np.ndarray, ...]:
        if not self._program.delays:
            return np.empty(0, np.int64), np.empty((0, 0, 3), np.int64), np.empty((0, 0))
        return tuple(arrays[f"delayed.{name}"] for name in ("count", "places", "deltas"))

    def _report(self, element: int, queue: Queue) -> None:
        """Raise the error that `process` recorded for an element."""
        which, number, row, column = queue.mistake.tolist()
        name, declared = list(self._program.declared.items())[number]
        where = f"{type(self._program).__name__}.process, at element {element}"
        if which == FULL:
            raise WorkFailed(
                f"{where}: more than {self._program.delays} delayed additions", "Increase `delays` of the program."
            )
        if which == LOST:
            raise WorkFailed(f"{where}: `shared.{name}` has a running mean, so it cannot be multiplied by 0")
        place = ", ".join(map(str, place_of(declared.shape, row, column)))
        raise WorkFailed(f"{where}: `shared.{name}` has no index [{place}]; its shape is {declared.shape}")

    def warm_up(self) -> None:
        """Compile all loops by running them on zero elements, with arrays of the real types."""
        program, queue = self._program, make_queue(self._program.delays)
        arrays = {
            name: np.zeros([min(size, STATE) for size in spec.shape], spec.dtype)
            for name, spec in program.shared_arrays().items()
        }
        kept = {name: arrays[f"local.{name}"][:0] for name, x in program.locals.items() if x.per != "work"}
        stretch = ElementRange(
            0, ElementVisits(0, 0, 0, 0, stream_key(program.seed)), self._local(kept), self._delayed(arrays)
        )
        shared = self._shared(arrays, 0, queue)
        block = tiny_block(program.dataset)
        with user_functions.report_user_errors(type(program), ("process", *program.functions)):
            self._loops.process_elements(block, stretch.visits, 1, shared, stretch.local, queue, stretch.kept)
            for name in program.functions:
                loop = getattr(self._loops, f"{name}_elements")
                loop(block, stretch.visits, self._unchanged(arrays), stretch.local, np.empty(0))
        for name in program.declared:
            gather(variable_slots(name, arrays, 0), (0, 0), 0, gathered_variable(name, arrays))
            for workers in (0, 1):
                self._set(name, arrays, (0, 0), CombineVariables(1, 2, 1, workers))

    def _local(self, kept: Arrays) -> Any:
        """Return `local` with the variables of all elements of a block."""
        arrays = {**kept, **self._work}
        return self._loops.Local(**arrays) if arrays else self._loops.Local(0)


def is_alone(degree: int, trial: bool) -> bool:
    """Return whether a worker may change the shared variables in place, as the only worker outside a trial."""
    return degree == 1 and not trial


def is_finite(numbers: np.ndarray) -> bool:
    """Return whether all numbers are finite, tested via their sum."""
    with np.errstate(all="ignore"):
        return math.isfinite(float(numbers.sum(dtype=np.float64)))


def share_of(rows: int, task: GatherVariables | CombineVariables | SaveVariables | RestoreVariables) -> tuple[int, int]:
    """Return the first row of a task's share, and the row after the last one."""
    return rows * task.share // task.shares, rows * (task.share + 1) // task.shares


def constant(value: Any) -> Any:
    """Return a number unchanged, or an array as a read-only array."""
    if not isinstance(value, np.ndarray):
        return value
    value = np.ascontiguousarray(value)
    value.setflags(write=False)
    return value
