"""Stages of the phases of a stochastic program: passes, trials of degrees of parallelism, and loss checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ooc.program import Phase
from ooc.stochastic.parallelism_degree import MADE, TO_UNDO, ParallelismChoice, group_sizes, next_smaller_degree
from ooc.stochastic.pass_tasks import Stage, check_stage, cut, keep_stages, pass_stages, trial_stages, undo_stages

if TYPE_CHECKING:
    from ooc.stochastic.program import StochasticProgram

TESTS = 16  # number of jobs that compute the loss of a sample of elements


class PhaseStages:
    """Computes the stages of the phases of one program."""

    def __init__(self, program: StochasticProgram) -> None:
        self._program = program

    @lru_cache(maxsize=4)  # noqa: B019, a program lives as long as its process
    def rounds(self, phase: str, choice: ParallelismChoice) -> list[list[Stage]]:
        """Return the stages of each round of a phase."""
        program = self._program
        if phase == program.check.name:
            return [[check_stage(program.elements, TESTS)]]
        if phase == program.trial.name:
            among = self.groups(choice.degree), program.slots, program.shares, TESTS, program.machines
            is_due = choice.passes >= choice.next_trial
            return trial_stages(program.elements, program.rounds, *among) if is_due else []
        rounds = pass_stages(self._ranges(choice.degree), choice.degree, program.slots, program.shares)
        if not program.adaptive:
            return rounds
        if choice.status == MADE:
            return []
        first = [keep_stages(program.shares)]
        if choice.status == TO_UNDO:
            bounds = cut(0, program.elements, program.rounds) if program.restored else []
            first = undo_stages(bounds, TESTS, program.shares)
        return [*first, *rounds, [check_stage(program.elements, TESTS)]]

    def of(self, phase: str, choice: ParallelismChoice) -> list[Stage]:
        """Return the stages of a phase."""
        return [stage for stages in self.rounds(phase, choice) for stage in stages]

    def attempts(self) -> Iterator[Phase]:
        """Yield the attempts at a pass: first with the current degree, then with fewer and fewer workers."""
        program = self._program
        yield program.passes
        degree = program.most // program.machines
        while degree > 1:
            degree = next_smaller_degree(degree, program.most // program.machines)
            yield program.passes

    def groups(self, degree: int) -> list[int]:
        """Return the number of workers in each group of a trial; each machine has the same number."""
        machines, most = self._program.machines, self._program.most
        return [machines * size for size in group_sizes(degree // machines, most // machines)]

    def _ranges(self, degree: int) -> list[list[int]]:
        """Return the bounds of the elements of this machine's workers in each round. With one round, and shards that
        are contiguous ranges of the whole dataset, workers get the same elements as on one machine.
        """
        program = self._program
        here = degree // program.machines
        if program.rounds == 1 and program.before is not None:
            bounds = cut(0, program.everywhere, degree)[program.machine * here :][: here + 1]
            return [[bound - program.before for bound in bounds]]
        return [cut(first, last, here) for first, last in pairwise(cut(0, program.elements, program.rounds))]
