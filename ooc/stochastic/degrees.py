"""The degree of parallelism: how many workers, each with its share of the data, found by trial (Splash, appendix B).

Beyond the paper, a degree can fall. Trials offer smaller groups than the present one, too; and a pass that made the
loss of a fixed sample of the elements worse is undone, and made again by fewer workers. The groups of the paper share
the cores of a cluster, so that their sizes add up to these; here a worker is no process, and the largest group has all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

SMALL = 8  # up to so many workers groups are twice as large as the one before, and not four times
PATIENCE = 2  # trials in a row that choose the same, before they are made less often
REST = 10  # passes from one trial to the next then
ERRORS = 3  # standard errors of the change of a loss within which it is noise
TOLERATED = 0.05  # of the loss, and of what it has fallen since the start: a rise that a pass may cause
TO_MAKE, TO_UNDO, MADE = 0, 1, 2  # the pass at hand: to be made, to be undone and made again, accepted


class Choice(NamedTuple):
    """degree: workers. chosen: by how many trials in a row. next_trial: passes before the next one. passes: made.
    undone: passes that were undone. status: of the pass at hand."""

    degree: int = 1
    chosen: int = 0
    next_trial: int = 0
    passes: int = 0
    undone: int = 0
    status: int = TO_MAKE


def _times(most: int) -> int:
    """How much larger a group is than the one before it."""
    return 2 if most <= SMALL else 4


def fewer(degree: int, most: int) -> int:
    """Workers of the next smaller group."""
    return max(degree // _times(most), 1)


def group_sizes(before: int, most: int) -> list[int]:
    """Workers of each group of a trial: those of the next smaller one than `before`, which was chosen before, four
    times as many, and so on, up to `most`."""
    sizes: list[int] = []
    size = fewer(before, most)
    while 2 * size <= most:
        sizes.append(size)
        size *= _times(most)
    return [*sizes, most]


def choose(before: Choice, degrees: Sequence[int], losses: Sequence[float]) -> Choice:
    """What a trial of groups with these losses comes to: the smallest loss wins, of equal ones the larger group.

    A loss that is not finite loses; if all do, the smallest group is chosen. If the same was chosen a few times in a
    row, it is kept for a while.
    """
    finite = [(loss, -degree) for loss, degree in zip(losses, degrees, strict=True) if math.isfinite(loss)]
    degree = -min(finite)[1] if finite else min(degrees)
    chosen = before.chosen + 1 if before.chosen and degree == before.degree else 1
    next_trial = before.passes + (REST if chosen >= PATIENCE else 1)
    return before._replace(degree=degree, chosen=chosen, next_trial=next_trial)


def undone(before: Choice, degree: int) -> Choice:
    """What follows from a pass that has to be undone, and made again by `degree` workers: no trial for a while, which
    would choose as many again; each time for longer."""
    times = before.undone + 1
    next_trial = before.passes + REST * times
    return before._replace(degree=degree, chosen=0, next_trial=next_trial, undone=times, status=TO_UNDO)


def is_worse(first: np.ndarray, before: np.ndarray, after: np.ndarray, elements: np.ndarray) -> bool:
    """Whether a pass made the loss of a sample worse than noise does, or not finite.

    first, before, after: float64 (G,), the sums of the losses of G groups of elements when the run began, before the
    pass and after it. elements: (G,), how many each has. Noise is three standard errors of the mean change, which the
    groups tell; and a twentieth of the loss, or of what it has fallen since the start, whichever is less, as steps of a
    stochastic algorithm go up and down for ever, near an optimum.
    """
    if not np.isfinite(after).all():
        return True
    largest = float(np.abs([before, after]).max())
    if not 0 < largest < math.inf:
        return False
    some, count = elements > 0, float(elements.sum())
    changes = (after / largest - before / largest)[some] / elements[some]
    error = float(np.std(changes, ddof=1)) / math.sqrt(changes.size) if changes.size > 1 else 0.0
    loss, start = float((before / largest).sum()), total(first) / largest
    fallen = max(start - loss, 0.0) if math.isfinite(start) else math.inf
    rise = float((changes * elements[some]).sum()) / count
    return rise > max(ERRORS * error, TOLERATED * min(abs(loss), fallen) / count)


def total(losses: Iterable[float]) -> float:
    """The exact sum of some losses; infinite or NaN if they are, or it is."""
    losses = list(losses)
    try:
        return math.fsum(losses)
    except (OverflowError, ValueError):  # beyond the largest number; infinities of both signs
        with np.errstate(all="ignore"):
            return float(np.sum(losses))
