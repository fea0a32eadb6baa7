"""When a chain has stopped gaining: decided by the lines of its metrics alone, so that a resumed run decides alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocks.errors import RequestError
from samplers.lda.held_out import FIELD as HELD_OUT

JOINT = "log_likelihood_per_token"
WINDOW = 3  # evaluations
TOLERANCE = 0.003  # nats per token, over the window


def check_convergence(iterations: int, every: int) -> None:
    """Raise RequestError if a training is over before any evaluation that the rule counts.

    With fewer than the rule needs it may make sense: a resumed run that is given more iterations goes on counting.
    """
    if iterations < every:
        raise RequestError(
            f"--stop-when-converged: --iterations {iterations} ends before the first evaluation, at iteration {every}",
            "Give more --iterations, or a smaller --evaluate-every.",
        )


def measure(lines: Sequence[dict[str, Any]]) -> str:
    """The field that tells how good a chain is: the held-out likelihood where there is one, else the joint."""
    return HELD_OUT if any(HELD_OUT in line for line in lines) else JOINT


def evaluations(lines: Sequence[dict[str, Any]], every: int, after: int = 0) -> list[float]:
    """The values of `measure` at the multiples of `every` that come after an iteration.

    An evaluation between multiples was the last of a training that was meant to be shorter.
    """
    field = measure(lines)
    return [
        line[field] for line in lines if field in line and line["iteration"] % every == 0 and line["iteration"] > after
    ]


def has_converged(values: Sequence[float], least: int = 0) -> bool:
    """Whether the last WINDOW evaluations gained less than TOLERANCE, of at least `least` evaluations."""
    return len(values) > max(WINDOW, least - 1) and values[-1] - values[-1 - WINDOW] < TOLERANCE
