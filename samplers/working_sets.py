"""Regression with an l1 penalty on the columns of a design, for one level of the penalty after another.

    minimise over b, a   loss(X b + U a) + level * (sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2)

A problem on few columns, the working set, is solved, and the others are looked at; those that break the optimality
conditions most come into the set. It ends when a dual point shows that no more than `target` can be gained. (The scheme
of BLITZ, Johnson and Guestrin, ICML 2015, and of celer, Massias, Gramfort and Salmon, ICML 2018.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from blocks.errors import WorkFailed
from samplers.correlations import Correlations
from samplers.duality import Standing, standing, survey
from samplers.features import Features
from samplers.free_columns import orthonormal
from samplers.losses import Fit, Loss, Part
from samplers.screening import outside_sphere, safe_radius, strong_set

_FIRST = 100  # columns of the first working set, at least
_GROWTH = 2  # columns for each coefficient that is not 0
_INNER = 0.3  # of the gap: what is left to the problem on the working set
_ALMOST = 0.5  # of the target, as the other columns add to the gap
_PROGRESS = 0.99  # of the gap: what a working set has to bring it to
_PATIENCE = 20  # working sets that do not
_FLAT = 1e-10  # of a column's square: if less is left by the columns without penalty, that is rounding
_BUCKETS = 1 << 15


class Penalty(NamedTuple):
    """Of p columns, at level 1. float64 (p,)."""

    l1: np.ndarray  # 0 for columns that are left out
    l2: np.ndarray


class Solution(NamedTuple):
    """Of a regression of n rows and p columns. `gap`: the objective is at most so much above the least."""

    level: float
    coefficients: np.ndarray  # float64 (p,), b
    fit: Fit
    objective: float
    gap: float


class Regression:
    """A regression to solve for levels in turn."""

    def __init__(self, features: Features, loss: Loss, penalty: Penalty) -> None:
        self.features, self.loss, self.penalty = features, loss, penalty
        self.norms = projected_norms(features, loss)
        self.correlations = Correlations(features, loss.roots, self.norms)
        self._usable = np.flatnonzero((penalty.l1 > 0) & (self.norms > 0))

    def nothing(self) -> Solution:
        """The solution for the least level at which all coefficients are 0."""
        coefficients = np.zeros(self.features.count)
        fit = self.loss.fit(np.zeros(self.features.rows), np.zeros(len(self.loss.free)))
        seen = self.correlations.see(fit.residual, self._usable, coefficients, np.empty(0, np.int64))
        level = float(np.max(np.abs(seen.values) / self.penalty.l1[seen.chosen], initial=0.0))
        return Solution(level, coefficients, fit, fit.loss, 0.0)

    def solve(self, level: float, start: Solution, target: float) -> Solution:
        """The solution for a level, with a gap up to `target`, from one for another level. Raises WorkFailed."""
        now = _Attempt(self, level, start)
        working, goal = now.strong(start.level), _ALMOST * target
        least, stalled = np.inf, 0
        while stalled < _PATIENCE:
            now.improve(working, goal)
            gap = now.look()
            if gap <= target:
                return Solution(level, now.coefficients, now.fit, now.standing.objective, gap)
            now.screen(gap)
            working, goal = now.working_set(), max(_INNER * gap, _ALMOST * target)
            stalled = 0 if gap < _PROGRESS * least else stalled + 1
            least = min(least, gap)
        raise WorkFailed(
            f"lambda {level:g}: the duality gap is {least:g} and gets no smaller; {target:g} was to be reached",
            "Choose a larger --tolerance, or larger values of lambda.",
        )


class _Attempt:
    """The solution for a level, in the making."""

    def __init__(self, regression: Regression, level: float, start: Solution) -> None:
        self._regression, self._level = regression, level
        self._l1, self._l2 = level * regression.penalty.l1, level * regression.penalty.l2
        self.coefficients, self.fit = start.coefficients.copy(), start.fit
        self._support = np.flatnonzero(self.coefficients)
        self._candidates, self._bound, self._screened = regression._usable, -np.inf, np.inf

    def strong(self, before: float) -> np.ndarray:
        """The working set that the strong rule proposes."""
        expected = self._regression.correlations.expected(self.fit.residual)
        strong = strong_set(self._level, before, expected, self._regression.penalty.l1)
        return np.union1d(strong, self._support) if strong.size else strong

    def improve(self, working: np.ndarray, goal: float) -> None:
        """Solve the problem on some columns, which have all coefficients other than 0."""
        if working.size:
            part = Part(self._regression.features.gather(working), self._l1[working], self._l2[working])
            found, self.fit = self._regression.loss.minimise(part, self.coefficients[working], self.fit, goal)
            self.coefficients[working] = found
            self._support = working[found != 0]

    def look(self) -> float:
        """Look at all columns; returns the gap to the best dual point so far."""
        regression = self._regression
        self._seen = regression.correlations.see(self.fit.residual, self._candidates, self._l1, self._support)
        chosen, values = self._seen.chosen, self._seen.values
        self._gains = np.empty(chosen.size, np.float32)
        found = survey(chosen, values, self.coefficients, self._l1, self._l2, regression.norms, self._gains)
        self.standing: Standing = standing(regression.loss, self.fit, *found)
        self._bound = max(self._bound, self.standing.bound)
        return self.standing.objective - self._bound

    def screen(self, gap: float) -> None:
        """Leave out the columns that have no coefficient in any solution, if the gap is a good deal smaller than when
        this was last done."""
        if gap > 0.25 * self._screened:
            return
        self._screened, kept = gap, np.empty_like(self._candidates)
        radius = safe_radius(self.standing.gap, self._regression.loss.curvature)
        count = outside_sphere(
            self._candidates,
            self._seen.bounds,
            self.standing.scale,
            radius,
            self._regression.norms,
            self._l1,
            kept,
        )
        self._candidates = kept[:count]

    def working_set(self) -> np.ndarray:
        """Columns with coefficients, and those that promise to lower the objective most; int64, ascending."""
        size = max(_FIRST, _GROWTH * self._support.size)
        found = np.empty(self._seen.chosen.size, np.int64)
        return found[: largest(self._gains, self._seen.chosen, size, np.zeros(_BUCKETS, np.int64), found)]


def projected_norms(features: Features, loss: Loss) -> np.ndarray:
    """float64 (p,), of columns (rows times roots of weights) without what columns without penalty explain of them."""
    every = np.arange(features.count)
    whole = features.squares(every, None if loss.roots is None else loss.roots**2)
    left = whole.copy()
    for axis in orthonormal(loss.free).basis:
        left -= features.correlations(every, axis if loss.roots is None else axis * loss.roots) ** 2
    return np.sqrt(np.where(left > _FLAT * whole, left, 0.0))


@reordered_kernel
def largest(gains, chosen, size, counts, found):
    """Write to `found` those of the chosen columns whose gains are largest, as many as asked for, in their order, but
    none whose gain is 0; returns how many there are. gains: float32, not negative. counts: int64, zeros."""
    order = gains.view(np.int32)  # floats that are not negative are ordered as their bits are
    for i in range(order.size):
        counts[order[i] >> 16] += 1
    bucket, left = counts.size - 1, size
    while bucket > 0 and counts[bucket] <= left:
        left -= counts[bucket]
        bucket -= 1
    count = 0
    for i in range(order.size):
        of = order[i] >> 16
        if order[i] > 0 and (of > bucket or (of == bucket and left > 0)):
            left -= of == bucket
            found[count] = chosen[i]
            count += 1
    return count
