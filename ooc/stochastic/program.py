"""Stochastic algorithms that are written for one thread, and run by many workers (Zhang and Jordan, Splash, 2015).

A program gives `process(element, weight, shared, local)`. Of m workers each processes a share of the elements, each of
these m times as heavy, beginning with what the shared variables were; what all have come to is combined by equation 9
(see `ooc.stochastic.variables`), at the end of each round. m is a property of the run: processes take workers as they
are free. On a ring each machine has m / R of the workers, on the elements of its shard; what all have is added up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.npz import write_npz
from ooc.fields import Field, fields_of, options_of, set_options
from ooc.program import Arrays, Job, Phase, StaticProgram, Sweep
from ooc.stochastic.checks import check_declared, check_sizes
from ooc.stochastic.degrees import MADE, TO_MAKE, TO_UNDO, Choice, choose, fewer, group_sizes, is_worse, total, undone
from ooc.stochastic.elements import elements_before, elements_of_whole, entry_bounds
from ooc.stochastic.tasks import (
    Combine,
    Gather,
    HeldOut,
    Process,
    Stage,
    check_stage,
    cut,
    keep_stages,
    pass_stages,
    trial_stages,
    undo_stages,
)
from ooc.stochastic.variable_arrays import Shared, committed_specs, slot_specs, spare
from ooc.stochastic.variables import Gathered, unpacked
from ooc.workers.shared_arrays import ArraySpec

AUTO = "auto"
MOST_PARALLELISM = 16  # that is tried, if nothing else is said
_SLOTS_BYTES = 1 << 28  # of the workers of a batch, about
_SHARE_BYTES, _MOST_SHARES = 1 << 23, 16  # of the variables, that one job combines
_TESTS = 16  # jobs that find the loss of some elements
_GROUPS = 8  # of a trial, at most
TIMES = ("computing_s", "waiting_s", "communicating_s")


class Local(NamedTuple):
    """A variable of each element: an array, of one number if nothing is said of its shape.

    per: "element"; "entry" for such an array, or number, of each entry of the element, or token, the first dimension;
    or "work", an array that is there for use within `process` and is not kept. derived: whether `process` takes nothing
    from it, so that it need not be restored where a pass is undone.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    per: Literal["element", "entry", "work"] = "element"
    derived: bool = False

    def spec(self, count: int) -> ArraySpec:
        """Of so many elements, or entries; of a work array the first dimension is left out."""
        shape = self.shape or (() if self.per == "entry" else (1,))
        return ArraySpec(shape if self.per == "work" else (count, *shape), self.dtype)


class StochasticProgram(StaticProgram):
    """A program but for what is its own: `shared_variables`, `process`, and whatever else it needs.

    parallelism: workers, or "auto" for as many as trials of up to `most_parallelism` choose, and fewer where a pass
    makes the loss worse, see `ooc.stochastic.degrees`; that takes `loss`. sync_per_pass: rounds of a pass. strategy:
    "reweight"; or, to compare with, "average" and "accumulate": elements have weight 1 then, and what workers have
    changed is averaged, or added up. on_ring: the dataset is a shard, and all shards are trained on together."""

    start = Phase("start", "grid", writes=False)
    check = Phase("check", "grid", writes=False, staged=True)
    trial = Phase("trial", "grid", writes=False, staged=True)
    passes = Phase("process", "grid", writes=False, staged=True)
    maps: Sequence[str] = ()  # functions of (element, shared, local) that give a number, besides `loss`
    delays = 0  # delayed additions of an element, at most

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
        self.everywhere = elements_of_whole(dataset) if on_ring else self.elements
        self.before = elements_before(dataset) if on_ring else 0
        check_sizes(self)
        self.initial = (self.start, self.check) if self.adaptive else (self.start,)
        self.phases = (self.trial, *self._attempts()) if self.adaptive else (self.passes,)
        self.reading_phases = tuple(Phase(name, "block", writes=False) for name in self.functions)
        self._choice = Choice(self.first_degree)  # by which the phase at hand goes, in the coordinator
        self._stage = 0  # of it, the next that ends
        self._losses: list[float] = []  # of groups, in a trial
        self._finite = True  # whether all variables are, after a pass

    # What a program of one's own says

    def shared_variables(self) -> dict[str, Shared]:
        """The shared variables by their names. They are 0 at first, unless `first_values` says otherwise.

        Default: the fields of the class that are not per row, nor for work.
        """
        specs = {name: field.spec(self.dataset, self) for name, field in self._fields("", "column").items()}
        return {name: Shared(spec.shape, str(spec.dtype)) for name, spec in specs.items()}

    def _fields(self, *kinds: str) -> dict[str, Field]:
        return {name: field for name, field in fields_of(type(self)).items() if field.per in kinds}

    def local_variables(self) -> dict[str, Local]:
        """The variables of the elements, 0 at first. Default: the fields of the class that are per row, or for work."""
        found = {}
        for name, field in self._fields("row", "work").items():
            shape = field.spec(self.dataset, self).shape[field.per == "row" :]
            found[name] = Local(shape or (1,), field.dtype, per="element" if field.per == "row" else "work")
        return found

    def constants(self) -> dict[str, Any]:
        """Numbers, and arrays that nobody changes, that `shared` has besides the variables. Default: the options that
        are numbers."""
        values = {name: getattr(self, name) for name in options_of(type(self))}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}

    def first_values(self) -> dict[str, Any]:
        """What shared variables are at first, if not 0. Default: the first values of the fields."""
        found = {name: np.zeros(declared.shape) for name, declared in self.declared.items()}
        for name, field in self._fields("", "column").items():
            field.fill(found[name], [self.seed, *name.encode()])
        return {name: values for name, values in found.items() if values.any()}

    def initialize(self, shared: Arrays) -> None:
        """`begin` sets the first values."""

    @staticmethod
    def process(element: Any, weight: Any, shared: Any, local: Any) -> None:
        """Process one element that counts for `weight` of them: change `shared` by its operators, and `local`.

        It is compiled by numba. Functions that it calls are compiled ones, too, and stand in the same file.
        """
        raise NotImplementedError

    # Arrays

    def _slot_bytes(self) -> int:
        return sum(spec.bytes for name, each in self.declared.items() for spec in slot_specs(name, each, 1).values())

    @cached_property
    def slots(self) -> int:
        """Workers of a batch."""
        return min(self.most // self.machines, max(2, _SLOTS_BYTES // self._slot_bytes()))

    @cached_property
    def shares(self) -> int:
        """Jobs of a combination."""
        return min(max(self._slot_bytes() // _SHARE_BYTES, 1), _MOST_SHARES)

    def local_specs(self) -> dict[str, ArraySpec]:
        """Of what is kept of elements and entries."""
        counts = {"element": self.elements, "entry": int(self.first_entries[-1])}
        kept = {name: local for name, local in self.locals.items() if local.per != "work"}
        specs = {f"local.{name}": local.spec(counts[local.per]) for name, local in kept.items()}
        if self.delays:
            specs["delayed.count"] = ArraySpec((self.elements,), "int64")
            specs["delayed.places"] = ArraySpec((self.elements, self.delays, 3), "int64")
            specs["delayed.deltas"] = ArraySpec((self.elements, self.delays), "float64")
        return specs

    def shared_arrays(self) -> dict[str, ArraySpec]:
        specs = {"choice": ArraySpec((len(Choice._fields),), "int64"), "times": ArraySpec((len(TIMES),), "float64")}
        for name, declared in self.declared.items():
            specs |= committed_specs(name, declared) | slot_specs(name, declared, self.slots)
        specs |= self.local_specs()
        if self.adaptive:
            specs |= {spare(name): specs[name] for name in (*self.committed, *self.restored)}
            specs["tried"] = ArraySpec((_GROUPS, 2), "float64")
            specs["tests"] = ArraySpec((2, _TESTS), "float64")  # losses, and elements, of the stage at hand
            specs["checked"] = ArraySpec((2, _TESTS), "float64")  # losses of the sample at first, and after the pass
        return specs

    @cached_property
    def committed(self) -> list[str]:
        """The arrays of the shared variables that a generation has."""
        return [name for each, declared in self.declared.items() for name in committed_specs(each, declared)]

    @cached_property
    def restored(self) -> list[str]:
        """The arrays of elements and entries that are restored after a trial, and where a pass is undone."""
        derived = {f"local.{name}" for name, local in self.locals.items() if local.derived}
        return [name for name in self.local_specs() if name not in derived]

    def primary_arrays(self) -> Sequence[str]:
        return ("choice", *(["tried", "checked"] if self.adaptive else []), *self.committed, *self.local_specs())

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """What elements have, round by round."""
        bounds = cut(0, self.elements, self.rounds)
        sizes = {"element": np.diff(bounds), "entry": np.diff([self.entry(element) for element in bounds])}
        per = {f"local.{name}": local.per for name, local in self.locals.items()}
        specs = self.local_specs()
        pieces = {name: sizes[per.get(name, "element")] * math.prod(spec.shape[1:]) for name, spec in specs.items()}
        return pieces | ({spare(name): pieces[name] for name in self.restored} if self.adaptive else {})

    def entry(self, element: int) -> int:
        """The number of the first entry of an element, among all."""
        if element == self.elements:
            return int(self.first_entries[-1])
        block = int(np.searchsorted(self.first_elements, element, side="right")) - 1
        offsets = self.dataset.block(block).offsets
        return int(self.first_entries[block] + offsets[element - self.first_elements[block]])

    def scratch_bytes(self) -> int:
        """Work arrays, and the words of two blocks of documents."""
        work = sum(local.spec(0).bytes for local in self.locals.values() if local.per == "work")
        return work + 12 * int(self.dataset.index.cells.sum(axis=1).max(initial=0))

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """What workers have, added up, goes round, and then what it comes to; after each round."""
        arrays = self.shared_arrays()
        gathered = (arrays[name].bytes for name in self._gathered_names())
        return 2 * self.rounds * sum(gathered)

    def _gathered_names(self) -> list[str]:
        return [f"{name}.{field}" for name in self.declared for field in (*Gathered._fields, "weighed")]

    # The engine's calls

    @cached_property
    def jobs(self) -> Any:
        """What does the jobs, with the compiled loops."""
        from ooc.stochastic.element_jobs import ElementJobs

        return ElementJobs(self)

    def warm_up(self) -> None:
        self.jobs.warm_up()

    def begin(self, phase: Phase, shared: Arrays) -> None:
        if phase is self.start:
            shared["choice"][:] = Choice(self.first_degree)
            for name, values in self.first_values().items():
                unpacked(self.declared[name].shape, shared[name])[...] = values
        if phase is self.phases[0]:
            shared["times"][:] = 0
            shared["choice"][-1] = TO_MAKE
        self._choice = Choice(*shared["choice"].tolist())
        self._stage, self._losses, self._finite = 0, [], True

    @lru_cache(maxsize=4)  # noqa: B019, a program lives as long as its process
    def rounds_of(self, phase: str, choice: Choice) -> list[list[Stage]]:
        """The stages of a phase, round by round."""
        if phase == self.check.name:
            return [[check_stage(self.elements, _TESTS)]]
        if phase == self.trial.name:
            among = self._groups(choice.degree), self.slots, self.shares, _TESTS, self.machines
            is_due = choice.passes >= choice.next_trial
            return trial_stages(self.elements, self.rounds, *among) if is_due else []
        rounds = pass_stages(self._runs(choice.degree), choice.degree, self.slots, self.shares)
        if not self.adaptive:
            return rounds
        if choice.status == MADE:
            return []
        first = [keep_stages(self.shares)]
        if choice.status == TO_UNDO:
            bounds = cut(0, self.elements, self.rounds) if self.restored else []
            first = undo_stages(bounds, _TESTS, self.shares)
        return [*first, *rounds, [check_stage(self.elements, _TESTS)]]

    def _attempts(self) -> Iterator[Phase]:
        """A pass by as many workers as there may be, and those that may have to follow, by fewer each time."""
        yield self.passes
        degree = self.most // self.machines
        while degree > 1:
            degree = fewer(degree, self.most // self.machines)
            yield self.passes

    def _runs(self, degree: int) -> list[list[int]]:
        """Where the runs of elements of the workers that are here begin and end, round by round.

        With one round, and shards that are runs of the whole, workers have the elements that they have on one machine.
        """
        here = degree // self.machines
        if self.rounds == 1 and self.before is not None:
            bounds = cut(0, self.everywhere, degree)[self.machine * here :][: here + 1]
            return [[bound - self.before for bound in bounds]]
        return [cut(first, last, here) for first, last in pairwise(cut(0, self.elements, self.rounds))]

    def _groups(self, degree: int) -> list[int]:
        """Workers of each group of a trial, as many at each machine."""
        return [self.machines * size for size in group_sizes(degree // self.machines, self.most // self.machines)]

    def stages_of(self, phase: str, choice: Choice) -> list[Stage]:
        """The stages of a phase."""
        return [stage for stages in self.rounds_of(phase, choice) for stage in stages]

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if not phase.staged:
            return [range(0 if phase is self.start else parts)]
        return [range(len(stage)) for stage in self.stages_of(phase.name, self._choice)]

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        rounds = self.rounds_of(phase.name, self._choice) if phase.staged else []
        return stage + 1 in np.cumsum([len(stages) for stages in rounds])

    def partial_sums(self, phase: Phase, unit: int, stage: int, shared: Arrays) -> Sequence[np.ndarray]:
        first = self.stages_of(phase.name, self._choice)[stage][0]
        if isinstance(first, HeldOut):
            return [shared["tests"]]
        if isinstance(first, Gather) and first.ends:
            return [shared[name] for name in self._gathered_names()]
        return []

    def update(self, job: Job) -> Any:
        return self.jobs.do(job)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if not phase.staged:
            return {}
        stages = self.stages_of(phase.name, self._choice)
        first = stages[self._stage][0]
        self._stage += 1
        seconds = [done.seconds for done in answers]
        self._finite = self._finite and all(done.finite for done in answers)
        if isinstance(first, Process):
            shared["times"][:2] += np.mean(seconds), np.max(seconds) - np.mean(seconds)
        elif isinstance(first, HeldOut):
            self._losses.append(total(shared["tests"][0]) / shared["tests"][1].sum())
        else:
            shared["times"][2] += max(seconds)
        if isinstance(first, Combine) and phase is self.passes:
            for name in (name for name, declared in self.declared.items() if declared.averaged):
                shared[f"{name}.weights"] += shared[f"{name}.weighed"]
        if self._stage == len(stages):
            self._ended(phase, shared)
        return {}

    def _ended(self, phase: Phase, shared: Arrays) -> None:
        """All stages of a phase are done."""
        choice = self._choice
        if phase is self.check:
            shared["checked"][:] = shared["tests"][0]
        elif phase is self.trial:
            groups = self._groups(choice.degree)
            shared["tried"][:] = 0
            shared["tried"][: len(groups)] = np.column_stack((groups, self._losses))
            shared["choice"][:] = choose(choice, groups, self._losses)
        elif self.may_undo(choice.degree) and (not self._finite or is_worse(*shared["checked"], *shared["tests"])):
            degree = fewer(choice.degree // self.machines, self.most // self.machines) * self.machines
            shared["choice"][:] = undone(choice, degree)
        else:
            shared["choice"][:] = choice._replace(passes=choice.passes + 1, status=MADE)
            if self.adaptive:
                shared["checked"][1] = shared["tests"][0]

    def may_undo(self, degree: int) -> bool:
        """Whether a pass of so many workers is undone if it makes the loss worse: not if there cannot be fewer."""
        return self.adaptive and degree > self.machines

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        told: dict[str, float] = {}
        if self.adaptive:
            told = {f"held_out_loss_of_{int(degree)}": loss for degree, loss in shared["tried"].tolist() if degree}
            told["undone_passes"] = Choice(*shared["choice"].tolist()).undone
        times = dict(zip(TIMES, shared["times"].tolist(), strict=True))
        means = {name: total / self.everywhere for name, total in sums.items()}
        return {**means, "parallelism": int(shared["choice"][0]), **told, **times}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        if "loss" not in self.functions:
            return {}
        return {"objective": total(map(total, self.values("loss", sweep)))}

    def values(self, name: str, sweep: Sweep) -> Iterator[np.ndarray]:
        """What a function, `loss` or one of `maps`, gives for all elements, part by part: float64."""
        return sweep(self.reading_phases[self.functions.index(name)])

    def variables(self, shared: Arrays) -> dict[str, np.ndarray]:
        """The shared variables in their own shapes, and the mean over all iterates of those that have one."""
        found = {name: unpacked(declared.shape, shared[name]) for name, declared in self.declared.items()}
        for name, declared in self.declared.items():
            if declared.averaged:
                mean = shared[f"{name}.mean"] / max(float(shared[f"{name}.weights"][0]), np.finfo(float).tiny)
                found[f"{name}_mean"] = unpacked(declared.shape, mean)
        return found

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        write_npz(directory / "variables.npz", self.variables(shared))
