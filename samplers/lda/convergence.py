"""Detect convergence of a chain from its metrics alone, so that a resumed run makes the same decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocks.errors import RequestError
from samplers.lda.held_out import FIELD as HELD_OUT

JOINT = "log_likelihood_per_token"
WINDOW = 3  # evaluations
TOLERANCE = 0.003  # nats per token, over the window


def check_convergence(iterations: int, every: int) -> None:
    """Raise RequestError if training ends before the first evaluation.

    Fewer evaluations than the criterion needs are allowed, because a run resumed with more iterations keeps counting.
    """
    if iterations < every:
        raise RequestError(
            f"--stop-when-converged: --iterations {iterations} ends before the first evaluation, at iteration {every}",
            "Increase --iterations or reduce --evaluate-every.",
        )


def convergence_metric(lines: Sequence[dict[str, Any]]) -> str:
    """Return the metric that convergence is judged by: held-out likelihood if available, else joint likelihood."""
    return HELD_OUT if any(HELD_OUT in line for line in lines) else JOINT


def evaluations(lines: Sequence[dict[str, Any]], every: int, after: int = 0) -> list[float]:
    """Return the values of `convergence_metric` at iterations above `after` that are multiples of `every`.

    Other iterations are left out: they are the final evaluations of shorter runs.
    """
    field = convergence_metric(lines)
    return [
        line[field] for line in lines if field in line and line["iteration"] % every == 0 and line["iteration"] > after
    ]


def has_converged(values: Sequence[float], least: int = 0) -> bool:
    """Return whether there are at least `least` evaluations, and the last WINDOW gained less than TOLERANCE."""
    return len(values) > max(WINDOW, least - 1) and values[-1] - values[-1 - WINDOW] < TOLERANCE
