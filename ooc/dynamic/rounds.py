"""Order of the steps of each worker of the dynamic engine: overlapping rounds of schedule, update, aggregate, apply.

Parameters are dealt to S schedulers, and each scheduler has every S-th round. A scheduler chooses a round's parameters
from the state of its own parameters after its previous round, and from the parameters that the incomplete rounds
update. The round is computed from the state as of `depth` rounds before: meanwhile `depth` rounds of different
schedulers are incomplete, so that no parameter is in two of them.

The parameters of a round are sorted by priority and split into waves. With a depth above 1, each wave also sees the
changes that earlier waves made in the oldest incomplete round: the higher its priority, the sooner a change is seen
(STRADS, 3.4).

Each worker updates and applies on its own rows, so that it waits only for sums and changes. Schedulers, which also
aggregate, are dealt to the workers. The order follows from the round numbers alone: every update sees the same state
for any number of workers and any speed. After the last round, no round is incomplete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple


class Step(NamedTuple):
    """A step of a worker.

    schedule: choose the parameters of a round. update: sum over own rows for the parameters of a wave. aggregate: add
    up the sums of all workers, and change the parameters. apply: update own rows by these changes.
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

        The worker that schedules a round has aggregated the previous round of this scheduler. All workers had updated
        that round, and before it they had applied the round that is `depth` earlier.
        """
        return self.schedulers + self.depth

    def in_the_making(self, number: int, first: int) -> range:
        """Return the rounds that are incomplete when round `number` is computed. first: the first round of the run."""
        return range(max(number - self.depth + 1, first), number)

    def steps(self, first: int, last: int, schedulers: Collection[int]) -> Iterator[Step]:
        """Yield the steps of a worker with these schedulers, in order, for rounds `first` to `last` (exclusive)."""
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
        """Yield the steps for waves of a round that all workers have updated. mine: whether its scheduler is here."""
        if mine:
            yield from (Step("aggregate", number, wave) for wave in waves)
            if self.waves - 1 in waves and number + self.schedulers < last:
                yield Step("schedule", number + self.schedulers)  # before apply, as other workers may wait for it
        yield from (Step("apply", number, wave) for wave in waves)
