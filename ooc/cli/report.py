"""`ooc report`: write a run as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blocks.plurals import size_text
from ooc.cli.console import Json, Overwrite, print_json, print_line
from ooc.cli.results import DataOfRun


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Directory of a run; the report of an unfinished run shows the curves so far."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="HTML file to write [default: RUN.html].")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Add the prevalence of topics by this column of the documents, or by year(COLUMN): see `ooc compare`.",
        ),
    ] = None,
    data: DataOfRun = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a report of a run: one HTML page that works offline.

    The page shows learning curves, and the topics, factors or coefficients to browse. Topics are shown with their
    documents, including the texts if `ooc ingest --keep text` kept them.

    Example: ooc report run -o report.html --by 'year(date)'
    """
    from blocks.outputs import require_free
    from samplers.report.page import write_report

    path = out or Path(f"{run.resolve().name}.html")
    require_free(path, overwrite=overwrite)
    size = write_report(run, path, by=by, data=data)
    print_json({"path": str(path), "bytes": size}) if json else print_line(
        f"{path}: {size_text(size)}; open it in a browser"
    )
