"""Report section of every run: learning curves, time, memory and throughput, from its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ooc.runs.curves import objectives, stages
from samplers.report.charts import chart_data, chart_specification, name_channel, number_channel, thin_points
from samplers.report.section import ReportSection

Lines = Sequence[dict[str, Any]]  # lines of metrics.jsonl
AGAINST = {"iteration": "iterations", "elapsed_s": "seconds", "samples_processed": "samples processed"}
_TITLES = {
    "log_likelihood_per_token": "Log-likelihood per token",
    "doc_log_likelihood_per_token": "Log-likelihood per token, document part",
    "word_log_likelihood_per_token": "Log-likelihood per token, word part",
    "held_out_log_likelihood_per_token": "Held-out log-likelihood per token",
    "rmse": "RMSE",
    "held_out_rmse": "Held-out RMSE",
    "held_out_error": "Held-out error",
    "changed_fraction": "Share of tokens that changed topic",
    "tokens_per_s": "Throughput, tokens/s",
    "samples_per_s": "Throughput, samples/s",
    "elapsed_s": "Elapsed time, s",
    "memory_bytes": "Memory, bytes",
}
_TRIED = "held_out_loss_of_"  # fields of a trial of several degrees of parallelism
_TOGETHER = {"held_out_rmse": "rmse"}  # curves drawn in the chart of another curve
_TABLE_ROWS = 60
_PLAIN = {"title": None, "grid": False, "format": "d"}  # axis of iterations
_SHOWN_LIMIT = 5  # a memory limit above this multiple of the peak is given as text, not drawn


def section(runs: Mapping[str, Lines], planned: int) -> ReportSection:
    """Return the section of a run or of several chains.

    runs: lines of the metrics, keyed by name of the run.
    planned: number of iterations of each run.
    """
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
        "rate": title(_rate(lines)),
        "memory_note": _memory_note(lines),
        "columns": {name: title(name) for name in ("iteration", "elapsed_s", *names, "memory_bytes")},
        "rows": thin_points(lines)[:: -(-len(thin_points(lines)) // _TABLE_ROWS) or 1],
    }
    return ReportSection("training", "Training", data, charts)


def title(name: str) -> str:
    """Return the title of a field of the metrics."""
    if name.startswith(_TRIED):
        return f"Held-out loss, parallelism {name.removeprefix(_TRIED)}"
    return _TITLES.get(name) or name.removesuffix("_s").replace("_", " ").capitalize()


def _tiles(lines: Lines, planned: int) -> list[tuple[str, str]]:
    last = lines[-1]
    tiles = [
        ("iterations", f"{last['iteration']:,} of {planned:,}{', converged' if last.get('converged') else ''}"),
        ("training time", f"{last['elapsed_s']:,.1f} s"),
        ("peak memory", f"{max(line['memory_bytes'] for line in lines) / 1e6:,.0f} MB"),
    ]
    return tiles + [
        (_in_lower_case(title(name)), f"{last[name]:.5g}") for name in objectives(lines)[:1] if name in last
    ]


def _in_lower_case(title: str) -> str:
    """Return a title in the form used within a sentence; acronyms such as RMSE keep their capitals."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def _peak(lines: Lines) -> int:
    return max(int(line["memory_bytes"]) for line in lines)


def _limit(lines: Lines) -> int:
    return max(int(line.get("budget_bytes", 0)) for line in lines)


def _memory_note(lines: Lines) -> str:
    limit = f"; the limit is {_limit(lines) / 1e6:,.0f} MB" if _limit(lines) else ""
    return f"After each iteration{limit}{' (dashed)' if 0 < _limit(lines) <= _SHOWN_LIMIT * _peak(lines) else ''}"


def _rate(lines: Lines) -> str:
    return next((name for name in lines[-1] if name.endswith("_per_s")), "")


def _objective(runs: Mapping[str, Lines], name: str, names: Sequence[str]) -> dict[str, Any] | None:
    beside = [other for other in names if _TOGETHER.get(other) == name]
    positive = all(line[name] > 0 for lines in runs.values() for line in lines if name in line)
    return _curve(runs, [name, *beside], logarithmic=name.endswith("gap") and positive)


def _curve(runs: Mapping[str, Lines], names: Sequence[str], *, logarithmic: bool = False) -> dict[str, Any] | None:
    """Chart fields of the metrics as curves over the axis selected in the page; None if no run has any field."""
    rows = [
        {"value": line[name], "of": _series(run, name, runs, names), **{field: line.get(field) for field in AGAINST}}
        for run, lines in runs.items()
        for name in names
        for line in thin_points([line for line in lines if name in line])
    ]
    if not rows:
        return None
    scale: dict[str, Any] = {"type": "log"} if logarithmic else {"zero": False}
    seen = [number_channel(field, told) for field, told in AGAINST.items()]
    encoding: dict[str, Any] = {
        "x": number_channel("place", "", axis={"title": None, "format": "~s", "grid": False}),
        "y": number_channel(
            "value", "", scale=scale, axis={"title": None, **({"format": "~s"} if _large(rows) else {})}
        ),
        "tooltip": [number_channel("value", title(names[0]), format=",.6~g"), *seen],
    }
    if len({row["of"] for row in rows}) > 1:
        encoding["color"] = name_channel("of", title=None)
        encoding["tooltip"].insert(0, name_channel("of", title=""))
    hover = {"name": "hover", "select": {"type": "point", "on": "pointerover", "clear": "pointerout", "nearest": False}}
    shown = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    points = {
        "mark": {"type": "point", "filled": True, "size": 70, "aria": False},
        "params": [hover],
        "encoding": {"opacity": shown},
    }
    return chart_specification(
        description=f"{title(names[0])} during training",
        data=chart_data(rows),
        params=[{"name": "against", "value": next(iter(AGAINST))}],
        transform=[{"calculate": "datum[against]", "as": "place"}],
        encoding=encoding,
        layer=[{"mark": {"type": "line", "clip": True}}, points],
    )


def _series(run: str, name: str, runs: Mapping[str, Lines], names: Sequence[str]) -> str:
    """Return the name of a curve in the legend."""
    parts = [run] if len(runs) > 1 else []
    return ", ".join([*parts, title(name)] if len(names) > 1 else parts)


def _large(rows: Lines) -> bool:
    return max(abs(row["value"]) for row in rows) >= 1e4


def _stages(lines: Lines) -> dict[str, Any] | None:
    """Chart the time of each iteration as a bar, stacked by stage."""
    rows = [
        {"iteration": line["iteration"], "stage": stage.removesuffix("_s"), "seconds": line[stage]}
        for line in thin_points(lines)
        for stage in stages(lines[-1])
        if any(other.get(stage) for other in lines)
    ]
    if not rows:
        return None
    encoding = {
        "x": number_channel("iteration", "", axis=_PLAIN, scale={"nice": False, "padding": 12}),
        "y": number_channel("seconds", "", axis={"title": None}, stack=True),
        "color": name_channel("stage", title=None, sort=None),
        "tooltip": [
            number_channel("iteration", "iteration"),
            name_channel("stage", title="stage"),
            number_channel("seconds", "seconds"),
        ],
    }
    mark = {"type": "bar", "width": {"expr": f"max(1, 0.8 * width / {max(len(thin_points(lines)), 8)})"}}
    told = "Seconds of each iteration by stage"
    return chart_specification(description=told, data=chart_data(rows), mark=mark, encoding=encoding)


def _memory(lines: Lines) -> dict[str, Any]:
    """Chart the memory after each iteration, and the limit unless it is far above."""
    rows = [
        {
            "iteration": line["iteration"],
            "memory": line["memory_bytes"] / 1e6,
            "budget": line.get("budget_bytes", 0) / 1e6,
        }
        for line in thin_points(lines)
    ]
    axis = number_channel("iteration", "", axis=_PLAIN, scale={"nice": False})
    shown = [number_channel("iteration", "iteration"), number_channel("memory", "memory, MB", format=",.0f")]
    held = {
        "mark": {"type": "area", "line": True, "opacity": 0.75, "fillOpacity": 0.25},
        "encoding": {"y": number_channel("memory", "", axis={"title": None}), "tooltip": shown},
    }
    budget = {
        "transform": [{"filter": "datum.budget > 0"}],
        "mark": {"type": "line", "strokeDash": [5, 4], "color": "var(--series-2)"},
        "encoding": {
            "y": number_channel("budget", ""),
            "tooltip": [number_channel("budget", "memory limit, MB", format=",.0f")],
        },
    }
    layers = [held, budget] if 0 < _limit(lines) <= _SHOWN_LIMIT * _peak(lines) else [held]
    told = "Memory in megabytes after each iteration" + (", and the limit" if len(layers) > 1 else "")
    return chart_specification(description=told, data=chart_data(rows), encoding={"x": axis}, layer=layers)
