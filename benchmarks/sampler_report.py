"""Tables of `benchmarks.samplers`, computed from the metrics of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks.report import table

Result = dict[str, Any]  # what was run, and `lines`: its metrics

LIKELIHOOD = "log_likelihood_per_token"
PARTS = {LIKELIHOOD: "log-likelihood", f"doc_{LIKELIHOOD}": "document part", f"word_{LIKELIHOOD}": "word part"}


def describe(found: dict[str, Any]) -> Iterator[str]:
    """Return the results as text."""
    settings = found["settings"]
    yield (
        f"{settings['corpus']}: {settings['documents']:,} documents, {settings['tokens']:,} tokens, "
        f"{settings['vocabulary']:,} words"
    )
    for topics, results in by_topics(found["samplers"]).items():
        target = common_likelihood(results)
        yield from ("", f"K = {topics:,}, one worker; likelihoods per token, at the end", "")
        head = ["", "iterations", "s/iteration", "M tokens/s", *PARTS.values(), "non-zeros, M", f"s to {target:.3f}"]
        yield from table([head, *(sampler_row(result, settings["tokens"], target) for result in results)])
    if results := found["modes"]:
        target = common_likelihood(results)
        yield from ("", f"simulated workers, SparseLDA, K = {results[0]['topics']:,}", "")
        head = ["", "workers", "iterations", "log-likelihood", f"M tokens to {target:.3f}", "s-error, first", "last"]
        yield from table([head, *(mode_row(result, target) for result in results)])


def sampler_row(result: Result, tokens: int, target: float) -> list[str]:
    last, seconds = evaluated(result)[-1], statistics.median(seconds_per_iteration(result))
    return [
        result["sampler"],
        str(result["lines"][-1]["iteration"]),
        f"{seconds:.3f}",
        f"{tokens / seconds / 1e6:.3f}",
        *(f"{last[part]:.4f}" for part in PARTS),
        f"{last['nonzeros'] / 1e6:.3f}",
        f"{amount_to(result, 'elapsed_s', target):.1f}",
    ]


def mode_row(result: Result, target: float) -> list[str]:
    errors = [line["s_error"] for line in result["lines"] if "s_error" in line]
    return [
        result["mode"],
        str(result["workers"]),
        str(result["lines"][-1]["iteration"]),
        f"{evaluated(result)[-1][LIKELIHOOD]:.4f}",
        f"{amount_to(result, 'samples_processed', target) / 1e6:.1f}",
        *([f"{errors[0]:.2g}", f"{errors[-1]:.2g}"] if errors else ["-", "-"]),
    ]


def by_topics(results: Iterable[Result]) -> dict[int, list[Result]]:
    found: dict[int, list[Result]] = {}
    for result in results:
        found.setdefault(result["topics"], []).append(result)
    return found


def evaluated(result: Result) -> list[dict[str, Any]]:
    """Return the lines of the iterations at which the likelihood was evaluated."""
    return [line for line in result["lines"] if LIKELIHOOD in line]


def seconds_per_iteration(result: Result) -> list[float]:
    return np.diff([line["elapsed_s"] for line in result["lines"]], prepend=0.0).tolist()


def common_likelihood(results: list[Result]) -> float:
    """Return the best likelihood that all runs reach."""
    return min(max(line[LIKELIHOOD] for line in evaluated(result)) for result in results)


def amount_to(result: Result, amount: str, target: float) -> float:
    """Return the value of a metrics field at which a likelihood was first reached, interpolated."""
    lines = evaluated(result)
    best = np.maximum.accumulate([line[LIKELIHOOD] for line in lines])
    reached = int(np.argmax(best >= target))
    around = slice(max(reached - 1, 0), reached + 1)
    return float(np.interp(target, best[around], [line[amount] for line in lines[around]]))
