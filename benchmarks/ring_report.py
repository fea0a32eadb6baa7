"""Report of the ring benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report import table

DENSE = 10  # iterations during which the model is dense, and a network has much to do

Result = dict[str, Any]
Planned = Mapping[int, Sequence[int]]  # bytes that so many ranks are to send in each iteration


def seconds(result: Result) -> list[float]:
    """Return the seconds of each iteration; the first one is counted from the start of training."""
    ends = [line["elapsed_s"] for line in result["lines"]]
    return [end - before for before, end in zip([0.0, *ends], ends, strict=False)]


def sent(result: Result) -> list[int]:
    """Return the bytes that all ranks sent in each iteration."""
    ends = [line["bytes_sent"] for line in result["lines"]]
    return [end - before for before, end in zip([0, *ends], ends, strict=False)]


def waiting(result: Result) -> list[float]:
    """Return the fraction of each iteration in which ranks waited for the network."""
    return [line["network_s"] / took for line, took in zip(result["lines"], seconds(result), strict=True)]


def s_errors(result: Result) -> list[float]:
    """Return the s-error of each iteration, averaged over its macro-steps."""
    return [line["s_error"] for line in result["lines"]]


def speed(result: Result) -> float:
    """Return the median of tokens per second over the iterations, except the first, which has the initialization."""
    return statistics.median([line["tokens_per_s"] for line in result["lines"]][1:])


def sampling_speed(result: Result) -> float:
    """Return the median of tokens per second of a rank while it samples, without the first iteration."""
    tokens = result["lines"][0]["samples_processed"] / result["ranks"]
    return statistics.median([tokens / line["sampling_s"] for line in result["lines"]][1:])


def late(values: Sequence[float]) -> Sequence[float]:
    """Return the iterations after the tenth, or the last one if there are none."""
    return values[DENSE:] or values[-1:]


def describe(rounds: Sequence[dict[str, Result]], planned: Planned) -> Iterator[str]:
    """Return the report.

    rounds: results of all contestants, by their keys.
    """
    yield from table(_rows(rounds))
    yield "Means over rounds, of memory the most. Speeds: the median of the iterations without the first. Network, the"
    yield f"share of an iteration in which ranks wait for it, and s_error: largest after iteration {DENSE}. Held-out:"
    yield "likelihood of a token of documents held out, after the last iteration."
    for result in rounds[0].values():
        if result["ranks"] > 1:
            yield ""
            yield f"{result['name']}, each iteration"
            yield from table(_iterations(result, planned[result["ranks"]]))
    yield ""
    yield from table([["quantity", "goal", "measured"], *_asked(rounds, planned)])
    yield "From the least to the most of the rounds; bytes, of all iterations. The first has the start before it."


def _rows(rounds: Sequence[dict[str, Result]]) -> Iterator[list[str]]:
    yield [
        "",
        "ranks",
        "M tokens/s",
        "x one rank",
        "memory, MB",
        "network",
        "s_error",
        "held-out",
        "difference",
    ]
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


def _asked(rounds: Sequence[dict[str, Result]], planned: Planned) -> Iterator[list[str]]:
    """Yield a row for each requirement on a ring of several ranks: the required and the measured value."""
    there = rounds[0]

    def ratios(of: str, to: str) -> list[float]:
        return [speed(turn[of]) / speed(turn[to]) for turn in rounds]

    def row(what: str, asked: str, found: Sequence[float], form: str) -> list[str]:
        return [what, asked, " to ".join(dict.fromkeys(form.format(each) for each in (min(found), max(found))))]

    if "ring" in there:
        ring, ranks = [turn["ring"] for turn in rounds], there["ring"]["ranks"]
        yield row("time waiting for the network", "< 10%", [max(late(waiting(each))) for each in ring], "{:.1%}")
        yield row("s_error", "< 0.01", [max(late(s_errors(each))) for each in ring], "{:.5f}")
        shares = [of_planned for each in ring for of_planned in _of_planned(each, planned[ranks])]
        yield row("bytes sent per iteration / planned", "90% to 110%", shares, "{:.1%}")
        if "one" in there:
            yield row(f"speed of {ranks} ranks / one rank", "", ratios("ring", "one"), "{:.2f}")
        if "machine" in there:
            off = [turn["ring"]["held_out"] / turn["machine"]["held_out"] - 1 for turn in rounds]
            yield row("held-out likelihood, difference from one machine", "0.5%", off, "{:+.2%}")
        if "bulk" in there:
            yield row("speed with staleness 1 / staleness 0", "", ratios("ring", "bulk"), "{:.3f}")
    if {"tcp", "mpi"} <= there.keys():
        yield row("speed over MPI / TCP", "90% to 110%", ratios("mpi", "tcp"), "{:.1%}")
    held = {
        result["ranks"]: max(result["held_bytes"]) for key, result in there.items() if key in ("one", "ring", "four")
    }
    for ranks, size in sorted(held.items()):
        yield [f"peak memory of a rank, {ranks} ranks", "", f"{size / 1e6:,.0f} MB"]


def _of_rings(results: Sequence[Result]) -> list[str]:
    if results[0]["ranks"] == 1:
        return ["-", "-"]
    network = statistics.fmean(max(late(waiting(result))) for result in results)
    errors = [max(late(s_errors(result))) for result in results]
    return [f"{network:.1%}", f"{statistics.fmean(errors):.5f}"]


def _of_planned(result: Result, planned: Sequence[int]) -> list[float]:
    return [size / plan for size, plan in zip(sent(result), planned, strict=True)]


def _iterations(result: Result, planned: Sequence[int]) -> Iterator[list[str]]:
    yield ["iteration", "M tokens/s", "network", "MB sent", "sent / planned", "s_error"]
    each = zip(result["lines"], waiting(result), sent(result), _of_planned(result, planned), strict=True)
    for line, share, size, of_planned in each:
        yield [
            str(line["iteration"]),
            f"{line['tokens_per_s'] / 1e6:.2f}",
            f"{share:.1%}",
            f"{size / 1e6:,.1f}",
            f"{of_planned:.0%}",
            f"{line['s_error']:.5f}",
        ]
