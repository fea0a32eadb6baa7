"""Sparse regression out of core: solve the same Lasso path under several memory budgets, starting with a cold page
cache.

    python -m benchmarks.regression_out_of_core --columns 2e6 --entries 375 --memory 1.5GB 8GB --limit 2GB none
    python -m benchmarks.regression_out_of_core --rows 1e5 --columns 1e7 --entries 100 --memory 4GB --limit 4GB

Beside the time stands how often a block was read on the mean, by what the solver has asked for, and what the device has
read. See `benchmarks.budgets`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import budgets
from benchmarks.report import describe_machine, machine, table
from blocks.design.design import SPARSE, Design, SparseDesignBlock
from blocks.design.moments import block_moments
from blocks.design.writer import finish_design, write_block, write_index
from blocks.files import publish_directory
from ooc.runs.run import Run

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
    budgets.add_options(parser, "768MB", "8GB")
    return parser.parse_args()


def write_design(path: Path, rows: int, columns: int, entries: int) -> Design:
    """Write a design with normal entries, one in each band of rows of each column, and y, a sum of some columns plus
    noise.
    """
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
            file.write_bytes(np.array(block_moments(block, rows)).data)
        y = signal + _NOISE * signal.std() * random.standard_normal(rows)
        index = write_index(root, y, columns, files, bounds, None)
        facts: dict[str, Any] = {"rows": rows, "labels": True, "form": SPARSE, "first_column": 0}
        finish_design(root, **facts, index=index, blocks=written, texts={}, made={"command": "benchmark"})
    return Design(path)


def _block(random: np.random.Generator, rows: int, width: int, entries: int) -> SparseDesignBlock:
    band = rows // entries
    bands = (band * np.arange(entries)).astype(np.uint32)
    places = random.integers(0, band, (width, entries), np.uint32) + bands
    values = random.standard_normal((width, entries), np.float32)
    return SparseDesignBlock(np.arange(width + 1) * entries, places.ravel(), values.ravel())


def measure(design: Design, run: Path, budget: str, limit: str, args: argparse.Namespace) -> dict[str, Any]:
    """Solve the path under one budget."""
    how = ["--path", str(args.path), "--tolerance", str(args.tolerance), "--no-standardize"]
    how += ["--workers", str(args.workers), "--quiet"]
    found = budgets.train(["lasso", *how], design.path, run, budget, limit)
    last = Run(run).metrics()[-1]
    speed = {"seconds": last["elapsed_s"], "paths_per_s": 1 / last["elapsed_s"]}
    return found | speed | {"passes": last["bytes_read"] / (8 * design.entries), "nonzeros": last["nonzeros"]}


def describe(found: list[dict[str, Any]]) -> Iterator[str]:
    rows = [["memory limit", "cgroup limit", "seconds", "passes", "nonzeros", "memory, MB", "GB read"]]
    for row in found:
        numbers = f"{row['seconds']:.1f}", f"{row['passes']:.1f}", f"{row['nonzeros']:,}"
        sizes = f"{row['held_bytes'] / 1e6:,.0f}", f"{row['device_read_bytes'] / 1e9:.2f}"
        rows.append([row["memory"], row["limit"], *numbers, *sizes])
    yield from table(rows)
    yield from budgets.compared(found, "paths_per_s")


def main() -> None:
    args, facts = options(), machine()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as directory:
        design = write_design(Path(directory) / "design", round(args.rows), round(args.columns), args.entries)
        found = [
            measure(design, Path(directory) / f"run-{budget}", budget, limit, args)
            for budget, limit in budgets.limited(args)
        ]
    print("\n".join(describe_machine(facts)))
    print(f"{design.rows:,} x {design.columns:,}, {8 * design.entries / 1e9:.1f} GB, {args.workers} workers")
    print("\n".join(describe(found)))
    budgets.save(args, facts, found)


if __name__ == "__main__":
    main()
