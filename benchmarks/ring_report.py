"""What the benchmark of rings says."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.report import table

DENSE = 10  # iterations during which the model is dense, and a network has much to do

Result = dict[str, Any]


def seconds(result: Result) -> list[float]:
    """Of each iteration; those of the first begin when the training does."""
    ends = [line["elapsed_s"] for line in result["lines"]]
    return [end - before for before, end in zip([0.0, *ends], ends, strict=False)]


def sent(result: Result) -> list[int]:
    """Bytes that all ranks sent in each iteration."""
    ends = [line["bytes_sent"] for line in result["lines"]]
    return [end - before for before, end in zip([0, *ends], ends, strict=False)]


def waiting(result: Result) -> list[float]:
    """The share of each iteration in which ranks waited for the network."""
    return [line["network_s"] / took for line, took in zip(result["lines"], seconds(result), strict=True)]


def speed(result: Result) -> float:
    """Tokens a second, in the median over the iterations without the first, which begins with a start."""
    return statistics.median([line["tokens_per_s"] for line in result["lines"]][1:])


def late(values: Sequence[float]) -> Sequence[float]:
    """Those after the tenth iteration, or the last if there are none."""
    return values[DENSE:] or values[-1:]


def describe(rounds: Sequence[dict[str, Result]], planned: int) -> Iterator[str]:
    """The report. rounds: the results of all contestants, by their keys. planned: bytes sent in an iteration."""
    yield from table(_rows(rounds))
    yield "Means over rounds, of memory the most. Speeds: the median of the iterations without the first. Network, the"
    yield f"share of an iteration in which ranks wait for it, and s_error: largest after iteration {DENSE}. Held-out:"
    yield "likelihood of a token of documents held out, after the last iteration."
    for result in rounds[0].values():
        if result["ranks"] > 1:
            yield ""
            yield f"{result['name']}, each iteration"
            yield from table(_iterations(result, planned))


def _rows(rounds: Sequence[dict[str, Result]]) -> Iterator[list[str]]:
    yield ["", "ranks", "M tokens/s", "x one", "MB of ranks", "network", "s_error", "held-out", "off by"]
    for key, first in rounds[0].items():
        results = [turn[key] for turn in rounds]
        reference = next((each for each in ("one", "machine") if each in rounds[0]), key)
        ratios = [speed(turn[key]) / speed(turn[reference]) for turn in rounds]
        sizes = zip(*(each["held_bytes"] for each in results), strict=True)
        alone = rounds[0].get("machine", rounds[0][reference])["held_out"]
        yield [
            first["name"],
            str(first["ranks"]),
            f"{statistics.fmean(map(speed, results)) / 1e6:.2f}",
            f"{statistics.fmean(ratios):.2f}",
            " ".join(f"{max(of_rank) / 1e6:,.0f}" for of_rank in sizes),
            *_of_rings(results),
            f"{first['held_out']:.4f}",
            f"{first['held_out'] / alone - 1:+.2%}",
        ]


def _of_rings(results: Sequence[Result]) -> list[str]:
    if results[0]["ranks"] == 1:
        return ["-", "-"]
    network = statistics.fmean(max(late(waiting(result))) for result in results)
    errors = [max(late([line["s_error"] for line in result["lines"]])) for result in results]
    return [f"{network:.1%}", f"{statistics.fmean(errors):.5f}"]


def _iterations(result: Result, planned: int) -> Iterator[list[str]]:
    yield ["iteration", "M tokens/s", "network", "MB sent", "of planned", "s_error"]
    each = zip(result["lines"], waiting(result), sent(result), strict=True)
    for line, share, size in each:
        yield [
            str(line["iteration"]),
            f"{line['tokens_per_s'] / 1e6:.2f}",
            f"{share:.1%}",
            f"{size / 1e6:,.1f}",
            f"{size / planned:.0%}",
            f"{line['s_error']:.5f}",
        ]
