"""`ooc doctor`: report the resources of this machine, and advise how to make training faster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from blocks.plurals import size_text
from ooc.cli.console import Json, print_json


def doctor(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory whose disk is measured: 512 MB are written and 256 MB read."),
    ] = Path(),
    json: Json = False,
) -> None:
    """Examine this machine and advise how to train faster.

    Shows versions, cores, memory and its limits, huge pages and disk speed.

    Examples: ooc doctor

    ooc doctor /mnt/fast --json
    """
    from blocks.files import no_such_file
    from ooc.doctor import advice, examine

    if not directory.is_dir():
        raise no_such_file(directory)
    facts = examine(directory)
    found = advice(facts)
    if json:
        print_json(facts | {"advice": [one._asdict() for one in found]})
        return
    print("\n".join(told(facts)))
    for one in found:
        print("", f"! {one.what}{': ' if one.why else ''}{one.why}", f"  {one.remedy}", sep="\n")
    if not found:
        print("\nno advice: training cannot be made faster by settings of this machine")


def told(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts about the machine as lines of text."""
    from ooc.doctor import EXTRAS

    processor, memory, disk, pages = (facts[name] for name in ("processor", "memory", "disk", "huge_pages"))
    yield f"versions    {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}"
    missing = [
        f"{EXTRAS[name][0]} needs ooc[{EXTRAS[name][1]}]" for name, found in facts["extras"].items() if not found
    ]
    yield f"extras      {'; '.join(missing) or 'all are installed'}"
    yield f"system      {facts['system']}"
    instructions = ", ".join(processor["instructions"]) or "no known vector instructions"
    yield f"processor   {processor['name']} ({instructions}), {processor['usable']} cores, load {processor['load']:.1f}"
    quota = f", limited to {processor['quota']:.2g} by {processor['quota_source']}" if processor["quota"] else ""
    yield f"workers     {processor['workers']} by default{quota}"
    limit = f", limited to {memory['limit'] / 1e9:.1f} GB by {memory['limit_source']}" if memory["limit"] else ""
    yield f"memory      {memory['available'] / 1e9:.1f} of {memory['total'] / 1e9:.1f} GB available{limit}"
    yield f"huge pages  {pages['enabled'] or 'none'}; for shared memory {pages['shmem_enabled'] or 'none'}"
    yield f"files       {facts['open_files']:,} can be open at a time"
    cache = facts["kernel_cache"]
    if cache["path"]:
        size = size_text(cache["bytes"])
        only = "" if cache["writable"] else ", read-only"
        yield f"kernels     {cache['kernels']:,} compiled, {size} in {cache['path']}{only}"
    else:
        yield "kernels     not cached, as no directory is private and writable: every process compiles its own"
    if "error" in disk:
        yield f"disk        {disk['path']}: {disk['error']}"
        return
    speeds = f"reads {disk['reading'] / 1e6:,.0f} MB/s while writing {disk['writing'] / 1e6:,.0f} MB/s"
    yield f"disk        {disk['path']} ({disk['kind'] or 'unknown'}): {speeds}, {disk['free'] / 1e9:,.1f} GB free"
