"""`ooc clean`: delete temporary files of killed commands, and state that is no longer needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blocks import stderr
from blocks.plurals import size_text
from ooc.cli.console import Json, print_json, print_line


def clean(
    path: Annotated[Path, typer.Argument(help="Directory of a dataset or a run, or one that contains several.")],
    state: Annotated[
        bool,
        typer.Option("--state", help="Also delete the state of finished runs, which can then no longer be resumed."),
    ] = False,
    json: Json = False,
) -> None:
    """Delete temporary files of killed commands.

    Example: ooc clean .
    """
    from ooc.runs.cleanup import clean

    cleaned = clean(path, state=state)
    total = sum(gone.bytes for gone in cleaned.removed)
    for problem in cleaned.skipped:
        stderr.print_warning(f"skipped: {problem}")
    if json:
        removed = [{"path": str(gone.path), "bytes": gone.bytes} for gone in cleaned.removed]
        print_json({"path": str(path), "bytes": total, "removed": removed, "skipped": cleaned.skipped})
        return
    for gone in cleaned.removed:
        print_line(f"{gone.path}: removed, {size_text(gone.bytes)}")
    print_line(f"{path}: {size_text(total)} freed" if cleaned.removed else f"{path}: nothing to delete")
