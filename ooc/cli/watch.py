"""`ooc watch` and `ooc train --watch`: show a run live in a terminal, or as lines on other outputs."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ooc.cli.console import Json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ooc.runs.progress import RunProgress

INTERVAL = 0.5  # seconds between polls
_WIDTH = 32  # characters of a sparkline or bar
_BLOCKS = "▁▂▃▄▅▆▇█"
_OBJECTIVES = {  # label and format of each field, in display order
    "log_likelihood_per_token": ("log-likelihood", "{:.4f}"),
    "held_out_log_likelihood_per_token": ("held-out", "{:.4f}"),
    "objective": ("objective", "{:.6g}"),
    "duality_gap": ("duality gap", "{:.3g}"),
    "rmse": ("RMSE", "{:.4f}"),
    "held_out_rmse": ("held-out RMSE", "{:.4f}"),
}
_COLOURS = {"running": "green", "finished": "blue", "stopped": "red"}


def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run, or of several chains, that is being trained.")
    ],
    json: Json = False,
) -> None:
    """Watch a run in another process until it ends.

    Shows progress, objective, memory, throughput and time left; Ctrl-C ends the view, not the run. If standard
    output is not a terminal, prints a line for each iteration, with --json as JSON.

    Example: ooc watch run
    """
    from blocks.errors import WorkFailed

    if json or not sys.stdout.isatty():
        last = _print_lines(run, sys.stdout, as_json=json)
    else:
        last = _show(run, sys.__stdout__ or sys.stdout)  # the real stream, on which rich can move the cursor
    if last.state == "stopped":
        where = f"stopped at iteration {last.done} of {last.planned}"
        raise WorkFailed(f"{last.path} is not being trained now: it {where}", f"Continue it with: ooc resume {run}")


@contextmanager
def watching(run: Path) -> Iterator[None]:
    """Show the run that this process trains: a thread displays it on standard error as soon as the run exists."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow_own, args=(run, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow_own(run: Path, ended: threading.Event) -> None:
    """Wait until the run is locked again, then show it; training can end before the first poll."""
    from blocks.errors import OocError
    from ooc.runs.progress import current_run

    began, over = time.time(), False
    while not over:
        over = ended.wait(INTERVAL)
        with suppress(OocError, OSError):  # the run does not exist yet, or was removed
            if (current_run(run) / "lock").stat().st_mtime >= began - 1:
                if sys.stderr.isatty():
                    _show(run, sys.__stderr__ or sys.stderr, ended=ended)
                else:
                    _print_lines(run, sys.stderr, ended=ended)
                return


def _polls(run: Path, ended: threading.Event | None) -> Iterator[RunProgress]:
    """Yield the progress every INTERVAL until training ends, and once more for each chain after its end."""
    from ooc.runs.progress import RUNNING, RunFollower, begun_runs, current_run

    followers: dict[Path, RunFollower] = {}
    first = 0  # first chain whose end has not been shown yet
    while True:
        over = ended is not None and ended.is_set()
        paths = begun_runs(run)
        for path in paths[first:]:
            seen = followers.setdefault(path, RunFollower(path)).look()
            yield seen
        first = len(paths) - 1
        if over or (seen.state != RUNNING and current_run(run) == paths[-1] and ended is None):
            return
        ended.wait(INTERVAL) if ended else time.sleep(INTERVAL)


def _show(run: Path, stream: IO[str], ended: threading.Event | None = None) -> RunProgress:
    """Show the progress in a terminal, redrawing it in place.

    Returns the last progress.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False)
    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        for seen in _polls(run, ended):
            live.update(progress_panel(seen, console), refresh=True)
    return seen


def _print_lines(
    run: Path, stream: IO[str], ended: threading.Event | None = None, *, as_json: bool = False
) -> RunProgress:
    """Print a line for each new iteration; returns the last progress."""
    from blocks.json_files import json_text

    told: tuple[Path | None, int] = None, 0
    for seen in _polls(run, ended):
        if told[0] != seen.path:
            told = seen.path, 0
        new = [line for line in seen.lines if line["iteration"] > told[1]]
        for line in new:
            facts = {"run": str(seen.path), "planned": seen.planned, **line}
            print(json_text(facts) if as_json else iteration_line(seen, line), file=stream, flush=True)
        told = seen.path, max(told[1], seen.done)
    return seen


def iteration_line(seen: RunProgress, line: dict[str, Any]) -> str:
    """Return an iteration as a line of text."""
    parts = [f"iteration {line['iteration']} of {seen.planned}", _rate(line), f"{line['memory_bytes'] / 1e6:,.0f} MB"]
    parts += [f"{told} {form.format(line[name])}" for name, (told, form) in _OBJECTIVES.items() if name in line]
    return f"{seen.path}: {', '.join(parts)}"


def progress_panel(seen: RunProgress, console: Console) -> RenderableType:
    """Return the progress of a run as a panel."""
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True, min_width=20)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    share = seen.done / max(seen.planned, 1)
    bar = ProgressBar(1.0, share, width=_WIDTH, complete_style="cyan", finished_style="blue")
    grid.add_row("iteration", f"[bold]{seen.done:,}[/] of {seen.planned:,} ({share:.0%})", bar)
    grid.add_row("elapsed", _duration(seen.lines[-1]["elapsed_s"]) if seen.lines else "starting", _left(seen))
    for row in _objectives(seen.lines):
        grid.add_row(*row)
    if seen.lines:
        rate = next(name for name in seen.lines[-1] if name.endswith("_per_s"))
        grid.add_row("throughput", _rate(seen.lines[-1]), sparkline([line[rate] for line in seen.lines]))
        grid.add_row(*_memory(seen.lines[-1]))
        grid.add_row("stages", _spent(seen.lines[-1]), "")
    colour = _COLOURS[seen.state]
    title = f"[bold]{seen.path}[/] [{colour}]{seen.state}[/]"
    return Panel(grid, title=title, title_align="left", border_style="bright_black", width=min(console.width, 88))


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """Return values as block characters, each for the mean of equally many values; a constant gives a low line."""
    if not values:
        return ""
    edges = [len(values) * place // min(width, len(values)) for place in range(min(width, len(values)) + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    steps = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * steps)] for mean in means)


def _objectives(lines: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for name, (told, form) in _OBJECTIVES.items():
        values = [line[name] for line in lines if math.isfinite(line.get(name, math.nan))]
        if values:
            yield told, form.format(values[-1]), f"[cyan]{sparkline(values)}[/]"


def _memory(line: dict[str, Any]) -> tuple[str, RenderableType, RenderableType]:
    from rich.progress_bar import ProgressBar

    held, budget = line["memory_bytes"], line.get("budget_bytes")
    if not budget:
        return "memory", f"{held / 1e6:,.0f} MB", ""
    style = "yellow" if held < 0.9 * budget else "red"
    bar = ProgressBar(budget, held, width=_WIDTH, complete_style=style, finished_style=style)
    return "memory", f"{held / 1e6:,.0f} of {budget / 1e6:,.0f} MB", bar


def _rate(line: dict[str, Any]) -> str:
    name = next(name for name in line if name.endswith("_per_s"))
    return f"{line[name] / 1e6:,.2f}M {name.removesuffix('_per_s')}/s"


def _spent(line: dict[str, Any]) -> str:
    """Return the stages of an iteration with their shares of its time, in descending order."""
    from ooc.runs.curves import stages

    seconds = {name.removesuffix("_s"): line[name] for name in stages(line)}
    total = sum(seconds.values()) or 1.0
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {value / total:.0%}" for name, value in parts if value >= 0.005 * total)


def _left(seen: RunProgress) -> str:
    if (left := seen.left()) is not None:
        return f"{_duration(left)} left"
    return ""


def _duration(seconds: float) -> str:
    """Return a number of seconds formatted as 1:02:03."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
