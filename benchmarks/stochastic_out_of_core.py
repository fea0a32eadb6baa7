"""Multi-class regression out of core: train under several memory budgets, starting with a cold page cache.

    python -m benchmarks.stochastic_out_of_core --samples 30e6 --memory 350MB 16GB --limit 512MB none

Samples are drawn and stored first. Prints samples a second in the passes but the first and the last, what was held at
most, and how many times the budget the samples are. See `benchmarks.budgets`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import budgets
from benchmarks.report import describe_machine, machine, table
from blocks.memory import parse_size
from blocks.samples.ingestion import BLOCK_ENTRIES, write_rows
from blocks.samples.samples import Samples
from blocks.samples.worker import SampleRows
from ooc.runs.run import Run

_CHUNK = 1 << 16  # samples drawn at a time


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.stochastic_out_of_core",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--samples", type=float, default=5e6)
    add("--columns", type=int, default=50_000)
    add("--entries", type=int, default=75, help="of a sample")
    add("--classes", type=int, default=20)
    add("--passes", type=int, default=4, help="the first and the last do not count")
    add("--parallelism", type=int, default=8)
    budgets.add_options(parser, "350MB", "16GB")
    return parser.parse_args()


def drawn(samples: int, columns: int, entries: int, classes: int) -> Iterator[SampleRows]:
    """Draw samples whose columns have the frequencies of words, with labels determined by the first column."""
    random = np.random.default_rng(0)
    for first in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - first)
        chosen = np.sort((columns * random.random((count, entries)) ** 3).astype(np.uint32), axis=1)
        kept = np.ones(chosen.shape, bool)
        kept[:, 1:] = chosen[:, 1:] != chosen[:, :-1]
        labels = ((chosen[:, -1] + random.integers(0, 2, count)) % classes).astype(float)
        values = random.random(kept.sum(), np.float32)
        yield SampleRows(np.zeros(count), labels, kept.sum(axis=1), chosen[kept], values)


def measure(args: argparse.Namespace, samples: Samples, run: Path, budget: str, limit: str) -> dict[str, Any]:
    """Train under one budget."""
    how = ["--parallelism", str(args.parallelism), "--workers", str(args.workers)]
    how += ["--passes", str(args.passes), "--evaluate-every", str(args.passes)]
    found = budgets.train(["softmax", *how], samples.path, run, budget, limit)
    return found | {"samples_per_s": statistics.median(line["samples_per_s"] for line in Run(run).metrics()[1:-1])}


def describe(found: list[dict[str, Any]], samples: Samples) -> Iterator[str]:
    rows = [["memory limit", "cgroup limit", "samples / limit", "memory, MB", "samples/s", "GB read"]]
    for row in found:
        share, read = samples.data_bytes / parse_size(row["memory"]), row["device_read_bytes"] / 1e9
        rows.append([row["memory"], row["limit"], f"{share:.1f}", f"{row['held_bytes'] / 1e6:,.0f}"])
        rows[-1] += [f"{row['samples_per_s']:,.0f}", f"{read:.2f}"]
    yield from table(rows)
    yield from budgets.compared(found, "samples_per_s")


def main() -> None:
    args = options()
    facts = machine()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as directory:
        scratch, made = Path(directory), {"kind": "drawn", "options": {}}
        rows = drawn(int(args.samples), args.columns, args.entries, args.classes)
        where = str(scratch / "samples")
        samples = write_rows(where, rows, args.columns, made, seed=0, block_entries=BLOCK_ENTRIES, overwrite=False)
        found = [
            measure(args, samples, scratch / f"run-{budget}", budget, limit) for budget, limit in budgets.limited(args)
        ]
        what = f"{samples.rows:,} samples, {samples.entries:,} entries, {args.workers} workers"
        print("\n".join([*describe_machine(facts), what, *describe(found, samples)]))
    budgets.save(args, facts, found)


if __name__ == "__main__":
    main()
