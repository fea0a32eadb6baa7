"""Rules that tell beforehand which coefficients are 0: one that is safe, and one that has to be checked.

Correlations are those with the residual, as in `samplers.regression.correlations`.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel

_ROUNDED = 1 - 1e-9  # of a bound that is met to the last digit


@reordered_kernel
def outside_sphere(candidates, kept, bounds, scale, radius, norms, level, l1):
    """Write to `kept` the candidates, int64 (m,), that the gap-safe sphere does not rule out; returns their number.

    A coefficient is 0 in every solution if scale |c| + radius |x| < level l1, for a dual point that is the residual
    times the scale, and the radius of `safe_radius` (Ndiaye, Fercoq, Gramfort and Salmon, JMLR 2017, theorem 6).
    bounds, of |c|, norms, l1: float64 (p,).
    """
    count = 0
    for i in range(candidates.size):
        j = candidates[i]
        if scale * bounds[j] + radius * norms[j] >= _ROUNDED * level * l1[j]:
            kept[count] = j
            count += 1
    return count


def safe_radius(gap: float, curvature: float) -> float:
    """How far from a dual point the best one can be, given the gap between the objectives and the loss's curvature."""
    return float(np.sqrt(2 * curvature * max(gap, 0.0)))


@reordered_kernel
def strong_rule(level, before, along, numbers, values, l1, chosen, first):
    """Write to `chosen`, int64 (p,), those of p columns, from the number `first` on, that the sequential strong rule
    does not discard (Tibshirani and others, JRSS B 2012, section 5); returns how many there are.

    Penalties are level * l1, float64 (p,). Correlations of the solution for the level `before` are expected to be
    along[numbers[j]] * values[j], see `samplers.regression.correlations`.
    """
    count = 0
    for j in range(l1.size):
        if l1[j] > 0.0 and abs(along[numbers[j]] * values[j]) >= (2.0 * level - before) * l1[j]:
            chosen[count] = first + j
            count += 1
    return count
