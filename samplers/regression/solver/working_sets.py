"""Regression with an l1 penalty on the columns of a design, for consecutive lambdas.

    minimise over b, a   loss(X b + U a) + lam * (sum_j l1_j |b_j| + 1/2 sum_j l2_j b_j^2)

optionally subject to b >= 0. Then only a positive slope can exceed a penalty; bounds of absolute correlations remain
valid, and at most read more columns than needed.

The problem is solved on a few columns, the working set; then the other columns are checked, and those that violate the
optimality conditions most are added. This ends when a dual point shows that the objective is within `target` of the
optimum. (The scheme of BLITZ, Johnson and Guestrin, ICML 2015, and of celer, Massias, Gramfort and Salmon, ICML 2018.)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from blocks.errors import WorkFailed
from samplers.regression.data.features import FeatureColumns
from samplers.regression.linear_algebra.columns import entry_count
from samplers.regression.losses.loss import CoefficientFit, Loss, PenalizedColumns, admissible_slopes
from samplers.regression.solver.column_selection import largest_gains, sorted_union
from samplers.regression.solver.correlations import (
    CandidateCorrelations,
    ColumnCorrelations,
    ResidualCorrelationRequest,
)
from samplers.regression.solver.dual_gap import DualGap, compute_dual_gap, penalty_slopes, steepest_slope
from samplers.regression.solver.screening import safe_radius
from samplers.regression.solver.solver_limit import SolverLimit

_FIRST = 200  # minimum number of columns of the first working set
# columns of the design per column of a working set, on which work takes at most a tenth of a pass over all columns
_SHARE = 200
_GROWTH = 2  # number of columns in a working set per nonzero coefficient
FURTHER = 3  # the same for a lambda whose correlations are not read yet: a missing column costs a pass
_INNER = 0.3  # fraction of the gap that the problem on the working set may leave
_SMALL = 0.01  # fraction of all entries: a problem on fewer entries is solved in less time than a pass over all columns
_DEEPER = 0.03  # fraction of the goal for such a small problem: a better next working set is worth more
# fraction of the target: the other columns add to the gap, and exceeding the target costs one more working set
_ALMOST = 0.5
_PROGRESS = 0.99  # factor by which a working set must reduce the gap
_PATIENCE = 20  # maximum number of consecutive working sets that do not reduce the gap by this factor
AHEAD = 16  # maximum number of lambdas that one pass over all columns may check


class SolverStalled(WorkFailed):
    """Many working sets have not improved the solution."""


class ColumnPenalties(NamedTuple):
    """Penalties of p columns at lambda = 1: float64 (p,), or (1,) if all are equal."""

    l1: np.ndarray  # 0 for columns that are left out
    l2: np.ndarray

    def at(self, lam: float, columns: np.ndarray) -> ColumnPenalties:
        """Return the penalties at a lambda, float64 (m,), for some columns, int64 (m,)."""
        every = (np.full(columns.size, lam * cost[0]) if cost.size == 1 else lam * cost[columns] for cost in self)
        return ColumnPenalties(*every)


class RegressionSolution(NamedTuple):
    """Solution of a regression of n rows and p columns.

    gap: upper bound on the suboptimality of the objective.
    """

    lam: float
    support: np.ndarray  # int64 (s,), ascending: columns with nonzero coefficients
    values: np.ndarray  # float64 (s,), nonzero coefficients
    fit: CoefficientFit
    objective: float
    gap: float

    def coefficients(self, columns: int) -> np.ndarray:
        """Return the coefficients of all columns, float64 (p,)."""
        b = np.zeros(columns)
        b[self.support] = self.values
        return b


class WorkingSetRegression:
    """A regression to solve for consecutive lambdas.

    norms: float64 (p,), norms of the weighted columns after projecting out the unpenalized columns.
    positive: whether coefficients must be at least 0. Attributes: `limit` of the solver.
    """

    def __init__(
        self,
        features: FeatureColumns,
        loss: Loss,
        penalty: ColumnPenalties,
        norms: np.ndarray,
        *,
        positive: bool = False,
    ) -> None:
        self.features, self.loss, self.penalty, self.norms, self.positive = features, loss, penalty, norms, positive
        self.correlations = ColumnCorrelations(features, loss.roots, norms, penalty.l1, positive=positive)
        self.usable, self.limit = self.correlations.usable, SolverLimit()

    def nothing(self) -> RegressionSolution:
        """Return the solution at lambda_max, where all coefficients are 0."""
        fit = self.loss.fit(np.zeros(self.features.rows), np.zeros(len(self.loss.free)))
        seen = self.correlations.see(ResidualCorrelationRequest(fit.residual, 0.0, np.empty(0, np.int64)), self.usable)

        def work(begin: int, end: int) -> float:
            of_share = slice(begin, end)
            return lambda_max_of(
                seen.chosen[of_share], admissible_slopes(seen.values[of_share], positive=self.positive), self.penalty.l1
            )

        lam = max(self.features.pool.share(seen.chosen.size, work))
        return RegressionSolution(lam, np.empty(0, np.int64), np.empty(0), fit, fit.loss, 0.0)

    def size(self, support: np.ndarray, growth: int = _GROWTH) -> int:
        """Return the size of a working set, given the columns with nonzero coefficients."""
        return max(_FIRST, self.features.count // _SHARE, growth * support.size)

    def solve(self, lam: float, start: RegressionSolution, target: float) -> RegressionSolution:
        """Return the solution for a lambda with a gap of at most `target`, started from the solution for another
        lambda.

        Raises WorkFailed if the solver does not converge.
        """
        working_set = WorkingSet.beginning(self, lam, start, target)
        while (found := working_set.improve()) is None:
            pass
        return found

    def best(self, lam: float, start: RegressionSolution, target: float) -> RegressionSolution:
        """Return the solution as `solve` does; or, if the limit is reached or nothing improves, the best solution so
        far, with a larger gap.
        """
        working_set, found = WorkingSet.beginning(self, lam, start, target), None
        with suppress(SolverStalled):
            while not (found or self.limit.reached):
                found = working_set.improve()
        return found or working_set.solution(working_set.dual_gap.objective)


@dataclass
class WorkingSet:
    """An unfinished solution for a lambda: coefficients, candidates and working set; correlations are stored in the
    regression.
    """

    regression: WorkingSetRegression
    lam: float
    target: float  # maximum gap
    support: np.ndarray  # int64 (s,), ascending: columns with nonzero coefficients
    values: np.ndarray  # float64 (s,), nonzero coefficients
    fit: CoefficientFit
    candidates: np.ndarray  # int64, columns that are not screened out
    working: np.ndarray  # int64, ascending: the next working set, which contains the support
    goal: float  # target gap of the problem on the working set
    gap: float = np.inf  # gap after the last pass
    bound: float = -np.inf  # lower bound on the objective for any coefficients
    screened: float = np.inf  # gap at the last screening
    least: float = np.inf  # smallest gap so far
    stalled: int = 0  # number of working sets since the gap last improved

    def __post_init__(self) -> None:
        self._costs = self.regression.penalty.at(self.lam, self.support)

    @classmethod
    def beginning(
        cls, regression: WorkingSetRegression, lam: float, start: RegressionSolution, target: float
    ) -> WorkingSet:
        """Start from the solution for another lambda; the strong rule proposes the first working set."""
        every, most = regression.usable, regression.size(start.support)
        working = regression.correlations.strong(start.fit.residual, lam, start.lam, every, most)
        working = sorted_union(working, start.support) if working.size else working
        return cls(regression, lam, target, start.support, start.values, start.fit, every, working, _ALMOST * target)

    def following(self, lam: float, read: float, missed: np.ndarray) -> WorkingSet:
        """Return a working set for a further lambda, before this solution is verified.

        read: lambda at which correlations were last read.
        missed: int64, ascending, columns known to be needed that the strong rule leaves out.
        """
        regression, every = self.regression, self.regression.usable
        most = regression.size(self.support, FURTHER)
        working = sorted_union(regression.correlations.strong(self.fit.residual, lam, read, every, most), missed)
        began = self.support, self.values, self.fit, every, sorted_union(working, self.support)
        return WorkingSet(regression, lam, self.target, *began, _ALMOST * self.target)

    def improve(self) -> RegressionSolution | None:
        """Solve on the working set and check all columns; returns the solution once it is verified, else None.

        Raises WorkFailed if many working sets have not improved the solution.
        """
        self.solve()
        return self.examine()

    def examine(self) -> RegressionSolution | None:
        """Check all columns after the working set is solved; see `improve` for the result."""
        return self.judge(self.regression.correlations.see(self.wants(), self.candidates))

    def judge(self, seen: CandidateCorrelations) -> RegressionSolution | None:
        """Return the solution if the candidates' correlations verify it; otherwise choose the next working set."""
        if self.look(seen):
            return self.solution(self.dual_gap.objective)
        self.go_on()
        return None

    def go_on(self) -> None:
        """Choose the next working set, and screen columns.

        Raises WorkFailed if the gap no longer decreases.
        """
        inner, self.working = _INNER * self.gap, self.next_columns()
        last = inner <= self.target or self.working.size == self.regression.usable.size  # no other set could be better
        self.goal = _ALMOST * self.target if last else inner
        self.screen(self.gap)  # not earlier: screening may overwrite the columns that were read
        self.stalled = 0 if self.gap < _PROGRESS * self.least else self.stalled + 1
        self.least = min(self.least, self.gap)
        if self.stalled >= _PATIENCE:
            raise SolverStalled(
                f"lambda {self.lam:g}: did not converge: the duality gap stays at {self.least:g}, above the target"
                f" {self.target:g}",
                "Increase --tolerance, or use larger lambdas.",
            )

    def solution(self, objective: float) -> RegressionSolution:
        return RegressionSolution(self.lam, self.support, self.values, self.fit, objective, self.gap)

    def solve(self) -> None:
        if self.working.size:
            working, features, limit = self.working, self.regression.features, self.regression.limit
            costs = self.regression.penalty.at(self.lam, working)
            norms, positive = self.regression.norms[working], self.regression.positive
            part = PenalizedColumns(features.gather(working), norms, *costs, limit, positive, features.pool)
            small = entry_count(part.columns) < _SMALL * features.entries
            goal = max(_DEEPER * self.goal if small else self.goal, _ALMOST * self.target)
            before = np.zeros(working.size)
            spread(self.support, self.values, working, before)
            found, self.fit = self.regression.loss.minimise(part, before, self.fit, goal)
            kept = np.flatnonzero(found)
            self.support, self.values = working[kept], found[kept]
            self._costs = self.regression.penalty.at(self.lam, self.support)

    def look(self, seen: CandidateCorrelations) -> bool:
        """Compute the gap to the best dual point so far; returns whether it is small enough."""
        regression, penalty = self.regression, self.regression.penalty
        self._chosen, self._gains = seen.chosen, regression.correlations.gains[: seen.chosen.size]
        slopes = penalty_slopes(seen.chosen, seen.values, self.support, self._costs.l2 * self.values)

        def work(begin: int, end: int) -> float:
            of_share = slice(begin, end)
            mine = admissible_slopes(slopes[of_share], positive=regression.positive)
            some = seen.chosen[of_share], mine, self._gains[of_share]
            return steepest_slope(*some, self.lam, penalty.l1, regression.norms)

        steepest = max(regression.features.pool.share(seen.chosen.size, work))
        self.dual_gap: DualGap = compute_dual_gap(regression.loss, self.fit, steepest, *self._costs, self.values)
        self.bound = max(self.bound, self.dual_gap.bound)
        self.gap = max(self.dual_gap.objective - self.bound, 0.0)
        return self.gap <= self.target

    def wants(self) -> ResidualCorrelationRequest:
        """Return which correlations to read. Correlations of the support are read only with a ridge penalty: without
        it, they are known to be within their limits.
        """
        return ResidualCorrelationRequest(
            self.fit.residual, self.lam, self.support if self._costs.l2.any() else self.support[:0]
        )

    def screen(self, gap: float) -> None:
        """Discard the columns with zero coefficients in every solution, if the gap is much smaller than at the last
        screening.
        """
        if gap > 0.25 * self.screened:
            return
        all_of_them = self.candidates is self.regression.usable  # other working sets begin with these columns, too
        self.screened, known = gap, self.regression.correlations
        curvature = self.regression.loss.curvature(self.fit, self.dual_gap.gap)
        scale, radius = self.dual_gap.scale, safe_radius(self.dual_gap.gap, curvature)
        kept = known.kept if all_of_them else self.candidates
        self.candidates = known.possible(self.fit.residual, self.candidates, kept, self.lam / scale, radius / scale)

    def next_columns(self) -> np.ndarray:
        """Return the columns with nonzero coefficients, and the columns with the largest predicted decrease of the
        objective; int64, ascending.
        """
        others = self.regression.size(self.support) - self.support.size
        return sorted_union(
            largest_gains(self._gains, self._chosen, others, self.regression.features.pool), self.support
        )


def judge_all(working_sets: Sequence[WorkingSet]) -> list[RegressionSolution]:
    """Check all columns in one pass for several solved working sets, each started from the previous one, none of which
    has screened columns; returns the verified solutions.

    Working sets after the first one that is not verified get their next working sets.
    """
    regression, solutions = working_sets[0].regression, []
    wanted = [working_set.wants() for working_set in working_sets]
    looks = regression.correlations.see_all(wanted, regression.usable)
    for working_set, seen in zip(working_sets, looks, strict=True):
        if not working_set.look(seen):
            break
        solutions.append(working_set.solution(working_set.dual_gap.objective))
    regression.correlations.learn(working_set.fit.residual, seen)
    if len(solutions) < len(working_sets):
        working_set.go_on()
    for further, seen in zip(working_sets[len(solutions) + 1 :], looks[len(solutions) + 1 :], strict=True):
        further.look(seen)
        further.working = further.next_columns()
    return solutions


@reordered_kernel
def spread(support, values, columns, found):
    """Write the values of a support, int64 (s,), to their positions among columns, int64 (m,), both ascending."""
    i = 0
    for place in range(columns.size):
        if i < support.size and columns[place] == support[i]:
            found[place] = values[i]
            i += 1


@reordered_kernel
def lambda_max_of(chosen, correlations, l1):
    """Return lambda_max, given the correlations, float64 (m,), of chosen columns, int64 (m,)."""
    lam = 0.0
    for i in range(chosen.size):
        lam = max(lam, abs(correlations[i]) / l1[chosen[i] if l1.size > 1 else 0])
    return lam
