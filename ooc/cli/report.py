"""`ooc report`: write a run as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ooc.cli.console import Json, Overwrite, print_json, say


def report(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run; an unfinished run gives the curves so far.")
    ],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="HTML file to write [default: RUN.html].")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a report of a run: one HTML page that works offline.

    The page has learning curves, and the topics, factors or coefficients to browse.

    Example: ooc report run -o report.html
    """
    from blocks.outputs import require_free
    from samplers.report.page import write_report

    path = out or Path(f"{run.resolve().name}.html")
    require_free(path, overwrite=overwrite)
    size = write_report(run, path)
    print_json({"path": str(path), "bytes": size}) if json else say(
        f"{path}: {size / 1e6:.1f} MB; open it in a browser"
    )
