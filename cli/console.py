"""What the commands share: options that mean the same everywhere, progress bars, JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes [default: all cores].")]
Memory = Annotated[
    str | None, typer.Option(help="Memory of all processes, as 2GB [default: a quarter of what is free].")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def progress_bar(what: str, total: int | None, unit: str) -> Any:
    """A bar on standard error; nothing if that is not a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=unit, unit_scale=unit == "B", disable=None, leave=False)


def print_json(content: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(content, indent=1))
