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

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple


class Step(NamedTuple):
    """One step of a worker. schedule: choose the parameters of a round. update: compute sums over this worker's rows
    for the parameters of a wave. aggregate: add up the sums of all workers, and change the parameters. apply: apply
    these changes to this worker's rows.
    """

    what: Literal["schedule", "update", "aggregate", "apply"]
    round: int
    wave: int = 0


class Pipeline(NamedTuple):
    """Overlap of rounds.

    depth: number of rounds that are incomplete at a time, at least 1. schedulers: number of schedulers, at least
    `depth`. waves: number of waves in a round.
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
        """Return the rounds that are incomplete when round `number` is computed. first: the first round of the run."""
        return range(max(number - self.depth + 1, first), number)

    def steps(self, first: int, last: int, schedulers: Collection[int]) -> Iterator[Step]:
        """Yield, in order, the steps of a worker with the given schedulers for rounds `first` to `last` (exclusive)."""
        for number in range(first, min(first + self.schedulers, last)):
            if number % self.schedulers in schedulers:
                yield Step("schedule", number)
        groups = [range(self.waves)] if self.depth == 1 else [range(wave, wave + 1) for wave in range(self.waves)]
        for newest in range(first, last + self.depth - 1):
            oldest = newest - self.depth + 1
            for waves in groups:
                if newest < last:
                    yield from (Step("update", newest, wave) for wave in waves)
                if oldest >= first:
                    yield from self._finish(oldest, waves, last, oldest % self.schedulers in schedulers)

    def _finish(self, number: int, waves: range, last: int, mine: bool) -> Iterator[Step]:
        """Yield the steps for waves of a round that all workers have updated. mine: whether this worker runs the
        round's scheduler."""
        if mine:
            yield from (Step("aggregate", number, wave) for wave in waves)
            if self.waves - 1 in waves and number + self.schedulers < last:
                yield Step("schedule", number + self.schedulers)  # before apply, as other workers may wait for it
        yield from (Step("apply", number, wave) for wave in waves)
