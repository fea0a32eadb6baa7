"""Order of the steps of each worker of the dynamic engine: overlapping rounds of schedule, update, aggregate, apply.

Parameters are distributed to S schedulers, and each scheduler schedules every S-th round. A scheduler chooses a round's
parameters given the state of its own parameters after its previous round, and given the parameters that incomplete
rounds update. The round is computed from the state as of `depth` rounds before. At any time, `depth` rounds are
incomplete; they belong to different schedulers, so no parameter is in two of them.

The parameters of a round are sorted by priority and split into waves. With a depth above 1, each wave also sees the
changes that earlier waves made in the oldest incomplete round, so changes with a higher priority are seen sooner
(STRADS, 3.4).

Each worker updates and applies on its own rows, so it only waits for sums and changes. Schedulers, which also
aggregate, are distributed to the workers. The order depends only on the round numbers, so every update sees the same
state, whatever the number and speed of workers. After the last round, all rounds are complete.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

import numpy as np

SCHEDULE, UPDATE, AGGREGATE, APPLY = range(4)


class WorkerStep(NamedTuple):
    """One step of a worker.

    what: kind of the step. SCHEDULE chooses the parameters of a round. UPDATE computes sums over this worker's rows for
        the parameters of a wave. AGGREGATE adds up the sums of all workers, and changes the parameters. APPLY applies
        these changes to this worker's rows.
    """

    what: int
    round: int
    wave: int = 0


class RoundPipeline(NamedTuple):
    """Overlap of rounds.

    depth: number of rounds that are incomplete at a time, at least 1.
    schedulers: number of schedulers, at least `depth`.
    waves: number of waves in a round.
    """

    depth: int
    schedulers: int
    waves: int

    @property
    def slots(self) -> int:
        """Return the number of consecutive rounds whose arrays may be in use at the same time.

        The worker that schedules a round has aggregated the scheduler's previous round. At that time, all workers had
        updated the previous round, and before that had applied the round `depth` rounds earlier.
        """
        return self.schedulers + self.depth

    def in_the_making(self, number: int, first: int) -> range:
        """Return the rounds that are incomplete when round `number` is computed.

        first: the first round of the run.
        """
        return range(max(number - self.depth + 1, first), number)

    def steps(self, first: int, last: int, schedulers: Collection[int]) -> np.ndarray:
        """Return, in order, the steps of a worker with the given schedulers for rounds `first` to `last` (exclusive).

        The result is int64 (k, 3), with the fields of a `WorkerStep` in each row.
        """
        turn = first % self.schedulers
        steps = _steps(self, turn, turn + last - first, frozenset(schedulers))
        return steps + np.array((0, first - turn, 0))

    def _computed_steps(self, first: int, last: int, schedulers: Collection[int]) -> np.ndarray:
        before = [WorkerStep(SCHEDULE, number) for number in range(first, min(first + self.schedulers, last))]
        newest = np.arange(first, last + self.depth - 1)
        steps = np.array(self._step_pattern()) + newest[:, None, None] * [0, 1, 0]
        what, number = steps[..., 0], steps[..., 1]
        due = np.where(what == UPDATE, newest[:, None] < last, newest[:, None] - self.depth + 1 >= first)
        steps = np.concatenate((np.array(before, np.int64).reshape(-1, 3), steps[due & (number < last)]))
        is_own = np.zeros(self.schedulers, bool)
        is_own[list(schedulers)] = True
        return steps[is_own[steps[:, 1] % self.schedulers] | (steps[:, 0] == UPDATE) | (steps[:, 0] == APPLY)]

    def _step_pattern(self) -> list[WorkerStep]:
        """Return all steps while one round is the newest, with round numbers relative to it."""
        oldest, found = 1 - self.depth, []
        for waves in [range(self.waves)] if self.depth == 1 else [range(wave, wave + 1) for wave in range(self.waves)]:
            found += [WorkerStep(UPDATE, 0, wave) for wave in waves]
            found += [WorkerStep(AGGREGATE, oldest, wave) for wave in waves]
            if self.waves - 1 in waves:
                found.append(
                    WorkerStep(SCHEDULE, oldest + self.schedulers)
                )  # before apply: other workers may wait for it
            found += [WorkerStep(APPLY, oldest, wave) for wave in waves]
        return found


@lru_cache(maxsize=4)  # the steps of all passes of a run are equal, except for the numbers of their rounds
def _steps(pipeline: RoundPipeline, first: int, last: int, schedulers: Collection[int]) -> np.ndarray:
    return pipeline._computed_steps(first, last, schedulers)
