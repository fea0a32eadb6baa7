"""What the workers of the dynamic engine do, step by step: rounds of schedule, update, aggregate, apply, overlapping.

The parameters are dealt to some schedulers, each of whom has every so many rounds. A round is scheduled by what its
scheduler's parameters were like after the scheduler's last round, and by what the rounds in the making update, and
computed from the state as it was `depth` rounds before: meanwhile so many rounds are in the making, of different
schedulers, so that no parameter is in two of them.

The parameters of a round are in order of priority and go in waves. With a depth above 1 each wave sees what the waves
before it have changed in the oldest round in the making, too: the sooner, the higher their priority (STRADS, 3.4).

Each worker updates and applies on rows of its own, so that it needs to wait for sums and changes only; schedulers, who
aggregate as well, are dealt among the workers. All that follows from the numbers of rounds: whatever the workers and
their speed, every update sees the same. In the end nothing is in the making.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple


class Step(NamedTuple):
    """schedule: choose the parameters of a round. update: sum up over own rows what the parameters of a wave need.
    aggregate: add up the sums of all workers, and change the parameters. apply: what follows from that for own rows.
    """

    what: Literal["schedule", "update", "aggregate", "apply"]
    round: int
    wave: int = 0


class Pipeline(NamedTuple):
    """depth: rounds in the making at a time, at least 1. schedulers: at least as many. waves: of a round."""

    depth: int
    schedulers: int
    waves: int

    @property
    def slots(self) -> int:
        """Rounds, one after the other, of which something may be in use at a time.

        Who schedules a round has aggregated the one before it of the same scheduler; for that one all workers have
        summed up, and before they did, they had applied what lies `depth` rounds further back.
        """
        return self.schedulers + self.depth

    def in_the_making(self, number: int, first: int) -> range:
        """The rounds that are not over when round `number` is computed; round `first` was the first to begin."""
        return range(max(number - self.depth + 1, first), number)

    def steps(self, first: int, last: int, schedulers: Collection[int]) -> Iterator[Step]:
        """What a worker that has these schedulers does in the rounds from `first` to `last` (exclusive), in order."""
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
        """Some waves of a round in which all workers have summed up. mine: whether this one has its scheduler."""
        if mine:
            yield from (Step("aggregate", number, wave) for wave in waves)
            if self.waves - 1 in waves and number + self.schedulers < last:
                yield Step("schedule", number + self.schedulers)  # others may wait for it, but not for what follows
        yield from (Step("apply", number, wave) for wave in waves)
