"""Coordinate descent on a `QuadraticProblem`: the best value of one coefficient, given all others, is

    b_j <- S(a_j . r + h_j b_j, l1_j) / h_j,   S(x, l) = sign(x) max(|x| - l, 0)

with the curvature h_j, for l2 = 0 (Friedman, Hastie and Tibshirani, J. Stat. Softw. 2010, section 2). If coefficients
must be at least 0, it is max(S, 0) / h_j, since the objective is convex in b_j.
"""

from __future__ import annotations

from blocks.compiled import inlined, reordered_kernel
from samplers.regression.linear_algebra.columns import add, dot
from samplers.regression.linear_algebra.vectors import project_out


@inlined
def soft_threshold(value, threshold):
    """Return S(value, threshold) without a branch that the processor could mispredict."""
    return max(value - threshold, 0.0) + min(value + threshold, 0.0)


@reordered_kernel
def sweep(problem, chosen, coefficients, residual, shift):
    """Update the chosen coefficients, int64 (m,), in turn; returns how many changed sign or became (non)zero.

    coefficients: float64 (W,), and residual: float64 (n,), are updated.
    shift: float64 (k,), coordinates of the residual in the basis during the sweep.
    """
    shift[:] = 0.0
    turned = 0
    for i in range(chosen.size):
        j = chosen[i]
        curvature, old = problem.curvatures[j], coefficients[j]
        slope = dot(problem.columns, j, residual) - problem.l2[j] * old
        for m in range(shift.size):
            slope -= shift[m] * problem.along[m, j]
        new = soft_threshold(slope + curvature * old, problem.l1[j]) / curvature
        if problem.positive:
            new = max(new, 0.0)
        if new != old:
            coefficients[j] = new
            turned += new * old <= 0.0
            add(problem.columns, j, old - new, residual)
            for m in range(shift.size):
                shift[m] += (old - new) * problem.along[m, j]
    project_out(problem.basis, residual)
    return turned


@reordered_kernel
def support(coefficients, found):
    """Write the indices of nonzero coefficients to `found`, int64 (W,); returns how many there are."""
    count = 0
    for j in range(coefficients.size):  # branch-free: all indices are written, and most are overwritten
        found[count] = j
        count += coefficients[j] != 0.0
    return count
