"""Figures of `benchmarks.samplers`, drawn from the metrics of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.sampler_report import LIKELIHOOD, PARTS, Result, by_topics, seconds_per_iteration

Curve = Callable[[Result], tuple[Sequence[float], Sequence[float]]]  # x and y of a result
Style = Callable[[Result], dict[str, Any]]  # how its curve looks, and what the legend calls it

LINES = {"": "-", "cycle": "-", "word": ":", "doc": "--"}  # by proposals


def draw(found: dict[str, Any], directory: Path) -> None:
    """Draw all figures for which there are results."""
    if results := found["samplers"]:
        draw_likelihood(results, "elapsed_s", "sampling time, s", directory / "likelihood-by-seconds.png")
        draw_likelihood(results, "iteration", "iteration", directory / "likelihood-by-iteration.png")
        draw_cost(results, directory / "cost.png")
    if results := found["modes"]:
        draw_modes(results, directory / "workers.png")


def draw_likelihood(results: list[Result], x: str, label: str, path: Path) -> None:
    """Plot the likelihood, with a row for each K and a column for each of its parts."""
    rows = by_topics(results)
    figure, axes = plt.subplots(len(rows), len(PARTS), figsize=(14, 4 * len(rows)), squeeze=False, layout="constrained")
    for row, (topics, group) in zip(axes, rows.items(), strict=True):
        for axis, (part, name) in zip(row, PARTS.items(), strict=True):
            plot(axis, group, field(x, part), sampler_style(results))
            axis.set(title=f"{name}, K = {topics:,}", xscale="log", xlabel=label)
            plain_ticks(axis.xaxis)
        row[0].set_ylabel("log-likelihood, nats per token")
    save(figure, axes[0, 0], path)


def draw_cost(results: list[Result], path: Path) -> None:
    """Plot seconds per iteration and the number of nonzeros of the model, with a row for each K."""
    rows, style = by_topics(results), sampler_style(results)
    figure, axes = plt.subplots(len(rows), 2, figsize=(12, 4 * len(rows)), squeeze=False, layout="constrained")
    for (left, right), (topics, group) in zip(axes, rows.items(), strict=True):
        plot(left, group, iteration_times, style)
        left.set(title=f"time, K = {topics:,}", xlabel="iteration", ylabel="s an iteration", yscale="log")
        plain_ticks(left.yaxis)
        plot(right, group, field("iteration", "nonzeros", y_unit=1e6), style)
        right.set(title=f"model, K = {topics:,}", xlabel="iteration", ylabel="millions of $n_{kw} > 0$", ylim=0)
    save(figure, axes[0, 0], path)


def draw_modes(results: list[Result], path: Path) -> None:
    """Plot rotation, data parallelism with its limit, and the s-error of rotation."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    rotation = [result for result in results if result["mode"] == "rotation"]
    others = [result for result in results if result["mode"] != "rotation"]
    style = mode_style(results)
    for axis, title, group in zip(axes, ("rotation", "data-parallel"), (rotation, others), strict=False):
        plot(axis, group, field("samples_processed", LIKELIHOOD, x_unit=1e6), style)
        axis.set(title=f"{title}, K = {results[0]['topics']:,}", xlabel="millions of tokens sampled")
        axis.sharey(axes[0])
    axes[0].set_ylabel("log-likelihood, nats per token")
    parallel = [result for result in rotation if result["workers"] > 1]
    plot(axes[2], parallel, field("iteration", "s_error"), style)
    axes[2].set(title="rotation: distance of summary rows", xlabel="iteration", ylabel="s-error", ylim=0)
    save(figure, axes[1], path)


def plot(axis: Any, results: Iterable[Result], curve: Curve, style: Style) -> None:
    for result in results:
        x, y = curve(result)
        axis.plot(x, y, marker=".", markersize=4, markevery=-(-len(x) // 20), **style(result))
    axis.grid(alpha=0.3)


def plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis with the numbers 1, 2, 5, 10, ... instead of powers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def save(figure: Any, labelled: Any, path: Path) -> None:
    """Write a figure with the legend of one of its axes."""
    figure.legend(*labelled.get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def field(x: str, y: str, *, x_unit: float = 1.0, y_unit: float = 1.0) -> Curve:
    """Return a function that takes the points of one metric against another from a result."""

    def curve(result: Result) -> tuple[list[float], list[float]]:
        lines = [line for line in result["lines"] if y in line]
        return [line[x] / x_unit for line in lines], [line[y] / y_unit for line in lines]

    return curve


def iteration_times(result: Result) -> tuple[list[float], list[float]]:
    return [line["iteration"] for line in result["lines"]], seconds_per_iteration(result)


def sampler_style(results: list[Result]) -> Style:
    """Return a style with a color for each sampler, the same in all figures, and a line for each kind of proposals."""
    names = list(dict.fromkeys(result["sampler"].partition(":")[0] for result in results))

    def style(result: Result) -> dict[str, Any]:
        name, _, proposal = result["sampler"].partition(":")
        return {"label": result["sampler"], "linestyle": LINES[proposal], **colour(names.index(name))}

    return style


def mode_style(results: list[Result]) -> Style:
    """Return a style with a color for each number of workers; frozen has none."""
    numbers = list(dict.fromkeys(result["workers"] for result in results))

    def style(result: Result) -> dict[str, Any]:
        if result["mode"] == "frozen":
            return {"label": "frozen", "color": "black", "linestyle": "--", "linewidth": 1}
        workers = result["workers"]
        return {"label": f"{workers} worker{'s'[: workers > 1]}", **colour(numbers.index(workers))}

    return style


def colour(number: int) -> dict[str, Any]:
    """Return the color with a given number; the first lines are wider, so that they remain visible below others."""
    return {"color": f"C{number}", "linewidth": max(3.5 - number, 1)}
