"""Matrix factorization out of core: the same training under several memory budgets, from a cold page cache.

    python -m benchmarks.mf_out_of_core --entries 450e6 --rank 100 --memory 350MB 16GB --limit 512MB none

Ratings are drawn and ingested first. Every training is the command a user would give; with --limit all its processes
are in a memory control group (which takes root), and one that held more would be killed. Prints ratings a second in the
iterations but the first and the last, what was held at most, and how many times the budget the ratings are, in the
blocks that are trained on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil

from benchmarks import ratings as drawn
from benchmarks.measure import ROOT, watch
from benchmarks.out_of_core import OOC, control_group, drop_cache, model_digest, start
from benchmarks.report import describe_machine, machine, table
from blocks.memory import parse_size
from blocks.ratings.matrix import Matrix
from ooc.run import Run


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
    add("--users", type=int, default=200_000, help="of the drawn ones")
    add("--items", type=int, default=20_000, help="of the drawn ones")
    add("--entries", type=float, default=450e6, help="of the drawn ones, of which those that come again count once")
    add("--rank", type=int, default=100)
    add("--method", default="sgd")
    add("--iterations", type=int, default=5, help="the first and the last do not count")
    add("--workers", type=int, default=2)
    add("--memory", nargs="+", default=["350MB", "16GB"], help="budgets")
    add("--limit", nargs="*", default=[], help="of the control group, for each budget; none: no group")
    add("--scratch", type=Path, help="for temporary files: on the disk to be measured")
    add("--json", type=Path, help="write the numbers there")
    return parser.parse_args()


def ingest(args: argparse.Namespace, scratch: Path) -> Matrix:
    if args.ratings:
        return Matrix(args.ratings)
    lines = scratch / "ratings.tsv"
    drawn.write_tsv(drawn.stream(args.users, args.items, int(args.entries)), lines)
    command = [*OOC, "ingest", "ratings", str(lines), str(scratch / "ratings")]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lines.unlink()
    return Matrix(scratch / "ratings")


def measure(args: argparse.Namespace, matrix: Matrix, run: Path, budget: str, limit: str) -> dict[str, Any]:
    """Train under a budget."""
    drop_cache(matrix.path)
    how = ["--rank", str(args.rank), "--method", args.method, "--iterations", str(args.iterations)]
    how += ["--workers", str(args.workers), "--memory", budget, "--evaluate-every", str(args.iterations)]
    with nullcontext() if limit == "none" else control_group(parse_size(limit, "--limit")) as group:
        before = psutil.disk_io_counters()
        process = start(["train", "mf", str(matrix.path), str(run), *how], group)
        samples = watch(process, timeout=float("inf"))
        after = psutil.disk_io_counters()
    if process.returncode:
        raise SystemExit(f"--memory {budget}, --limit {limit}: exit code {process.returncode}")
    lines = Run(run).metrics()[1:-1]
    return {
        "memory": budget,
        "limit": limit,
        "ratings_per_s": statistics.median(line["samples_per_s"] for line in lines),
        "page_cache_s": statistics.median(line["page_cache_s"] for line in lines),
        "device_read_bytes": after.read_bytes - before.read_bytes,
        "held_bytes": max(size for _, size in samples),
        "model": model_digest(run),
    }


def describe(found: list[dict[str, Any]], matrix: Matrix) -> Iterator[str]:
    size = sum(entry["bytes"] for entry in matrix.manifest["blocks"])
    rows = [["budget", "group", "ratings / budget", "MB held", "M ratings/s", "s for the page cache", "GB read in all"]]
    for row in found:
        share, held = size / parse_size(row["memory"]), row["held_bytes"] / 1e6
        speed = row["ratings_per_s"] / 1e6
        rows.append([row["memory"], row["limit"], f"{share:.1f}", f"{held:,.0f}", f"{speed:.2f}"])
        rows[-1] += [f"{row['page_cache_s']:.2f}", f"{row['device_read_bytes'] / 1e9:.2f}"]
    yield from table(rows)
    if len(found) > 1:
        yield f"the first has {found[0]['ratings_per_s'] / found[-1]['ratings_per_s']:.0%} of the speed of the last"
        same = len({row["model"] for row in found}) == 1
        yield "the models are the same, byte for byte" if same else "THE MODELS DIFFER"


def main() -> None:
    args = options()
    limits = [*args.limit, *["none"] * (len(args.memory) - len(args.limit))]
    facts = machine()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as directory:
        scratch = Path(directory)
        matrix = ingest(args, scratch)
        found = [
            measure(args, matrix, scratch / f"run-{budget}", budget, limit)
            for budget, limit in zip(args.memory, limits, strict=True)
        ]
        what = f"{matrix.entries:,} ratings, {args.method}, rank {args.rank}, {args.workers} workers"
        print("\n".join([*describe_machine(facts), what, *describe(found, matrix)]))
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, "budgets": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
