"""`ooc report`: a run as a page that one can look at and pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ooc.cli.console import Json, Overwrite, print_json, say


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run; of one that is not done the curves so far.")],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file to be made: .html [default: RUN.html].")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make one HTML page of a run, which needs no network.

    Curves, and its topics or factors to walk through.

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
