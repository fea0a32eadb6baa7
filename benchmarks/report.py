"""Report of the LDA benchmark: ratios, tables, curves."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

REFERENCE = "tomotopy"
PACKAGES = ("ooc", "numpy", "numba", "tomotopy", "gensim", "scikit-learn")

Result = dict[str, Any]


def machine() -> dict[str, Any]:
    """Return the properties of this machine that affect the results."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def seconds_to(result: Result, target: float) -> float | None:
    """Return the training seconds to a held-out likelihood, interpolated between checkpoints; None if it was not
    reached.
    """
    before = None
    for point in result["checkpoints"]:
        if point["likelihood"] >= target:
            if before is None or before["likelihood"] == target:
                return float(point["seconds"])
            share = (target - before["likelihood"]) / (point["likelihood"] - before["likelihood"])
            return float(before["seconds"] + share * (point["seconds"] - before["seconds"]))
        before = point
    return None


def compare(results: list[Result]) -> None:
    """Add to each result its ratios to the reference with the same topics and workers, and to one worker."""
    for result in results:
        same = [other for other in results if other["topics"] == result["topics"]]
        for reference in same:
            if reference["contestant"] == REFERENCE and reference["workers"] == result["workers"]:
                result.update(_against(result, reference))
        for single in same:
            if single["contestant"] == result["contestant"] and single["workers"] == 1 < result["workers"]:
                turns = result.get("speedups") or [result["tokens_per_s"] / single["tokens_per_s"]]
                result["speedup_over_one_worker"] = statistics.median(turns)


def _against(result: Result, reference: Result) -> Result:
    """Return the ratios to the reference; contestants that trained on fewer documents are only compared by speed."""
    ratios = {"tokens_per_s_ratio": result["tokens_per_s"] / reference["tokens_per_s"]}
    if result["subset"]:
        return ratios
    target = reference["checkpoints"][-1]["likelihood"]
    reached = seconds_to(result, target)
    return ratios | {
        "memory_ratio": result["memory_bytes"] / reference["memory_bytes"],
        "target_likelihood": target,
        "seconds_to_target": reached,
        "times_sooner": reference["checkpoints"][-1]["seconds"] / reached if reached else None,
    }


def describe_machine(facts: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {facts[name]}" for name in PACKAGES if name in facts)
    return [
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_bytes'] / 1e9:.0f} GB; "
        f"load before the run {facts['load_before']:.1f}",
        f"{facts['system']}, Python {facts['python']}; {versions}",
    ]


def describe(facts: dict[str, Any], settings: dict[str, Any], results: list[Result]) -> str:
    """Return the report as text."""
    lines = [
        *describe_machine(facts),
        f"{settings['corpus']}: {settings['documents']:,} documents, {settings['tokens']:,} tokens, "
        f"{settings['vocabulary']:,} words; {settings['held_out_documents']:,} more documents held out",
    ]
    for topics in dict.fromkeys(result["topics"] for result in results):
        of_topics = [result for result in results if result["topics"] == topics]
        priors = f"alpha {of_topics[0]['alpha']:g}, beta {of_topics[0]['beta']:g}"
        lines += ["", f"K = {topics}, {priors}", "", *table(_speed_rows(of_topics))]
        lines += [
            "",
            "held-out log-likelihood per token by the fold-in of ooc evaluate and by EM, and training seconds"
            " (contestant, workers)",
            "",
        ]
        whole = [result for result in of_topics if not result["subset"]]
        lines += [*table(_likelihood_rows(whole)), *map(_subset_line, (r for r in of_topics if r["subset"]))]
    return "\n".join([*lines, "", *_remarks(results)])


def _speed_rows(results: list[Result]) -> Iterator[list[str]]:
    against = f"x {REFERENCE}"
    yield [
        "",
        "workers",
        "M tokens/s",
        against,
        "x 1 worker",
        "memory in training, MB",
        against,
        "memory in all, MB",
        "target",
        "seconds to target",
        "times sooner",
    ]
    for result in results:
        yield [
            _name(result),
            str(result["workers"]),
            f"{result['tokens_per_s'] / 1e6:.3f}",
            _number(result.get("tokens_per_s_ratio"), ".2f"),
            _number(result.get("speedup_over_one_worker"), ".2f"),
            f"{result['memory_bytes'] / 1e6:,.0f}",
            _number(result.get("memory_ratio"), ".2f"),
            f"{result['memory_whole_bytes'] / 1e6:,.0f}",
            _number(result.get("target_likelihood"), ".4f"),
            _number(result.get("seconds_to_target"), ".1f"),
            _number(result.get("times_sooner"), ".2f"),
        ]


def _likelihood_rows(results: list[Result]) -> Iterator[list[str]]:
    """Return a row for each checkpoint, with a column for each contestant."""
    iterations = sorted({point["iteration"] for result in results for point in result["checkpoints"]})
    yield ["iterations", *(f"{_name(result)}, {result['workers']}" for result in results)]
    for iteration in iterations:
        at = [next((p for p in result["checkpoints"] if p["iteration"] == iteration), None) for result in results]
        yield [
            str(iteration),
            *(f"{p['likelihood']:.4f} {p['likelihood_by_em']:.4f} {p['seconds']:7.1f}s" if p else "-" for p in at),
        ]


def _name(result: Result) -> str:
    return f"{result['contestant']} *" if result["subset"] else str(result["contestant"])


def _whose(result: Result) -> str:
    return f"{result['contestant']}, K = {result['topics']}, {result['workers']} workers"


def _subset_line(result: Result) -> str:
    last = result["checkpoints"][-1]
    return (
        f"{_name(result)}, {result['workers']}: {last['likelihood']:.4f} after {last['iteration']} passes over "
        f"{result['documents']:,} documents, {last['seconds']:.1f}s"
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def table(rows: Iterable[list[str]]) -> list[str]:
    """Format rows of cells as lines of aligned text."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _remarks(results: list[Result]) -> Iterator[str]:
    yield from (
        "Tokens/s is the median over iterations (of gensim and scikit-learn the mean over passes). Memory is the peak",
        "of Pss_Anon + Pss_Shmem of the process tree while it trains; `memory in all` includes loading and saving.",
        f"The target is the likelihood that {REFERENCE} ends with at the same workers; the seconds are interpolated.",
        "`x 1 worker` of ooc is the median of the short runs in turn below, if there are any.",
    )
    subsets = sorted(
        {(result["documents"], result["tokens"], result["topics"]) for result in results if result["subset"]}
    )
    for documents, tokens, topics in subsets:
        yield (
            f"* At K = {topics} trained on {documents:,} documents only ({tokens:,} tokens), as it is so slow: its "
            "likelihood and memory do not compare."
        )
    for result in results:
        if result["note"]:
            yield f"{_whose(result)}: {result['note']}"
        if turns := result.get("speedups"):
            yield f"{_whose(result)} against one, in turn: " + ", ".join(f"{turn:.2f}" for turn in turns)
        if turns := result.get("kept"):
            told = ", ".join(f"{turn:.1%}" for turn in turns)
            yield f"{_whose(result)}, tokens/s against the fewest topics, in turn: {told}"


def plot(results: list[Result], path: Path) -> None:
    """Plot held-out likelihood against training seconds, with a column for each K and a row for each worker count."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    topics = list(dict.fromkeys(result["topics"] for result in results))
    workers = list(dict.fromkeys(result["workers"] for result in results))
    figure, axes = plt.subplots(
        len(workers), len(topics), figsize=(6 * len(topics), 4 * len(workers)), squeeze=False, layout="constrained"
    )
    for row, column in np.ndindex(len(workers), len(topics)):
        axis: Any = axes[row, column]
        axis.set(title=f"K = {topics[column]}, {workers[row]} workers", xscale="log", xlabel="training seconds")
        axis.set_ylabel("held-out log-likelihood per token")
        axis.grid(alpha=0.3)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")  # where a decade or less is shown these would run into each other
        for result in results:
            if (result["topics"], result["workers"]) == (topics[column], workers[row]) and not result["subset"]:
                points = result["checkpoints"]
                axis.plot(
                    [point["seconds"] for point in points],
                    [point["likelihood"] for point in points],
                    marker="o",
                    label=result["contestant"],
                )
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
