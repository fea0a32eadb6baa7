"""Sparse regression out of core: the same path of a Lasso under several memory budgets, from a cold page cache.

    python -m benchmarks.regression_out_of_core --columns 1e6 --entries 375 --memory 768MB 8GB --limit 768MB none
    python -m benchmarks.regression_out_of_core --rows 1e5 --columns 1e7 --entries 100 --memory 4GB --limit 4GB

Every run is the command a user would give. With --limit all its memory, that of the page cache with it, is bounded by a
control group (which takes root). Beside the time stands how often a block was read on the mean, by what the solver has
asked for, and what the device has read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.measure import watch
from benchmarks.out_of_core import control_group, drop_cache, start
from benchmarks.report import describe_machine, machine, table
from blocks.design.design import SPARSE, Design, SparseBlock
from blocks.design.moments import moments
from blocks.design.writer import finish_design, write_block, write_index
from blocks.files import publish_directory
from blocks.memory import parse_size
from ooc.run import Run

_BLOCK = 32 << 20  # bytes
_ACTIVE = 100
_NOISE = 0.5  # standard deviation, relative to that of the signal


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.regression_out_of_core", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--rows", type=float, default=50_000)
    add("--columns", type=float, default=1e6)
    add("--entries", type=int, default=375, help="of a column")
    add("--path", type=int, default=100)
    add("--tolerance", type=float, default=1e-4)
    add("--workers", type=int, default=2)
    add("--memory", nargs="+", default=["768MB", "8GB"], help="budgets")
    add("--limit", nargs="*", default=[], help="of the control group, for each budget; none: no group")
    add("--scratch", type=Path, help="for temporary files: on the disk to be measured")
    add("--json", type=Path, help="write the numbers there")
    return parser.parse_args()


def write_design(path: Path, rows: int, columns: int, entries: int) -> Design:
    """Columns of normal numbers, one in each of so many bands of rows; y is of some of them, and noise."""
    random, width = np.random.default_rng(0), max(_BLOCK // (8 * entries), 1)
    active = random.choice(columns, _ACTIVE, replace=False).tolist()
    weights = dict(zip(active, random.standard_normal(_ACTIVE), strict=True))
    signal, written = np.zeros(rows), []
    bounds = np.append(np.arange(0, columns, width), columns)
    with publish_directory(path) as root, tempfile.TemporaryDirectory() as spill:
        (root / "blocks").mkdir()
        files = [Path(spill) / str(number) for number in range(bounds.size - 1)]
        for number, file in enumerate(files):
            first, last = bounds[number : number + 2].tolist()
            block = _block(random, rows, last - first, entries)
            for column in range(first, last):
                if column in weights:
                    mine = slice(*block.offsets[column - first : column - first + 2])
                    signal[block.rows[mine]] += weights[column] * block.values[mine]
            written.append(write_block(root, number, block))
            file.write_bytes(np.array(moments(block, rows)).data)
        y = signal + _NOISE * signal.std() * random.standard_normal(rows)
        index = write_index(root, y, columns, files, bounds)
        facts: dict[str, Any] = {"rows": rows, "labels": True, "form": SPARSE, "first_column": 0}
        finish_design(root, **facts, index=index, blocks=written, texts={}, made={"command": "benchmark"})
    return Design(path)


def _block(random: np.random.Generator, rows: int, width: int, entries: int) -> SparseBlock:
    band = rows // entries
    bands = (band * np.arange(entries)).astype(np.uint32)
    places = random.integers(0, band, (width, entries), np.uint32) + bands
    values = random.standard_normal((width, entries), np.float32)
    return SparseBlock(np.arange(width + 1) * entries, places.ravel(), values.ravel())


def measure(design: Design, run: Path, budget: str, limit: str, args: argparse.Namespace) -> dict[str, Any]:
    """Follow the path under a budget."""
    drop_cache(design.path)
    how = ["--path", str(args.path), "--tolerance", str(args.tolerance), "--no-standardize"]
    where = ["--workers", str(args.workers), "--memory", budget, "--quiet", "--overwrite"]
    with nullcontext() if limit == "none" else control_group(parse_size(limit, "--limit")) as group:
        before = psutil.disk_io_counters()
        process = start(["train", "lasso", str(design.path), str(run), *how, *where], group)
        samples = watch(process, timeout=float("inf"))
        after = psutil.disk_io_counters()
    if process.returncode:
        raise SystemExit(f"--memory {budget}, --limit {limit}: exit code {process.returncode}")
    last = Run(run).metrics()[-1]
    return {
        "memory": budget,
        "limit": limit,
        "seconds": last["elapsed_s"],
        "passes": last["bytes_read"] / (8 * design.entries),
        "nonzeros": last["nonzeros"],
        "held_bytes": max(size for _, size in samples),
        "device_read_bytes": after.read_bytes - before.read_bytes,
        "model": json.loads((run / "model" / "model.json").read_text(encoding="utf-8"))["files"],
    }


def describe(found: list[dict[str, Any]]) -> Iterator[str]:
    rows = [["budget", "group", "seconds", "passes", "not 0", "MB held", "GB of the device"]]
    for row in found:
        numbers = f"{row['seconds']:.1f}", f"{row['passes']:.1f}", f"{row['nonzeros']:,}"
        sizes = f"{row['held_bytes'] / 1e6:,.0f}", f"{row['device_read_bytes'] / 1e9:.2f}"
        rows.append([row["memory"], row["limit"], *numbers, *sizes])
    yield from table(rows)
    if len(found) > 1:
        same = all(row["model"] == found[0]["model"] for row in found)
        yield "the models are the same, byte for byte" if same else "THE MODELS DIFFER"
        ratio = found[0]["seconds"] / found[-1]["seconds"]
        yield f"under the first budget it took {ratio:.2f} times as long as under the last"


def main() -> None:
    args, facts = options(), machine()
    limits = [*args.limit, *["none"] * (len(args.memory) - len(args.limit))]
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as directory:
        design = write_design(Path(directory) / "design", round(args.rows), round(args.columns), args.entries)
        found = [
            measure(design, Path(directory) / f"run-{budget}", budget, limit, args)
            for budget, limit in zip(args.memory, limits, strict=True)
        ]
    print("\n".join(describe_machine(facts)))
    print(f"{design.rows:,} x {design.columns:,}, {8 * design.entries / 1e9:.1f} GB, {args.workers} workers")
    print("\n".join(describe(found)))
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, "budgets": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
