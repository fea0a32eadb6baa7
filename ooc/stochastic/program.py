"""Stochastic algorithms that are written for one thread, and run by many workers (Zhang and Jordan, Splash, 2015).

A program gives `process(element, weight, shared, local)`. Of m workers each processes a share of the elements, each of
these m times as heavy, beginning with what the shared variables were; what all have come to is combined by equation 9
(see `ooc.stochastic.variables`), at the end of each round. m is a property of the run: processes take workers as they
are free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.npz import write_npz
from ooc import user_functions
from ooc.program import Arrays, Job, Phase, StaticProgram, Sweep
from ooc.shared import ArraySpec
from ooc.stochastic.degrees import Choice, choose, group_sizes
from ooc.stochastic.elements import KINDS, bounds_of, entry_bounds
from ooc.stochastic.tasks import Combine, Process, Stage, pass_stages, tested, trial_stages
from ooc.stochastic.variable_arrays import Shared, check_variable, committed_specs, slot_specs
from ooc.stochastic.variables import WEIGHTS, unpacked

AUTO = "auto"
STRATEGIES = ("reweight", "average", "accumulate")
MOST_PARALLELISM = 16  # that is tried, if nothing else is said
_SLOTS_BYTES = 1 << 28  # of the workers of a batch, about
_SHARE_BYTES, _MOST_SHARES = 1 << 20, 16  # of the variables, that one job combines
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
    up."""

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
    ) -> None:
        super().__init__(dataset)
        self.seed, self.rounds, self.strategy = seed, sync_per_pass, strategy
        self.adaptive = parallelism == AUTO
        self.first_degree = 1 if self.adaptive else int(parallelism)
        self.most = most_parallelism if self.adaptive else self.first_degree
        self.functions = [*(["loss"] if hasattr(self, "loss") else []), *self.maps]
        self.declared, self.locals = self.shared_variables(), self.local_variables()
        self._check()
        self.first_elements, self.first_entries = bounds_of(dataset), entry_bounds(dataset)
        self.elements = int(self.first_elements[-1])
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
        if self.rounds * self.most > self.elements:
            raise RequestError(
                f"{self.most} workers and {self.rounds} synchronisations a pass are too many for {self.elements} "
                f"{self.dataset.counted}",
                "Give a smaller --parallelism.",
            )

    # Arrays

    def _slot_bytes(self) -> int:
        return sum(spec.bytes for name, each in self.declared.items() for spec in slot_specs(name, each, 1).values())

    @cached_property
    def slots(self) -> int:
        """Workers of a batch."""
        return min(self.most, max(2, _SLOTS_BYTES // self._slot_bytes()))

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

    # The engine's calls

    @cached_property
    def jobs(self) -> Any:
        """What does the jobs, with the compiled loops."""
        from ooc.stochastic.element_jobs import ElementJobs

        return ElementJobs(self)

    def kernels(self) -> str:
        return self.jobs.name

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
            return pass_stages(self.elements, self.rounds, choice.degree, self.slots, self.shares)
        if choice.passes < choice.next_trial:
            return []
        groups = group_sizes(choice.degree, self.most)
        return [trial_stages(self.elements // self.rounds, groups, self.slots, self.shares, _TESTS)]

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
        elif isinstance(first, Combine):
            shared["times"][2] += max(answers)
            self._combined(phase, first, shared)
        else:
            self._losses.append(math.fsum(answers) / tested(self.elements // self.rounds))
        if self._stage == len(stages):
            self._ended(phase, shared)
        return {}

    def _combined(self, phase: Phase, done: Combine, shared: Arrays) -> None:
        """Some workers were combined, of all variables: the sums of weights of their iterates."""
        for name, declared in self.declared.items():
            if declared.averaged and phase is self.passes:
                shared[f"{name}.weights"] += shared[f"{name}.states"][: done.workers, WEIGHTS].sum()

    def _ended(self, phase: Phase, shared: Arrays) -> None:
        """All stages of a phase are done."""
        if phase is self.passes:
            shared["choice"][:] = self._choice._replace(passes=self._choice.passes + 1)
            return
        groups = group_sizes(self._choice.degree, self.most)
        shared["tried"][:] = 0
        shared["tried"][: len(groups)] = np.column_stack((groups, self._losses))
        shared["choice"][:] = choose(self._choice, groups, self._losses)

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        tried = shared["tried"].tolist() if self.adaptive else []
        told = {f"held_out_loss_of_{int(degree)}": loss for degree, loss in tried if degree}
        times = dict(zip(TIMES, shared["times"].tolist(), strict=True))
        means = {name: total / self.elements for name, total in sums.items()}
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
