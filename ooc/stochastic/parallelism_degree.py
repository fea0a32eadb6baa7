"""Choose the degree of parallelism, the number of parallel learners, by trial (Splash, appendix B).

Unlike in the paper, the degree can decrease: trials include groups smaller than the current one, and a pass that
increased the loss of a fixed sample of elements is undone and repeated with fewer workers. In the paper, the groups
share the cores of a cluster; here, a worker is not a process, and the largest group has all workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

SMALL = 8  # groups double in size up to this maximum number of workers; for larger maxima they quadruple
PATIENCE = 2  # consecutive trials with the same choice before trials become rarer
REST = 10  # number of passes between trials from then on
ERRORS = 3  # changes of the loss within this number of standard errors are noise
TOLERATED = 0.05  # tolerated rise in a pass, as a fraction of the loss and of its decrease since the start
TO_MAKE, TO_UNDO, MADE = 0, 1, 2  # status of the current pass: to be made, to be undone and repeated, accepted


class ParallelismChoice(NamedTuple):
    """State of the choice.

    degree: number of workers.
    chosen: number of consecutive trials that chose this degree.
    next_trial: number of passes until the next trial.
    passes: number of passes.
    undone: number of undone passes.
    status: status of the current pass.
    """

    degree: int = 1
    chosen: int = 0
    next_trial: int = 0
    passes: int = 0
    undone: int = 0
    status: int = TO_MAKE


def _times(most: int) -> int:
    """Return the ratio of the sizes of consecutive groups, given the maximum number of workers."""
    return 2 if most <= SMALL else 4


def next_smaller_degree(degree: int, most: int) -> int:
    """Return the number of workers in the next smaller group."""
    return max(degree // _times(most), 1)


def group_sizes(before: int, most: int) -> list[int]:
    """Return the sizes of the groups in a trial: from the next size below `before` up to `most`."""
    sizes: list[int] = []
    size = next_smaller_degree(before, most)
    while 2 * size <= most:
        sizes.append(size)
        size *= _times(most)
    return [*sizes, most]


def choose_degree(before: ParallelismChoice, degrees: Sequence[int], losses: Sequence[float]) -> ParallelismChoice:
    """Return the choice after a trial: the group with the smallest loss; ties go to the larger group.

    Losses that are not finite are ignored; if none is finite, the smallest group is chosen. Trials become rarer after
    several consecutive trials with the same result.
    """
    finite = [(loss, -degree) for loss, degree in zip(losses, degrees, strict=True) if math.isfinite(loss)]
    degree = -min(finite)[1] if finite else min(degrees)
    chosen = before.chosen + 1 if before.chosen and degree == before.degree else 1
    next_trial = before.passes + (REST if chosen >= PATIENCE else 1)
    return before._replace(degree=degree, chosen=chosen, next_trial=next_trial)


def undone_choice(before: ParallelismChoice, degree: int) -> ParallelismChoice:
    """Return the choice after an undone pass, which is repeated with `degree` workers. The number of passes until the
    next trial grows with each undone pass."""
    times = before.undone + 1
    next_trial = before.passes + REST * times
    return before._replace(degree=degree, chosen=0, next_trial=next_trial, undone=times, status=TO_UNDO)


def is_worse(first: np.ndarray, before: np.ndarray, after: np.ndarray, elements: np.ndarray) -> bool:
    """Return whether a pass increased the loss of a sample by more than noise, or made it infinite or NaN.

    first, before, after: float64 (G,), summed losses of G groups of elements at the start of the run, before the pass,
        and after the pass.
    elements: (G,), number of elements in each group. Noise is the larger of three standard errors of the mean change
        over groups, and a twentieth of the loss or of its decrease since the start, whichever is less, because
        stochastic steps fluctuate near an optimum.
    """
    if not np.isfinite(after).all():
        return True
    largest = float(np.abs([before, after]).max())
    if not 0 < largest < math.inf:
        return False
    some, count = elements > 0, float(elements.sum())
    changes = (after / largest - before / largest)[some] / elements[some]
    error = float(np.std(changes, ddof=1)) / math.sqrt(changes.size) if changes.size > 1 else 0.0
    loss, start = float((before / largest).sum()), exact_sum(first) / largest
    fallen = max(start - loss, 0.0) if math.isfinite(start) else math.inf
    rise = float((changes * elements[some]).sum()) / count
    return rise > max(ERRORS * error, TOLERATED * min(abs(loss), fallen) / count)


def exact_sum(losses: Iterable[float]) -> float:
    """Return the exact sum of losses; infinite or NaN if a loss is infinite or NaN, or if the sum overflows."""
    losses = list(losses)
    try:
        return math.fsum(losses)
    except (OverflowError, ValueError):  # overflow; infinities of both signs
        with np.errstate(all="ignore"):
            return float(np.sum(losses))
