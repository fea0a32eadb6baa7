"""Solve a `QuadraticProblem` by rounds of coordinate descent, which finds the signs, and conjugate gradients on the
active set.

On small active sets, Newton's method replaces conjugate gradients if it is as fast.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy, entry_count
from samplers.regression.linear_algebra.gram import arrange
from samplers.regression.quadratic.active_set import active_set_scratch, minimise_active
from samplers.regression.quadratic.conjugate_gradients import (
    ConjugateGradientsScratch,
    conjugate_gradient_steps,
    conjugate_gradients_scratch,
)
from samplers.regression.quadratic.coordinate_descent import support, sweep
from samplers.regression.quadratic.problem import QuadraticProblem, quadratic_gap, quadratic_objective
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.threads.thread_pool import ALONE, ThreadPool, thread_barrier

_SWEEPS = 5  # maximum number of sweeps of a round, the first over all coefficients and the others over the nonzero ones
_SETTLED = (
    0.01  # fraction of the nonzero coefficients: if a sweep changes at most this many signs, the signs are settled
)
_STEPS = 20  # maximum number of conjugate gradient steps in the first round
_MORE = 1.2  # growth of the number of steps from round to round,
_MANY_MORE = 2.0  # after a round without sign changes: a restart loses the conjugacy of the directions
_ENOUGH = 0.3  # fraction of the target gap, estimated on the active set, that conjugate gradients may leave
_ROUNDING = 1e-15  # increase of the objective, relative to it, that counts as rounding
_FEW = 1 << 14  # minimum number of entries in an active set for a second thread to be worth its cost
_PATIENCE = 5  # number of rounds that may neither lower the objective by more than rounding nor reduce the gap
_AFFORDABLE = 1 << 29  # maximum number of products for the Gram matrix of an active set
_PROGRESS = 0.9  # a round makes progress if it reduces the gap to less than this fraction
_AT_ONCE = 2e9  # number of products in conjugate gradient steps: a second or two, during which limits are not checked


@reordered_kernel
def approach(problem, every, coefficients, residual, work):
    """Do the first sweep of a round; returns the number of nonzero coefficients, whose indices are in work.active."""
    sweep(problem, every, coefficients, residual, work.shift)
    return support(coefficients, work.active)


@reordered_kernel
def settle(problem, coefficients, residual, work):
    """Do the remaining sweeps of a round, and save coefficients and residual. Stores the objective, and the number of
    sign changes in the last sweep.
    """
    for _ in range(_SWEEPS - 1):
        size = support(coefficients, work.swept)
        turned = sweep(problem, work.swept[:size], coefficients, residual, work.shift)
        if turned <= _SETTLED * size:
            break
    copy(coefficients, work.coefficients)
    copy(residual, work.residual)
    work.outcome[0], work.outcome[2] = quadratic_objective(problem, coefficients, residual), turned


@reordered_kernel
def improve(member, problem, size, steps, enough, coefficients, residual, work):
    """Finish a round: one thread does the remaining sweeps while another prepares the active set, then conjugate
    gradients.

    The result of conjugate gradients is discarded if the objective has increased. Stores the objective and the gap.
    """
    if member.rank == 0:
        settle(problem, coefficients, residual, work)
    elif member.rank == member.size - 1:
        arrange(problem.columns, work.active[:size], work.gram)
    thread_barrier(member)
    before = work.outcome[0]
    conjugate_gradient_steps(member, problem, size, steps, enough, coefficients, residual, work)
    thread_barrier(member)
    after = quadratic_objective(problem, coefficients, residual)
    if after > before * (1.0 + _ROUNDING):  # can happen where a coefficient that crossed 0 was set to 0
        thread_barrier(member)
        if member.rank == 0:
            copy(work.coefficients, coefficients)
            copy(work.residual, residual)
        thread_barrier(member)
    gap = quadratic_gap(member, problem, coefficients, residual, work.sums)
    if member.rank == 0:
        work.outcome[0], work.outcome[1] = min(before, after), gap


@reordered_kernel
def improve_exactly(member, problem, size, coefficients, residual, work, memory):
    """Finish a round in one thread, with Newton's method on an active set of `size` columns. Stores the objective and
    the gap.
    """
    copy(coefficients, work.coefficients)
    copy(residual, work.residual)
    before = quadratic_objective(problem, coefficients, residual)
    minimise_active(problem, work.active[:size], coefficients, residual, memory)
    after = quadratic_objective(problem, coefficients, residual)
    if after > before * (1.0 + _ROUNDING):
        copy(work.coefficients, coefficients)
        copy(work.residual, residual)
    gap = quadratic_gap(member, problem, coefficients, residual, work.sums)
    work.outcome[0], work.outcome[1], work.outcome[2] = min(before, after), gap, 0.0


def is_small(problem: QuadraticProblem, size: int, each: float, rows: int, steps: float) -> bool:
    """Return whether Newton's method on the active set, with `each` entries per column, takes no longer than `steps`
    conjugate gradient steps.
    """
    products = size**2 * (each + len(problem.basis) * rows) / 2
    return products < _AFFORDABLE and products + size**3 / 6 < 2 * size * each * steps


def descend(
    problem: QuadraticProblem,
    coefficients: np.ndarray,
    residual: np.ndarray,
    goal: float,
    limit: SolverLimit,
    pool: ThreadPool = ALONE,
) -> None:
    """Improve coefficients, float64 (W,), and residual, float64 (n,), until the duality gap is `goal`, the limit is
    reached, or nothing improves.

    The gap is computed with the best dual point of all rounds. The result is the same for any pool.
    """
    work: ConjugateGradientsScratch = conjugate_gradients_scratch(problem, residual.size)
    each = entry_count(problem.columns) / max(coefficients.size, 1)
    every, bound, best, least, stalled = np.arange(coefficients.size), -np.inf, np.inf, np.inf, 0
    steps, enough = float(_STEPS), _ENOUGH * goal
    most = max(_AT_ONCE / max(2 * entry_count(problem.columns), 1), _STEPS)
    while stalled < _PATIENCE and not limit.reached:
        limit.taken += 1
        size = approach(problem, every, coefficients, residual, work)
        if is_small(problem, size, each, residual.size, steps):
            ALONE.run(
                improve_exactly, problem, size, coefficients, residual, work, active_set_scratch(size, residual.size)
            )
        else:
            at_work = pool if size * each > _FEW else ALONE
            at_work.run(improve, problem, size, int(min(steps, most)), enough, coefficients, residual, work)
        objective, gap, turned = work.outcome.tolist()
        bound = max(bound, objective - gap)
        if objective - bound <= goal:
            return
        better = objective < best * (1.0 - _ROUNDING) or gap < _PROGRESS * least
        stalled, least = 0 if better else stalled + 1, min(gap, least)
        best, enough = min(objective, best), 0.0 if stalled else enough
        steps = min((_MORE if turned else _MANY_MORE) * steps, max(coefficients.size, _STEPS))
