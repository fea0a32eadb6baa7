"""Stochastic algorithms written for one thread and run by many workers (Zhang and Jordan, Splash, 2015).

A program defines `process(element, weight, shared, local)`. Each of m workers starts from the shared variables and
processes a share of the elements, with m times the weight of each element. At the end of each round, the results of all
workers are combined with equation 9 (see `ooc.stochastic.worker_combination`). m is a property of the run; processes
run workers as they become free. On a ring of R machines, each machine has m / R workers for the elements of its shard,
and results are summed over all machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.npz import write_npz
from ooc.program import Arrays, Job, Phase, StaticProgram, Sweep
from ooc.program_fields import Field, program_fields, program_options, set_options
from ooc.stochastic.checks import check_declared, check_sizes
from ooc.stochastic.elements import elements_before, entry_bounds, total_elements
from ooc.stochastic.parallelism_degree import (
    MADE,
    TO_MAKE,
    ParallelismChoice,
    choose_degree,
    exact_sum,
    is_worse,
    next_smaller_degree,
    undone_choice,
)
from ooc.stochastic.pass_tasks import CombineVariables, ComputeHeldOutLosses, GatherVariables, ProcessElements, cut
from ooc.stochastic.phase_stages import TESTS, PhaseStages
from ooc.stochastic.variable_arrays import Shared, committed_specs, slot_specs, spare_name
from ooc.stochastic.variables import unpacked
from ooc.stochastic.worker_combination import GatheredVariable
from ooc.workers.shared_arrays import ArraySpec

AUTO = "auto"
MOST_PARALLELISM = 16  # default maximum degree in trials
_SLOTS_BYTES = 1 << 28  # approximate size of the variables of a batch of workers
_SHARE_BYTES, _MOST_SHARES = 1 << 23, 16  # bytes of variables that one job combines, and maximum number of jobs
_GROUPS = 8  # maximum number of groups in a trial
TIMES = ("computing_s", "waiting_s", "communicating_s")


class Local(NamedTuple):
    """A local variable: an array (by default a single number) for each element.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array of an element.
    dtype : str
        Type of the array.
    per : "element", "entry" or "work"
        "entry" for an array whose first dimension is the element's entries or tokens; "work" for a temporary array of
        `process`.
    derived : bool
        Whether `process` does not read the variable, so that it need not be restored when a pass is undone.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    per: Literal["element", "entry", "work"] = "element"
    derived: bool = False

    def spec(self, count: int) -> ArraySpec:
        """Return the spec for `count` elements or entries. A work array lacks this dimension."""
        shape = self.shape or (() if self.per == "entry" else (1,))
        return ArraySpec(shape if self.per == "work" else (count, *shape), self.dtype)


class StochasticProgram(StaticProgram):
    """Base class of stochastic programs, which define `shared_variables`, `process` and optional methods.

    Parameters
    ----------
    dataset : dataset
        Dataset, or the shard of one machine.
    parallelism : int or "auto"
        Number of workers; or "auto" to choose up to `most_parallelism` by trials, and fewer after a pass that increased
        the loss (see `ooc.stochastic.parallelism_degree`). "auto" requires `loss`.
    most_parallelism : int
        Largest number of workers that "auto" chooses.
    sync_per_pass : int
        Number of rounds in a pass.
    strategy : "reweight", "average" or "accumulate"
        "average" and "accumulate" are for comparison: elements have weight 1 and the workers' changes are averaged or
        summed.
    seed : int
        Seed of the random numbers.
    on_ring : bool
        Whether the dataset is a shard that is trained together with all other shards.
    """

    start = Phase("start", "grid", writes=False)
    check = Phase("check", "grid", writes=False, staged=True)
    trial = Phase("trial", "grid", writes=False, staged=True)
    passes = Phase("process", "grid", writes=False, staged=True)
    maps: Sequence[str] = ()  # functions of (element, shared, local), in addition to `loss`, that return a number
    delays = 0  # maximum number of delayed additions per element

    def __init__(
        self,
        dataset: Any,
        *,
        parallelism: int | str = AUTO,
        most_parallelism: int = MOST_PARALLELISM,
        sync_per_pass: int = 1,
        strategy: str = "reweight",
        seed: int = 0,
        on_ring: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dataset)
        set_options(self, options)
        if on_ring and "shard" not in dataset.manifest:
            raise RequestError(
                f"{dataset.path} is a whole dataset; expected a shard", "Split the dataset with `ooc shard`."
            )
        self.seed, self.rounds, self.strategy = seed, sync_per_pass, strategy
        self.trains_on_shards = on_ring
        self.machine: int = dataset.shard if on_ring else 0
        self.machines: int = dataset.shards if on_ring else 1
        self.first_degree = self.machines if parallelism == AUTO else int(parallelism)
        self.most = max(most_parallelism, self.machines) if parallelism == AUTO else self.first_degree
        self.adaptive = self.most > self.first_degree
        self.functions = [*(["loss"] if hasattr(self, "loss") else []), *self.maps]
        self.declared, self.locals = self.shared_variables(), self.local_variables()
        check_declared(self)
        self.first_elements, self.first_entries = dataset.block_bounds, entry_bounds(dataset)
        self.elements = int(self.first_elements[-1])
        self.everywhere = total_elements(dataset) if on_ring else self.elements
        self.before = elements_before(dataset) if on_ring else 0
        check_sizes(self)
        self.stages = PhaseStages(self)
        self.initial = (self.start, self.check) if self.adaptive else (self.start,)
        self.phases = (self.trial, *self.stages.attempts()) if self.adaptive else (self.passes,)
        self.reading_phases = tuple(Phase(name, "block", writes=False) for name in self.functions)
        self._choice = ParallelismChoice(self.first_degree)  # choice for the current phase, in the coordinator
        self._stage = 0  # index of the stage of this phase that ends next
        self._losses: list[float] = []  # losses of groups in a trial
        self._finite = True  # whether all variables are finite after a pass

    # Declarations of a user's program

    def shared_variables(self) -> dict[str, Shared]:
        """Return the shared variables by name. They start at 0 unless `first_values` returns a value.

        Default: the fields of the class that are neither per row nor work arrays.
        """
        specs = {name: field.spec(self.dataset, self) for name, field in self._fields("", "column").items()}
        return {name: Shared(spec.shape, str(spec.dtype)) for name, spec in specs.items()}

    def _fields(self, *kinds: str) -> dict[str, Field]:
        return {name: field for name, field in program_fields(type(self)).items() if field.per in kinds}

    def local_variables(self) -> dict[str, Local]:
        """Return the local variables by name. They start at 0. Default: the fields that are per row or work arrays."""
        found = {}
        for name, field in self._fields("row", "work").items():
            shape = field.spec(self.dataset, self).shape[field.per == "row" :]
            found[name] = Local(shape or (1,), field.dtype, per="element" if field.per == "row" else "work")
        return found

    def constants(self) -> dict[str, Any]:
        """Return the constants in `shared`: numbers and read-only arrays. Default: the numeric options."""
        values = {name: getattr(self, name) for name in program_options(type(self))}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}

    def first_values(self) -> dict[str, Any]:
        """Return the initial values of shared variables that do not start at 0. Default: the initial values of the
        fields."""
        found = {name: np.zeros(declared.shape) for name, declared in self.declared.items()}
        for name, field in self._fields("", "column").items():
            field.fill(found[name], [self.seed, *name.encode()])
        return {name: values for name, values in found.items() if values.any()}

    def initialize(self, shared: Arrays) -> None:
        """Let `begin` set the initial values."""

    @staticmethod
    def process(element: Any, weight: Any, shared: Any, local: Any) -> None:
        """Process one element with a weight: change `shared` with its operators, and change `local`.

        Compiled by numba. Functions that `process` calls must also be compiled, and be in the same file.
        """
        raise NotImplementedError

    # Arrays

    def _slot_bytes(self) -> int:
        return sum(spec.bytes for name, each in self.declared.items() for spec in slot_specs(name, each, 1).values())

    @cached_property
    def slots(self) -> int:
        """Return the number of workers in a batch."""
        return min(self.most // self.machines, max(2, _SLOTS_BYTES // self._slot_bytes()))

    @cached_property
    def shares(self) -> int:
        """Return the number of jobs in which variables are combined."""
        return min(max(self._slot_bytes() // _SHARE_BYTES, 1), _MOST_SHARES)

    def local_specs(self) -> dict[str, ArraySpec]:
        """Return the specs of the local variables."""
        counts = {"element": self.elements, "entry": int(self.first_entries[-1])}
        kept = {name: local for name, local in self.locals.items() if local.per != "work"}
        specs = {f"local.{name}": local.spec(counts[local.per]) for name, local in kept.items()}
        if self.delays:
            specs["delayed.count"] = ArraySpec((self.elements,), "int64")
            specs["delayed.places"] = ArraySpec((self.elements, self.delays, 3), "int64")
            specs["delayed.deltas"] = ArraySpec((self.elements, self.delays), "float64")
        return specs

    def shared_arrays(self) -> dict[str, ArraySpec]:
        specs = {
            "choice": ArraySpec((len(ParallelismChoice._fields),), "int64"),
            "times": ArraySpec((len(TIMES),), "float64"),
        }
        for name, declared in self.declared.items():
            specs |= committed_specs(name, declared) | slot_specs(name, declared, self.slots)
        specs |= self.local_specs()
        if self.adaptive:
            specs |= {spare_name(name): specs[name] for name in (*self.committed, *self.restored)}
            specs["tried"] = ArraySpec((_GROUPS, 2), "float64")
            specs["tests"] = ArraySpec((2, TESTS), "float64")  # losses, and element counts, in the current stage
            specs["checked"] = ArraySpec((2, TESTS), "float64")  # losses of the sample at the start and after the pass
        return specs

    @cached_property
    def committed(self) -> list[str]:
        """Return the names of the shared variables' arrays that are part of a generation."""
        return [name for each, declared in self.declared.items() for name in committed_specs(each, declared)]

    @cached_property
    def restored(self) -> list[str]:
        """Return the names of the local arrays that are restored after a trial or an undone pass."""
        derived = {f"local.{name}" for name, local in self.locals.items() if local.derived}
        return [name for name in self.local_specs() if name not in derived]

    def primary_arrays(self) -> Sequence[str]:
        return ("choice", *(["tried", "checked"] if self.adaptive else []), *self.committed, *self.local_specs())

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return the sizes of the local variables in each round."""
        bounds = cut(0, self.elements, self.rounds)
        sizes = {"element": np.diff(bounds), "entry": np.diff([self.entry(element) for element in bounds])}
        per = {f"local.{name}": local.per for name, local in self.locals.items()}
        specs = self.local_specs()
        pieces = {name: sizes[per.get(name, "element")] * math.prod(spec.shape[1:]) for name, spec in specs.items()}
        return pieces | ({spare_name(name): pieces[name] for name in self.restored} if self.adaptive else {})

    def entry(self, element: int) -> int:
        """Return the index of an element's first entry among all entries."""
        if element == self.elements:
            return int(self.first_entries[-1])
        block = int(np.searchsorted(self.first_elements, element, side="right")) - 1
        offsets = self.dataset.block(block).offsets
        return int(self.first_entries[block] + offsets[element - self.first_elements[block]])

    def scratch_bytes(self) -> int:
        """Return the size in bytes of the work arrays, and of the words of two blocks of documents."""
        work = sum(local.spec(0).bytes for local in self.locals.values() if local.per == "work")
        return work + 12 * int(self.dataset.index.cells.sum(axis=1).max(initial=0))

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """Return the number of bytes sent per iteration: in each round, the summed results of workers and the combined
        variables.
        """
        arrays = self.shared_arrays()
        gathered = (arrays[name].bytes for name in self._gathered_names())
        return 2 * self.rounds * sum(gathered)

    def _gathered_names(self) -> list[str]:
        return [f"{name}.{field}" for name in self.declared for field in (*GatheredVariable._fields, "weighed")]

    # The engine's calls

    @cached_property
    def jobs(self) -> Any:
        """Return the object that runs jobs with compiled loops."""
        from ooc.stochastic.element_jobs import ElementJobs

        return ElementJobs(self)

    def warm_up(self) -> None:
        self.jobs.warm_up()

    def begin(self, phase: Phase, shared: Arrays) -> None:
        if phase is self.start:
            shared["choice"][:] = ParallelismChoice(self.first_degree)
            for name, values in self.first_values().items():
                unpacked(self.declared[name].shape, shared[name])[...] = values
        if phase is self.phases[0]:
            shared["times"][:] = 0
            shared["choice"][-1] = TO_MAKE
        self._choice = ParallelismChoice(*shared["choice"].tolist())
        self._stage, self._losses, self._finite = 0, [], True

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if not phase.staged:
            return [range(0 if phase is self.start else parts)]
        return [range(len(stage)) for stage in self.stages.of(phase.name, self._choice)]

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        rounds = self.stages.rounds(phase.name, self._choice) if phase.staged else []
        return stage + 1 in np.cumsum([len(stages) for stages in rounds])

    def partial_sums(self, phase: Phase, unit: int, stage: int, shared: Arrays) -> Sequence[np.ndarray]:
        first = self.stages.of(phase.name, self._choice)[stage][0]
        if isinstance(first, ComputeHeldOutLosses):
            return [shared["tests"]]
        if isinstance(first, GatherVariables) and first.ends:
            return [shared[name] for name in self._gathered_names()]
        return []

    def update(self, job: Job) -> Any:
        return self.jobs.do(job)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if not phase.staged:
            return {}
        stages = self.stages.of(phase.name, self._choice)
        first = stages[self._stage][0]
        self._stage += 1
        seconds = [done.seconds for done in answers]
        self._finite = self._finite and all(done.finite for done in answers)
        if isinstance(first, ProcessElements):
            shared["times"][:2] += np.mean(seconds), np.max(seconds) - np.mean(seconds)
        elif isinstance(first, ComputeHeldOutLosses):
            self._losses.append(exact_sum(shared["tests"][0]) / shared["tests"][1].sum())
        else:
            shared["times"][2] += max(seconds)
        if isinstance(first, CombineVariables) and phase is self.passes:
            for name in (name for name, declared in self.declared.items() if declared.averaged):
                shared[f"{name}.weights"] += shared[f"{name}.weighed"]
        if self._stage == len(stages):
            self._ended(phase, shared)
        return {}

    def _ended(self, phase: Phase, shared: Arrays) -> None:
        """Handle the end of the last stage of a phase."""
        choice = self._choice
        if phase is self.check:
            shared["checked"][:] = shared["tests"][0]
        elif phase is self.trial:
            groups = self.stages.groups(choice.degree)
            shared["tried"][:] = 0
            shared["tried"][: len(groups)] = np.column_stack((groups, self._losses))
            shared["choice"][:] = choose_degree(choice, groups, self._losses)
        elif self.may_undo(choice.degree) and (not self._finite or is_worse(*shared["checked"], *shared["tests"])):
            degree = next_smaller_degree(choice.degree // self.machines, self.most // self.machines) * self.machines
            shared["choice"][:] = undone_choice(choice, degree)
        else:
            shared["choice"][:] = choice._replace(passes=choice.passes + 1, status=MADE)
            if self.adaptive:
                shared["checked"][1] = shared["tests"][0]

    def may_undo(self, degree: int) -> bool:
        """Return whether a pass with `degree` workers may be undone, which requires that fewer workers are possible."""
        return self.adaptive and degree > self.machines

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        told: dict[str, float] = {}
        if self.adaptive:
            told = {f"held_out_loss_of_{int(degree)}": loss for degree, loss in shared["tried"].tolist() if degree}
            told["undone_passes"] = ParallelismChoice(*shared["choice"].tolist()).undone
        times = dict(zip(TIMES, shared["times"].tolist(), strict=True))
        means = {name: total / self.everywhere for name, total in sums.items()}
        return {**means, "parallelism": int(shared["choice"][0]), **told, **times}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        if "loss" not in self.functions:
            return {}
        return {"objective": exact_sum(map(exact_sum, self.values("loss", sweep)))}

    def values(self, name: str, sweep: Sweep) -> Iterator[np.ndarray]:
        """Return the values of a function (`loss` or one of `maps`) for all elements, part by part, float64."""
        return sweep(self.reading_phases[self.functions.index(name)])

    def variables(self, shared: Arrays) -> dict[str, np.ndarray]:
        """Return the shared variables in their declared shapes, and the means over all iterates where they are kept."""
        found = {name: unpacked(declared.shape, shared[name]) for name, declared in self.declared.items()}
        for name, declared in self.declared.items():
            if declared.averaged:
                mean = shared[f"{name}.mean"] / max(float(shared[f"{name}.weights"][0]), np.finfo(float).tiny)
                found[f"{name}_mean"] = unpacked(declared.shape, mean)
        return found

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        write_npz(directory / "variables.npz", self.variables(shared))
