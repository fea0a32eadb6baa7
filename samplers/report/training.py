"""How a training went, from the metrics of a run of any kind: its objectives, time, memory and speed as curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ooc.runs.curves import objectives
from samplers.report.charts import category, drawn, quantity, thinned, values
from samplers.report.section import Section

Lines = Sequence[dict[str, Any]]  # of metrics.jsonl
AGAINST = {"iteration": "iterations", "elapsed_s": "seconds", "samples_processed": "samples processed"}
_TITLES = {
    "log_likelihood_per_token": "Log-likelihood per token",
    "doc_log_likelihood_per_token": "Its document part",
    "word_log_likelihood_per_token": "Its word part",
    "held_out_log_likelihood_per_token": "Held-out log-likelihood per token",
    "rmse": "RMSE",
    "held_out_rmse": "Held-out RMSE",
    "changed_fraction": "Changes of topic, over tokens",
    "tokens_per_s": "Tokens a second",
    "samples_per_s": "Samples a second",
}
_TOGETHER = {"held_out_rmse": "rmse"}  # what is drawn in the chart of another
_NO_STAGE = ("elapsed_s", "page_cache_s")  # the second is within sampling
_TABLE_ROWS = 60
_PLAIN = {"title": None, "grid": False, "format": "d"}  # axis of iterations


def section(runs: Mapping[str, Lines], planned: int) -> Section:
    """Of a run, or of several chains. runs: the lines of each by its name. planned: iterations of each."""
    lines = max(runs.values(), key=len)
    names = objectives([line for of_run in runs.values() for line in of_run])
    shown = [name for name in names if _TOGETHER.get(name) not in names]
    curves = {
        **{f"objective-{name}": _objective(runs, name, names) for name in shown},
        "changes": _curve(runs, ["changed_fraction"]),
        "time": _stages(lines),
        "memory": _memory(lines),
        "rate": _curve(runs, [_rate(lines)]),
    }
    charts = {name: spec for name, spec in curves.items() if spec}
    data = {
        "tiles": _tiles(lines, planned),
        "titles": {f"objective-{name}": title(name) for name in shown},
        "against": AGAINST,
        "columns": {name: title(name) for name in ("iteration", "elapsed_s", *names, "memory_bytes")},
        "rows": thinned(lines)[:: -(-len(thinned(lines)) // _TABLE_ROWS) or 1],
    }
    return Section("training", "Training", data, charts)


def title(name: str) -> str:
    """Of a field of the metrics."""
    return _TITLES.get(name) or name.removesuffix("_s").replace("_", " ").capitalize()


def _tiles(lines: Lines, planned: int) -> list[tuple[str, str]]:
    last = lines[-1]
    tiles = [
        ("iterations", f"{last['iteration']:,} of {planned:,}{', converged' if last.get('converged') else ''}"),
        ("training", f"{last['elapsed_s']:,.1f} s"),
        ("memory, at most", f"{max(line['memory_bytes'] for line in lines) / 1e6:,.0f} MB"),
    ]
    return tiles + [(title(name), f"{last[name]:.5g}") for name in objectives(lines)[:1] if name in last]


def _rate(lines: Lines) -> str:
    return next((name for name in lines[-1] if name.endswith("_per_s")), "")


def _objective(runs: Mapping[str, Lines], name: str, names: Sequence[str]) -> dict[str, Any] | None:
    beside = [other for other in names if _TOGETHER.get(other) == name]
    positive = all(line[name] > 0 for lines in runs.values() for line in lines if name in line)
    return _curve(runs, [name, *beside], logarithmic=name.endswith("gap") and positive)


def _curve(runs: Mapping[str, Lines], names: Sequence[str], *, logarithmic: bool = False) -> dict[str, Any] | None:
    """Lines of some fields of the metrics against what the page chooses; None if no run has any."""
    rows = [
        {"value": line[name], "of": _series(run, name, runs, names), **{field: line.get(field) for field in AGAINST}}
        for run, lines in runs.items()
        for name in names
        for line in thinned([line for line in lines if name in line])
    ]
    if not rows:
        return None
    scale: dict[str, Any] = {"type": "log"} if logarithmic else {"zero": False}
    seen = [quantity(field, told) for field, told in AGAINST.items()]
    encoding: dict[str, Any] = {
        "x": quantity("place", "", axis={"title": None, "format": "~s", "grid": False}),
        "y": quantity("value", "", scale=scale, axis={"title": None, **({"format": "~s"} if _large(rows) else {})}),
        "tooltip": [quantity("value", title(names[0]), format=",.6~g"), *seen],
    }
    if len({row["of"] for row in rows}) > 1:
        encoding["color"] = category("of", title=None)
        encoding["tooltip"].insert(0, category("of", title=""))
    hover = {"name": "hover", "select": {"type": "point", "on": "pointerover", "clear": "pointerout", "nearest": False}}
    shown = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    points = {
        "mark": {"type": "point", "filled": True, "size": 70, "aria": False},
        "params": [hover],
        "encoding": {"opacity": shown},
    }
    return drawn(
        description=f"{title(names[0])} as the training went on",
        data=values(rows),
        params=[{"name": "against", "value": next(iter(AGAINST))}],
        transform=[{"calculate": "datum[against]", "as": "place"}],
        encoding=encoding,
        layer=[{"mark": {"type": "line", "clip": True}}, points],
    )


def _series(run: str, name: str, runs: Mapping[str, Lines], names: Sequence[str]) -> str:
    """What a line of a chart is of."""
    parts = [run] if len(runs) > 1 else []
    return ", ".join([*parts, title(name)] if len(names) > 1 else parts)


def _large(rows: Lines) -> bool:
    return max(abs(row["value"]) for row in rows) >= 1e4


def _stages(lines: Lines) -> dict[str, Any] | None:
    """What each iteration's time went into, as a bar for each."""
    stages = [name for name in lines[-1] if name.endswith("_s") and not name.endswith("_per_s")]
    rows = [
        {"iteration": line["iteration"], "stage": stage.removesuffix("_s"), "seconds": line[stage]}
        for line in thinned(lines)
        for stage in stages
        if stage not in _NO_STAGE and any(other.get(stage) for other in lines)
    ]
    if not rows:
        return None
    encoding = {
        "x": quantity("iteration", "", axis=_PLAIN, scale={"nice": False, "padding": 12}),
        "y": quantity("seconds", "", axis={"title": None}, stack=True),
        "color": category("stage", title=None, sort=None),
        "tooltip": [quantity("iteration", "iteration"), category("stage", title="for"), quantity("seconds", "seconds")],
    }
    mark = {"type": "bar", "width": {"expr": f"max(1, 0.8 * width / {max(len(thinned(lines)), 8)})"}}
    told = "Seconds of each iteration by what they went into"
    return drawn(description=told, data=values(rows), mark=mark, encoding=encoding)


def _memory(lines: Lines) -> dict[str, Any]:
    """Memory after each iteration, below the budget."""
    rows = [
        {
            "iteration": line["iteration"],
            "memory": line["memory_bytes"] / 1e6,
            "budget": line.get("budget_bytes", 0) / 1e6,
        }
        for line in thinned(lines)
    ]
    axis = quantity("iteration", "", axis=_PLAIN, scale={"nice": False})
    shown = [quantity("iteration", "iteration"), quantity("memory", "MB held", format=",.0f")]
    held = {
        "mark": {"type": "area", "line": True, "opacity": 0.75, "fillOpacity": 0.25},
        "encoding": {"y": quantity("memory", "", axis={"title": None}), "tooltip": shown},
    }
    budget = {
        "transform": [{"filter": "datum.budget > 0"}],
        "mark": {"type": "line", "strokeDash": [5, 4], "color": "var(--series-2)"},
        "encoding": {"y": quantity("budget", ""), "tooltip": [quantity("budget", "MB, the budget", format=",.0f")]},
    }
    layers = [held, budget] if any(row["budget"] for row in rows) else [held]
    told = "Megabytes held after each iteration" + (", and the budget" if len(layers) > 1 else "")
    return drawn(description=told, data=values(rows), encoding={"x": axis}, layer=layers)
