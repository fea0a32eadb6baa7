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
from ooc import user_functions
from ooc.program import Arrays, Job, Phase, StaticProgram, Sweep
from ooc.stochastic.degrees import Choice, choose, group_sizes
from ooc.stochastic.elements import KINDS, elements_before, elements_of_whole, entry_bounds
from ooc.stochastic.tasks import Combine, Gather, HeldOut, Process, Stage, cut, pass_stages, trial_stages
from ooc.stochastic.variable_arrays import Shared, check_variable, committed_specs, slot_specs
from ooc.stochastic.variables import Gathered, unpacked
from ooc.workers.shared_arrays import ArraySpec

AUTO = "auto"
STRATEGIES = ("reweight", "average", "accumulate")
MOST_PARALLELISM = 16  # that is tried, if nothing else is said
_SLOTS_BYTES = 1 << 28  # of the workers of a batch, about
_SHARE_BYTES, _MOST_SHARES = 1 << 23, 16  # of the variables, that one job combines
_TESTS = 16  # jobs that test a group
_GROUPS = 8  # of a trial, at most
TIMES = ("computing_s", "waiting_s", "communicating_s")


class Local(NamedTuple):
    """A variable of each element: an array, of one number if nothing is said of its shape.

    per: "element"; "entry" for such an array, or number, of each entry of the element, or token, the first dimension;
    or "work", an array that is there for use within `process` and is not kept.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    per: Literal["element", "entry", "work"] = "element"

    def spec(self, count: int) -> ArraySpec:
        """Of so many elements, or entries; of a work array the first dimension is left out."""
        shape = self.shape or (() if self.per == "entry" else (1,))
        return ArraySpec(shape if self.per == "work" else (count, *shape), self.dtype)


class StochasticProgram(StaticProgram):
    """A program but for what is its own: `shared_variables`, `process`, and whatever else it needs.

    parallelism: workers, or "auto" for as many as a trial of up to `most_parallelism` chooses, see
    `ooc.stochastic.degrees`; that takes `loss`. sync_per_pass: rounds of a pass. strategy: "reweight"; or, to compare
    with, "average" and "accumulate": elements have weight 1 then, and what workers have changed is averaged, or added
    up. on_ring: the dataset is a shard, and all shards are trained on together."""

    start = Phase("start", "grid", writes=False)
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
    ) -> None:
        super().__init__(dataset)
        if on_ring and "shard" not in dataset.manifest:
            raise RequestError(f"{dataset.path} is no shard, but a dataset of its own", "Split it with `ooc shard`.")
        self.seed, self.rounds, self.strategy = seed, sync_per_pass, strategy
        self.trains_on_shards = on_ring
        self.machine: int = dataset.shard if on_ring else 0
        self.machines: int = dataset.shards if on_ring else 1
        self.adaptive = parallelism == AUTO
        self.first_degree = self.machines if self.adaptive else int(parallelism)
        self.most = max(most_parallelism, self.machines) if self.adaptive else self.first_degree
        self.functions = [*(["loss"] if hasattr(self, "loss") else []), *self.maps]
        self.declared, self.locals = self.shared_variables(), self.local_variables()
        self._check()
        self.first_elements, self.first_entries = dataset.block_bounds, entry_bounds(dataset)
        self.elements = int(self.first_elements[-1])
        self.everywhere = elements_of_whole(dataset) if on_ring else self.elements
        self.before = elements_before(dataset) if on_ring else 0
        self._check_sizes()
        self.initial = (self.start,)
        self.phases = (self.trial, self.passes) if self.adaptive else (self.passes,)
        self.reading_phases = tuple(Phase(name, "block", writes=False) for name in self.functions)
        self._choice = Choice(self.first_degree)  # by which the phase at hand goes, in the coordinator
        self._stage = 0  # of it, the next that ends
        self._losses: list[float] = []  # of groups, in a trial

    # What a program of one's own says

    def shared_variables(self) -> dict[str, Shared]:
        """The shared variables by their names. They are 0 at first, unless `first_values` says otherwise."""
        raise NotImplementedError

    def local_variables(self) -> dict[str, Local]:
        """The variables of the elements, 0 at first."""
        return {}

    def constants(self) -> dict[str, Any]:
        """Numbers, and arrays that nobody changes, that `shared` has besides the variables."""
        return {}

    def first_values(self) -> dict[str, Any]:
        """What shared variables are at first, if not 0."""
        return {}

    @staticmethod
    def process(element: Any, weight: Any, shared: Any, local: Any) -> None:
        """Process one element that counts for `weight` of them: change `shared` by its operators, and `local`.

        It is compiled by numba. Functions that it calls are compiled ones, too, and stand in the same file.
        """
        raise NotImplementedError

    # Checks

    def _check(self) -> None:
        if self.first_degree < 1 or self.most < 1:
            raise RequestError("--parallelism: at least 1 is needed")
        if self.rounds < 1:
            raise RequestError(f"--sync-per-pass {self.rounds}: at least 1 is needed")
        if self.strategy not in STRATEGIES:
            raise RequestError(f"--strategy {self.strategy!r} is not known", f"Choose one of: {', '.join(STRATEGIES)}.")
        if type(self.dataset) not in KINDS:
            raise RequestError(f"{self.dataset.path} holds a {self.dataset.kind}, which has no elements to process")
        for name, declared in self.declared.items():
            check_variable(name, declared)
        user_functions.check(self)

    def _check_sizes(self) -> None:
        if self.adaptive and "loss" not in self.functions:
            raise RequestError("--parallelism auto is for programs that have a loss", "Say how many workers there are.")
        if self.first_degree % self.machines:
            raise RequestError(
                f"--parallelism {self.first_degree}: {self.machines} machines cannot have as many workers each",
                f"Give a multiple of {self.machines}.",
            )
        if self.rounds * (self.most // self.machines) > self.elements:
            raise RequestError(
                f"{self.most // self.machines} workers and {self.rounds} synchronisations a pass are too many for "
                f"{self.elements} {self.dataset.counted}",
                "Give a smaller --parallelism.",
            )

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
            if self.adaptive:
                specs[f"{name}.candidate"] = specs[name]
        if self.adaptive:
            specs["tried"] = ArraySpec((_GROUPS, 2), "float64")
            specs["tests"] = ArraySpec((2, _TESTS), "float64")  # losses, and elements, of the group at hand
        return specs | self.local_specs()

    def primary_arrays(self) -> Sequence[str]:
        names = [name for each, declared in self.declared.items() for name in committed_specs(each, declared)]
        return ("choice", *(["tried"] if self.adaptive else []), *names, *self.local_specs())

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """What elements have, round by round."""
        bounds = [self.elements * number // self.rounds for number in range(self.rounds + 1)]
        sizes = {"element": np.diff(bounds), "entry": np.diff([self.entry(element) for element in bounds])}
        per = {f"local.{name}": local.per for name, local in self.locals.items()}
        specs = self.local_specs()
        return {name: sizes[per.get(name, "element")] * math.prod(spec.shape[1:]) for name, spec in specs.items()}

    def entry(self, element: int) -> int:
        """The number of the first entry of an element, among all."""
        if element == self.elements:
            return int(self.first_entries[-1])
        block = int(np.searchsorted(self.first_elements, element, side="right")) - 1
        offsets = self.dataset.block(block).offsets
        return int(self.first_entries[block] + offsets[element - self.first_elements[block]])

    def scratch_bytes(self) -> int:
        """Work arrays, what is put back after a trial, and the words of two blocks of documents."""
        work = sum(local.spec(0).bytes for local in self.locals.values() if local.per == "work")
        kept = sum(spec.bytes for spec in self.local_specs().values()) if self.adaptive else 0
        return work + kept // 2 + 12 * int(self.dataset.index.cells.sum(axis=1).max(initial=0))

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
        if phase in self.phases:
            self._choice = Choice(*shared["choice"].tolist())
            self._stage, self._losses = 0, []

    @lru_cache(maxsize=4)  # noqa: B019, a program lives as long as its process
    def rounds_of(self, phase: str, choice: Choice) -> list[list[Stage]]:
        """The stages of a phase, round by round."""
        if phase == self.passes.name:
            return pass_stages(self._runs(choice.degree), choice.degree, self.slots, self.shares)
        if choice.passes < choice.next_trial:
            return []
        among = self._groups(choice.degree), self.slots, self.shares, _TESTS, self.machines
        return [trial_stages(self.elements // self.rounds, *among)]

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
        if phase not in self.phases:
            return [range(0 if phase is self.start else parts)]
        return [range(len(stage)) for stage in self.stages_of(phase.name, self._choice)]

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        rounds = self.rounds_of(phase.name, self._choice) if phase in self.phases else []
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
        if phase not in self.phases:
            return {}
        stages = self.stages_of(phase.name, self._choice)
        first = stages[self._stage][0]
        self._stage += 1
        if isinstance(first, Process):
            shared["times"][:2] += np.mean(answers), np.max(answers) - np.mean(answers)
        elif isinstance(first, HeldOut):
            losses, elements = shared["tests"]
            self._losses.append(math.fsum(losses) / elements.sum())
        else:
            shared["times"][2] += max(answers)
        if isinstance(first, Combine) and phase is self.passes:
            for name in (name for name, declared in self.declared.items() if declared.averaged):
                shared[f"{name}.weights"] += shared[f"{name}.weighed"]
        if self._stage == len(stages):
            self._ended(phase, shared)
        return {}

    def _ended(self, phase: Phase, shared: Arrays) -> None:
        """All stages of a phase are done."""
        if phase is self.passes:
            shared["choice"][:] = self._choice._replace(passes=self._choice.passes + 1)
            return
        groups = self._groups(self._choice.degree)
        shared["tried"][:] = 0
        shared["tried"][: len(groups)] = np.column_stack((groups, self._losses))
        shared["choice"][:] = choose(self._choice, groups, self._losses)

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        tried = shared["tried"].tolist() if self.adaptive else []
        told = {f"held_out_loss_of_{int(degree)}": loss for degree, loss in tried if degree}
        times = dict(zip(TIMES, shared["times"].tolist(), strict=True))
        means = {name: total / self.everywhere for name, total in sums.items()}
        return {**means, "parallelism": int(shared["choice"][0]), **told, **times}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        if "loss" not in self.functions:
            return {}
        return {"objective": math.fsum(math.fsum(losses) for losses in self.values("loss", sweep))}

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
