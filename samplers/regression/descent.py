"""Solving a `Quadratic`: rounds of coordinate descent, which finds the signs, and conjugate gradients on their face."""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.columns import copy
from samplers.regression.conjugate_gradients import Work, polish, work_for
from samplers.regression.coordinate_descent import support, sweep
from samplers.regression.quadratic import Quadratic, gap_of, objective_of

_SWEEPS = 5  # of a round, the first over all coordinates and the others over those that are not 0
_STEPS = 40  # of conjugate gradients, at most
_ROUNDING = 1 - 1e-15  # of the objective
_PATIENCE = 5  # rounds that lower it by no more


@reordered_kernel
def descend_round(problem, every, sweeps, steps, coefficients, residual, work):
    """One round; coefficients, float64 (W,), and residual, float64 (n,), are brought up to date. every: arange(W).

    Returns objective and gap.
    """
    sweep(problem, every, coefficients, residual, work.shift)
    for _ in range(sweeps - 1):
        size = support(coefficients, work.face)
        sweep(problem, work.face[:size], coefficients, residual, work.shift)
    before = objective_of(problem, coefficients, residual)
    copy(coefficients, work.coefficients)
    copy(residual, work.residual)
    polish(problem, support(coefficients, work.face), steps, coefficients, residual, work)
    after = objective_of(problem, coefficients, residual)
    if after > before:  # by rounding, or as a coefficient was stopped at 0
        copy(work.coefficients, coefficients)
        copy(work.residual, residual)
    return min(before, after), gap_of(problem, coefficients, residual)


def descend(problem: Quadratic, coefficients: np.ndarray, residual: np.ndarray, goal: float) -> None:
    """Improve coefficients, float64 (W,), and their residual, float64 (n,), both changed, until the gap is `goal`.

    The gap that counts is to the best dual point of all rounds.
    """
    work: Work = work_for(coefficients.size, residual.size, len(problem.basis))
    every, bound, best, stalled = np.arange(coefficients.size), -np.inf, np.inf, 0
    while stalled < _PATIENCE:
        objective, gap = descend_round(problem, every, _SWEEPS, _STEPS, coefficients, residual, work)
        bound = max(bound, objective - gap)
        if objective - bound <= goal:
            return
        stalled = 0 if objective < best * _ROUNDING else stalled + 1
        best = min(objective, best)
