"""The logistic loss: sum_i w_i (log(1 + exp(z_i)) - y_i z_i), where all y_i are 0 or 1."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_inlined_kernel
from samplers.regression.losses.loss import CoefficientFit

_LEAST = 1e-18  # minimum curvature of a row of weight 1


class LogisticTarget(NamedTuple):
    """Target of the logistic loss."""

    y: np.ndarray  # float64 (n,), 0 or 1

    def curvature(self, fit: CoefficientFit, scores: np.ndarray, roots: np.ndarray, gap: float) -> float:
        """Return the maximum of p (1 - p)."""
        return 0.25


def logistic_derivatives(target, scores, roots, residual, curvatures):
    """Compute the residual root w (y - p) and the second derivative w p (1 - p) of each row; returns the loss."""
    y, loss = target.y, 0.0
    for i in range(scores.size):
        weight, margin = roots[i] * roots[i], scores[i] if y[i] == 1.0 else -scores[i]
        small = math.exp(-abs(margin))
        larger = 1.0 / (1.0 + small)  # the larger of p and 1 - p
        wrong = small * larger if margin >= 0.0 else larger
        loss += weight * (math.log1p(small) + max(-margin, 0.0))
        residual[i] = roots[i] * (wrong if y[i] == 1.0 else -wrong)
        curvatures[i] = weight * max(small * larger * larger, _LEAST)
    return loss


@reordered_inlined_kernel
def entropy_of(p):
    """Return -(p log p + (1 - p) log(1 - p)) for a probability from 0 to 1."""
    return -(p * math.log(p) + (1.0 - p) * math.log1p(-p)) if 0.0 < p < 1.0 else 0.0


def entropy(target, residual, roots):
    """Return -sum_i w_i (q_i log q_i + (1 - q_i) log(1 - q_i)) with q_i = y_i - r_i / root w_i in [0, 1]."""
    total = 0.0
    for i in range(residual.size):
        if roots[i] > 0.0:
            total += roots[i] * roots[i] * entropy_of(abs(residual[i]) / roots[i])  # of |q - y|: q or 1 - q
    return total


def half_step(target, change):
    """Return the length to try after a full Newton step, which changes a score by up to `change`, raised the loss."""
    return 0.5
