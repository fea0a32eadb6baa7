"""`ooc curves`: plot learning curves of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ooc.cli.console import Json, Overwrite, print_json, print_line


def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Directories of the runs to compare.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="File to write: .png, .svg or .pdf.")],
    value: Annotated[
        str | None, typer.Option(metavar="NAME", help="Metric to draw [default: the objective or log-likelihood].")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Plot the learning curves of runs against data seen and against time.

    Example: ooc curves run other-run -o curves.png
    """
    from blocks.files import require_new
    from ooc.runs.curves import plot_runs
    from ooc.runs.run import Run

    require_new(out, overwrite=overwrite)
    name = plot_runs([Run(run) for run in runs], out, value)
    if json:
        print_json({"path": str(out), "value": name, "runs": list(map(str, runs))})
    else:
        print_line(f"{out}: plotted {name} of {', '.join(map(str, runs))}")
