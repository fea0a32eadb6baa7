"""Matrix factorization out of core: train under several memory budgets, starting with a cold page cache.

    python -m benchmarks.mf_out_of_core --entries 600e6 --rank 100 --memory 310MB 16GB --limit 450MB none

Ratings are drawn and ingested first. Prints ratings a second in the iterations but the first and the last, what was
held at most, and how many times the budget the ratings are, in the blocks that are trained on. See
`benchmarks.budgets`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import budgets
from benchmarks import ratings as drawn
from benchmarks.measure import ROOT
from benchmarks.report import describe_machine, machine, table
from blocks.memory import parse_size
from blocks.ratings.matrix import Matrix
from ooc.runs.run import Run


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.mf_out_of_core",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ratings", type=Path, help="a matrix made by ooc ingest; default: drawn ones")
    add("--users", type=int, default=1_000_000, help="of the drawn ones")
    add("--items", type=int, default=20_000, help="of the drawn ones")
    add("--entries", type=float, default=600e6, help="of the drawn ones, of which those that come again count once")
    add("--rank", type=int, default=100)
    add("--method", default="sgd")
    add("--iterations", type=int, default=5, help="the first and the last do not count")
    budgets.add_options(parser, "310MB", "16GB")
    return parser.parse_args()


def ingest(args: argparse.Namespace, scratch: Path) -> Matrix:
    if args.ratings:
        return Matrix(args.ratings)
    lines = scratch / "ratings.tsv"
    drawn.write_tsv(drawn.stream(args.users, args.items, int(args.entries)), lines)
    command = [*budgets.OOC, "ingest", "ratings", str(lines), str(scratch / "ratings")]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lines.unlink()
    return Matrix(scratch / "ratings")


def measure(args: argparse.Namespace, matrix: Matrix, run: Path, budget: str, limit: str) -> dict[str, Any]:
    """Train under one budget."""
    how = ["--rank", str(args.rank), "--method", args.method, "--workers", str(args.workers)]
    how += ["--iterations", str(args.iterations), "--evaluate-every", str(args.iterations)]
    found = budgets.train(["mf", *how], matrix.path, run, budget, limit)
    lines = Run(run).metrics()[1:-1]
    medians = {name: statistics.median(line[name] for line in lines) for name in ("samples_per_s", "page_cache_s")}
    return found | medians


def describe(found: list[dict[str, Any]], matrix: Matrix) -> Iterator[str]:
    size = sum(entry["bytes"] for entry in matrix.manifest["blocks"])
    rows = [["memory limit", "cgroup limit", "ratings / limit", "memory, MB", "M ratings/s", "paging, s", "GB read"]]
    for row in found:
        share, held = size / parse_size(row["memory"]), row["held_bytes"] / 1e6
        speed = row["samples_per_s"] / 1e6
        rows.append([row["memory"], row["limit"], f"{share:.1f}", f"{held:,.0f}", f"{speed:.2f}"])
        rows[-1] += [f"{row['page_cache_s']:.2f}", f"{row['device_read_bytes'] / 1e9:.2f}"]
    yield from table(rows)
    yield from budgets.compared(found, "samples_per_s")


def main() -> None:
    args = options()
    facts = machine()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as directory:
        scratch = Path(directory)
        matrix = ingest(args, scratch)
        found = [
            measure(args, matrix, scratch / f"run-{budget}", budget, limit) for budget, limit in budgets.limited(args)
        ]
        what = f"{matrix.entries:,} ratings, {args.method}, rank {args.rank}, {args.workers} workers"
        print("\n".join([*describe_machine(facts), what, *describe(found, matrix)]))
    budgets.save(args, facts, found)


if __name__ == "__main__":
    main()
