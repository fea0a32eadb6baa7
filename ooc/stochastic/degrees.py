"""How many workers, each with its share of the data: the degree of parallelism, found by trial (Splash, appendix B)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

SMALL = 8  # up to so many workers groups are twice as large as the one before, and not four times
PATIENCE = 2  # trials in a row that choose the same, before they are made less often
REST = 10  # passes from one trial to the next then


def group_sizes(before: int, most: int) -> list[int]:
    """Workers of each group: so many as were chosen before, then four times as many, until all `most` are in one.

    The paper's m_1, m_2, ..., where before is its 4 * m_0; without sizes that come twice. Its scheme has at least half
    of all workers in the largest group, and nothing but that group once more than half of them were chosen.
    """
    times = 2 if most <= SMALL else 4
    sizes: list[int] = []
    size = before
    while left := most - sum(sizes):
        if 2 * size <= left:
            sizes.append(size)
            size *= times
        else:
            sizes.append(left)
    return sorted(set(sizes))


class Choice(NamedTuple):
    """degree: workers. chosen: by how many trials in a row. next_trial: passes before the next one. passes: made."""

    degree: int = 1
    chosen: int = 0
    next_trial: int = 0
    passes: int = 0


def choose(before: Choice, degrees: Sequence[int], losses: Sequence[float]) -> Choice:
    """What a trial of groups with these losses comes to: the smallest loss wins, of equal ones the larger group.

    A loss that is no number loses. If the same was chosen a few times in a row, it is kept for a while.
    """
    comparable = [loss if math.isfinite(loss) else math.inf for loss in losses]
    degree = min(zip(comparable, degrees, strict=True), key=lambda found: (found[0], -found[1]))[1]
    chosen = before.chosen + 1 if before.chosen and degree == before.degree else 1
    return Choice(degree, chosen, before.passes + (REST if chosen >= PATIENCE else 1), before.passes)
