"""Train under several memory budgets, starting with a cold page cache, and measure memory and disk transfers.

Every run is started with the command that a user would type. With --limit, its processes are in a memory
control group, which requires root and kills a process that exceeds the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import ROOT, watch
from blocks.memory import parse_size
from ooc.plan.disk_speed import drop_page_cache

OOC = [sys.executable, "-m", "ooc"]


def add_options(parser: argparse.ArgumentParser, *budgets: str) -> None:
    """Add the options for memory budgets.

    budgets: default budgets.
    """
    add = parser.add_argument
    add("--workers", type=int, default=2)
    add("--memory", nargs="+", default=list(budgets), help="budgets")
    add("--limit", nargs="*", default=[], help="of the control group, for each budget; none: no group")
    add("--scratch", type=Path, help="for temporary files: on the disk to be measured")
    add("--json", type=Path, help="write the numbers there")


def limited(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield each budget with the limit of its control group, or "none"."""
    limits = [*args.limit, *["none"] * (len(args.memory) - len(args.limit))]
    return zip(args.memory, limits, strict=True)


def drop_cache(directory: Path) -> None:
    """Drop all files below a directory from the page cache."""
    for file in directory.rglob("*"):
        if file.is_file():
            drop_page_cache(file)


def start(command: list[str], group: Path | None = None) -> subprocess.Popen[bytes]:
    """Start an ooc command, in a control group if one is given."""
    into = f"echo $$ > {group}/cgroup.procs && " if group else ""
    shell = ["sh", "-c", f'{into}exec "$@"', "sh", *OOC, *command]
    return subprocess.Popen(shell, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)


def train(command: list[str], data: Path, run: Path, budget: str, limit: str) -> dict[str, Any]:
    """Train with a cold page cache.

    command: model and options, as in `ooc train`, without data and run.

    Returns the budget, the limit, peak memory, bytes that the disk moved, and the checksums of the model's files.
    """
    drop_cache(data)
    kind, *how = command
    with nullcontext() if limit == "none" else _control_group(parse_size(limit, "--limit")) as group:
        before = psutil.disk_io_counters()
        process = start(["train", kind, str(data), str(run), *how, "--memory", budget, "--overwrite"], group)
        samples = watch(process, timeout=float("inf"))
        after = psutil.disk_io_counters()
    if process.returncode:
        raise SystemExit(f"--memory {budget}, --limit {limit}: exit code {process.returncode}")
    return {
        "memory": budget,
        "limit": limit,
        "held_bytes": max(size for _, size in samples),
        "device_read_bytes": after.read_bytes - before.read_bytes,
        "device_written_bytes": after.write_bytes - before.write_bytes,
        "model": json.loads((run / "model" / "model.json").read_text(encoding="utf-8"))["files"],  # and checksums
    }


@contextmanager
def _control_group(limit: int) -> Iterator[Path]:
    """Yield the directory of a memory control group (version 2 or 1) with a limit in bytes."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, name = (first, "memory.limit_in_bytes") if first.is_dir() else (second, "memory.max")
    group = root / f"ooc-benchmark-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(limit))
    except OSError as error:
        raise SystemExit(f"--limit: no control group could be made in {root}: {error.strerror}") from None
    try:
        yield group
    finally:
        group.rmdir()


def compared(found: list[dict[str, Any]], speed: str) -> Iterator[str]:
    """Yield sentences that compare the first budget with the last.

    speed: name of the field with the amount processed per second.
    """
    if len(found) > 1:
        yield f"the first has {found[0][speed] / found[-1][speed]:.0%} of the speed of the last"
        same = all(row["model"] == found[0]["model"] for row in found)
        yield "the models are the same, byte for byte" if same else "THE MODELS DIFFER"


def save(args: argparse.Namespace, facts: dict[str, Any], found: list[dict[str, Any]], **more: Any) -> None:
    """Write the results to the requested file."""
    if args.json:
        whole = {"machine": facts, "budgets": found, **more}
        args.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
