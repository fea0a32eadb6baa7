"""Tables and figures of the benchmark of the dynamic engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EXCESSES = (1e-2, 1e-3, 1e-4, 1e-5)
Found = dict[str, Any]


def tell_curves(title: str, curves: Found, first: str | None = None) -> Iterator[str]:
    """Print the amount of data and time that each curve needs for several excesses, relative to a first curve."""
    yield f"{title}: passes over the data (seconds) until the excess is"
    yield f"  {'':22}" + "".join(f"{excess:>20.0e}" for excess in EXCESSES) + f"{'passes a second':>18}"
    for name, curve in curves.items():
        cells = [cell(curve, excess) for excess in EXCESSES]
        yield f"  {name:22}" + "".join(f"{told:>20}" for told in cells) + f"{rate(curve):18.2f}"
    for name in (name for name in curves if first and name != first):
        ratios = [passes(curves[name], excess) / passes(curves[first or name], excess) for excess in EXCESSES]
        told = ", ".join(f"{ratio:.1f}" if ratio < float("inf") else "never" for ratio in ratios)
        yield f"  {name} processes {told} times the data of {first}"


def passes(curve: Found, excess: float, what: str = "passes") -> float:
    """Return the number of passes, or seconds, after which the excess was first this small; inf if it never was."""
    return next((at for at, left in zip(curve[what], curve["excess"], strict=True) if left <= excess), float("inf"))


def cell(curve: Found, excess: float) -> str:
    many = passes(curve, excess)
    last = curve["excess"][-1]
    never = "diverged" if not last < 1 else "not reached"
    return never if many == float("inf") else f"{many:.2f} ({passes(curve, excess, 'seconds'):.2f})"


def rate(curve: Found) -> float:
    return curve["passes"][-1] / curve["seconds"][-1]


def tell_schedules(found: Found) -> Iterator[str]:
    for name, curves in found.items():
        yield from tell_curves(f"schedules, {name} (figures 10 and 11)", curves, "priority, check")


def tell_convergence(found: Found) -> Iterator[str]:
    marks = (1, 2, 3, 5, 10)
    yield "parameters that have come to their last value after so many passes (figure 5)"
    yield f"  {'':22}" + "".join(f"{mark:>10}" for mark in marks)
    for name, result in found.items():
        shares = [
            max((s for p, s in zip(result["passes"], result["converged"], strict=True) if p <= mark), default=0.0)
            for mark in marks
        ]
        yield f"  {name:22}" + "".join(f"{share:>10.2%}" for share in shares)


def tell_density(found: Found) -> Iterator[str]:
    yield "million samples a second, by entries of a column (table 4)"
    for name, by_workers in found.items():
        yield f"  {name:30}" + "".join(f"{entries:>10}" for entries in next(iter(by_workers.values())))
        for workers, rates in by_workers.items():
            yield f"  {workers:>20} workers  " + "".join(f"{rate:10.1f}" for rate in rates.values())


TOLD: dict[str, Callable[[Found], Iterator[str]]] = {
    "parallelism": lambda found: tell_curves("updates at once (figure 4)", found, "priority, 32"),
    "convergence": tell_convergence,
    "schedules": tell_schedules,
    "density": tell_density,
    "depth": lambda found: tell_curves("depth of the pipeline (figure 12)", found, "depth 1"),
}


def draw(found: Found, folder: Path) -> None:
    """Draw a figure for each part that has curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    for name in found.keys() & {"parallelism", "schedules", "depth"}:
        draw_curves(found[name] if name == "schedules" else {"lasso": found[name]}, folder / f"{name}.png")
    if "convergence" in found:
        draw_convergence(found["convergence"], folder / "convergence.png")


def draw_curves(groups: Found, path: Path) -> None:
    """Plot, for each group of curves, excess against data, data against time, and excess against time."""
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(groups), 3, figsize=(15, 4.5 * len(groups)), layout="constrained", squeeze=False)
    for (title, curves), panels in zip(groups.items(), rows, strict=True):
        axes = [("passes", "excess"), ("seconds", "passes"), ("seconds", "excess")]
        for panel, (across, up) in zip(panels, axes, strict=True):
            for name, curve in curves.items():
                panel.plot(curve[across], curve[up], label=name)
            panel.set(xlabel=across, ylabel=up, title=title, yscale="log" if up == "excess" else "linear")
            if up == "excess":
                panel.set_ylim(1e-7, 3)
        panels[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_convergence(found: Found, path: Path) -> None:
    """Plot the fraction of converged parameters against passes over the data."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for name, result in found.items():
        panel.plot(result["passes"], result["converged"], label=name)
    panel.axvline(5, color="red", linestyle="dotted")
    panel.set(xlabel="passes over the data", ylabel="share of parameters that have converged")
    panel.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
