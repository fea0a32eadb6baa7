"""Stochastic gradient descent by rotation and by data parallelism, like figure 6f of the STRADS paper.

    python -m benchmarks.bsp --replicas 1 4 16 64 --output figures

Drawn ratings are factorized with each first step, by rotation and by `--schedule bsp` with more and more replicas of
the columns, whose changes are averaged or summed up at each barrier. Prints the RMSE of the training ratings after the
last iteration, `-` where it went to infinity before, and writes `bsp.json` and `bsp.png`: objective against ratings
processed, a panel for each first step. Rotation is one curve: any number of workers takes the same steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import ratings as drawn
from benchmarks.report import describe_machine, machine, table
from blocks import memory
from blocks.control_groups import core_count
from blocks.errors import WorkFailed
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.matrix import Matrix
from blocks.ratings.request import RatingsRequest
from ooc.plan.memory_plan import make_plan
from ooc.runs.new_run import create_run
from ooc.training import train
from samplers.factorization.gradient_programs import COMBINATIONS
from samplers.factorization.programs import factorization_spec

Result = dict[str, Any]


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.bsp",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--users", type=int, default=30_000)
    add("--items", type=int, default=6_000)
    add("--entries", type=float, default=3e6)
    add("--rank", type=int, default=40)
    add("--regularization", type=float, default=0.03)
    add("--rates", type=float, nargs="+", default=[0.4, 0.1, 0.025])
    add("--replicas", type=int, nargs="+", default=[1, 4, 16, 64])
    add("--iterations", type=int, default=20)
    add("--output", type=Path, default=Path("bsp-benchmark"), help="directory for what is written")
    add("--scratch", type=Path, help="for temporary files")
    return parser.parse_args()


def ingest(args: argparse.Namespace, scratch: Path) -> Matrix:
    """Create a dataset of simulated ratings with as many blocks as the maximum number of replicas."""
    drawn.write_tsv([drawn.draw(args.users, args.items, int(args.entries))], scratch / "ratings.tsv")
    request = RatingsRequest([str(scratch / "ratings.tsv")], str(scratch / "ratings"), grid=max(16, *args.replicas))
    return ingest_ratings(request)


def runs(args: argparse.Namespace, matrix: Matrix, scratch: Path) -> Iterator[Result]:
    """Train with each initial step size, by rotation, and by replicas of each number and way to combine changes."""
    ways: list[tuple[str, str, dict[str, Any]]] = [("rotation", "sgd", {})]
    ways += [
        (f"{count} replicas, {combine}", "bsp", {"replicas": count, "combine": combine})
        for combine in COMBINATIONS
        for count in args.replicas
    ]
    for rate in args.rates:
        for name, method, given in ways:
            print(f"first step {rate:g}, {name} ...", file=sys.stderr, flush=True)
            spec = factorization_spec(
                method,
                {"rank": args.rank, "regularization": args.regularization, "seed": 0},
                {"rate": rate, **given},
            )
            run = create_run(
                scratch / "run", matrix, spec, iterations=args.iterations, evaluate_every=1, overwrite=True
            )
            with suppress(WorkFailed):  # steps that are too long end a training
                train(run, make_plan(matrix, spec.build(matrix), core_count(), memory.available_memory()), quiet=True)
            yield {"way": name, "rate": rate, "lines": run.metrics()}


def describe(found: list[Result]) -> Iterator[str]:
    rates = list(dict.fromkeys(result["rate"] for result in found))
    whole = max(len(result["lines"]) for result in found)
    rows = [["training RMSE by first step", *(f"{rate:g}" for rate in rates)]]
    for way in dict.fromkeys(result["way"] for result in found):
        lines = {result["rate"]: result["lines"] for result in found if result["way"] == way}
        rows.append([way, *(f"{lines[rate][-1]['rmse']:.4f}" if len(lines[rate]) == whole else "-" for rate in rates)])
    yield from table(rows)


def draw(found: list[Result], path: Path) -> None:
    """Plot the objective against the number of ratings processed, with one panel per initial step size."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rates = list(dict.fromkeys(result["rate"] for result in found))
    figure, axes = plt.subplots(1, len(rates), figsize=(6 * len(rates), 4.5), squeeze=False, layout="constrained")
    for axis, rate in zip(axes[0], rates, strict=True):
        for result in (result for result in found if result["rate"] == rate):
            style = {"rotation": "k-"}.get(result["way"], "--" if "mean" in result["way"] else ":")
            processed = [line["samples_processed"] / 1e6 for line in result["lines"]]
            axis.plot(processed, [line["objective"] for line in result["lines"]], style, label=result["way"])
        axis.set(title=f"first step {rate:g}", xlabel="million ratings processed", ylabel="objective", yscale="log")
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    args = options()
    facts = machine()
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        found = list(runs(args, ingest(args, Path(scratch)), Path(scratch)))
    (args.output / "bsp.json").write_text(json.dumps({"machine": facts, "runs": found}) + "\n", encoding="utf-8")
    print("\n".join([*describe_machine(facts), *describe(found)]))
    draw(found, args.output / "bsp.png")


if __name__ == "__main__":
    main()
