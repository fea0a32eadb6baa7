"""The steps of the dynamic engine: whatever order processes come to them in, what a step sees is the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ooc.dynamic.round_schedule import AGGREGATE, APPLY, SCHEDULE, UPDATE, RoundPipeline, WorkerStep


def steps_of(pipeline: RoundPipeline, first: int, last: int, schedulers: set[int]) -> list[WorkerStep]:
    return [WorkerStep(*step) for step in pipeline.steps(first, last, schedulers).tolist()]


class StepMachine:
    """Workers that do their steps in any order that the counters allow, and what each step has seen."""

    def __init__(self, pipeline: RoundPipeline, workers: int, first: int, last: int) -> None:
        self.pipeline, self.workers, self.first = pipeline, workers, first
        mine = [{s for s in range(pipeline.schedulers) if s % workers == worker} for worker in range(workers)]
        self.left = [steps_of(pipeline, first, last, mine[worker]) for worker in range(workers)]
        self.done: list[set[WorkerStep]] = [set() for _ in range(workers)]
        self.slots: dict[int, int] = {}
        self.seen: dict[tuple[int, WorkerStep], frozenset[WorkerStep]] = {}

    def everywhere(self) -> set[WorkerStep]:
        return set.union(*self.done)

    def may_do(self, step: WorkerStep) -> bool:
        what, number, wave = step
        if what == UPDATE:
            return WorkerStep(SCHEDULE, number) in self.everywhere()
        if what == AGGREGATE:
            return all(WorkerStep(UPDATE, number, wave) in done for done in self.done)
        if what == SCHEDULE:
            before = self.pipeline.in_the_making(number, self.first)
            return all(WorkerStep(SCHEDULE, other) in self.everywhere() for other in before)
        return WorkerStep(AGGREGATE, number, wave) in self.everywhere()

    def ready(self) -> list[int]:
        return [worker for worker in range(self.workers) if self.left[worker] and self.may_do(self.left[worker][0])]

    def advance(self, worker: int) -> None:
        step = self.left[worker].pop(0)
        slot = step.round % self.pipeline.slots
        if step.what == SCHEDULE:
            for other in self.pipeline.in_the_making(step.round, self.first):
                assert self.slots[other % self.pipeline.slots] == other
            self.free(slot)
            self.slots[slot] = step.round
            same = {s for s in self.everywhere() if s.round % self.pipeline.schedulers == self.scheduler(step)}
            self.seen[0, step] = frozenset(s for s in same if s.what == AGGREGATE)
        assert self.slots[slot] == step.round
        if step.what == UPDATE:
            self.seen[worker, step] = frozenset(s for s in self.done[worker] if s.what == APPLY)
        self.done[worker].add(step)

    def scheduler(self, step: WorkerStep) -> int:
        return step.round % self.pipeline.schedulers

    def free(self, slot: int) -> None:
        """Nobody needs any more what is in a slot."""
        assert not any(step.round == self.slots.get(slot) for steps in self.left for step in steps)


@st.composite
def pipelines(draw) -> RoundPipeline:
    depth = draw(st.integers(1, 4))
    return RoundPipeline(depth, draw(st.integers(depth, depth + 3)), draw(st.integers(1, 3)))


@settings(deadline=None)
@given(pipelines(), st.integers(1, 4), st.integers(0, 5), st.integers(0, 12), st.data())
def test_every_interleaving_ends_and_sees_the_same(pipeline, workers, first, rounds, data):
    last = first + rounds
    machine = StepMachine(pipeline, workers, first, last)
    while ready := machine.ready():
        machine.advance(data.draw(st.sampled_from(ready)))
    assert not any(machine.left)
    for worker in range(workers):
        for number in range(first, last):
            for wave in range(pipeline.waves):
                seen = machine.seen[worker, WorkerStep(UPDATE, number, wave)]
                assert seen == frozenset(expected(pipeline, first, number, wave))
                assert WorkerStep(APPLY, number, wave) in machine.done[worker]
    for number in range(first, last):
        before = range(number - pipeline.schedulers, first - 1, -pipeline.schedulers)
        aggregated = {WorkerStep(AGGREGATE, other, wave) for other in before for wave in range(pipeline.waves)}
        assert machine.seen[0, WorkerStep(SCHEDULE, number)] == frozenset(aggregated)


def expected(pipeline: RoundPipeline, first: int, number: int, wave: int) -> set[WorkerStep]:
    """What an update sees: rounds at least `depth` before, and waves of the one that follows these if it is another."""
    oldest = number - pipeline.depth + 1
    whole = {WorkerStep(APPLY, r, w) for r in range(first, min(oldest, number)) for w in range(pipeline.waves)}
    some = oldest if pipeline.depth > 1 and oldest >= first else None
    return whole | ({WorkerStep(APPLY, some, w) for w in range(wave)} if some is not None else set())


def test_rounds_in_the_making_are_of_different_schedulers():
    steps = steps_of(RoundPipeline(3, 3, 1), 0, 5, {0, 1, 2})
    assert [("suaa"[s.what], s.round) for s in steps] == [
        ("s", 0), ("s", 1), ("s", 2), ("u", 0), ("u", 1), ("u", 2),
        ("a", 0), ("s", 3), ("a", 0), ("u", 3), ("a", 1), ("s", 4), ("a", 1), ("u", 4),
        ("a", 2), ("a", 2), ("a", 3), ("a", 3), ("a", 4), ("a", 4),
    ]  # fmt: skip
