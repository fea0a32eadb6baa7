"""Compare matrix factorization by ooc, LIBMF and implicit: ratings per second, and time to the same quality.

    python -m benchmarks.mf --ranks 40 100 1000 --workers 1 2
    python -m benchmarks.mf --ratings jester.txt.gz --ranks 40

Both that use stochastic gradients choose lambda on a validation part, each for itself, and are compared on a test part.
LIBMF has to be built with AVX and OpenMP, as `make bench` does: as pip builds it alone it has neither.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ratings as drawn
from benchmarks.measure import ONE_THREAD, ROOT
from benchmarks.mf_contestants import FactorizationSpec
from benchmarks.report import describe_machine, machine, table
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.request import RatingsRequest

LAMBDAS = (0.01, 0.014, 0.02, 0.028, 0.04, 0.056, 0.08)  # times the deviation of the ratings, with which they scale
IMPLICIT_LAMBDA = 1.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.mf", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--ratings", type=Path, help="lines of user, item and rating, numbers all; default: drawn ones")
    add("--users", type=int, default=138_000, help="of the drawn ones")
    add("--items", type=int, default=27_000, help="of the drawn ones")
    add("--entries", type=float, default=20e6, help="of the drawn ones")
    add("--ranks", type=int, nargs="*", default=[40, 100, 1000])
    add("--implicit-ranks", type=int, nargs="*", default=[64, 128])
    add("--workers", type=int, nargs="+", default=[1, 2])
    add("--iterations", type=int, default=12, help="enough for the peers to get worse again")
    add("--turns", type=int, default=3, help="rounds of everybody in turn; medians count")
    add("--scratch", type=Path, help="for temporary files")
    add("--json", type=Path, help="write the numbers there")
    return parser.parse_args()


class FactorizationBenchmark:
    """The ratings on disk and the contestants."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.args, self.scratch = args, scratch
        whole = drawn.read_tsv(args.ratings) if args.ratings else drawn.draw(args.users, args.items, int(args.entries))
        self.lambdas = [float(f"{value * whole.values.std():.2g}") for value in LAMBDAS]
        for name, part in drawn.cut(whole).items():
            np.savez(scratch / f"{name}.npz", **part._asdict())
            drawn.write_tsv([part], scratch / f"{name}.tsv")
            base = None if name == "train" else str(scratch / "train")
            ingest_ratings(RatingsRequest([str(scratch / f"{name}.tsv")], str(scratch / name), names_from=base))

    def run(self, name: str, rank: int, workers: int, **more: Any) -> dict[str, Any]:
        """Run a contestant in a separate process; returns its record."""
        settings: dict[str, Any] = {"iterations": self.args.iterations, "regularization": IMPLICIT_LAMBDA} | more
        spec = FactorizationSpec(str(self.scratch), rank, workers, **settings)
        spec_file, record_file = self.scratch / "spec.json", self.scratch / "record.json"
        spec_file.write_text(json.dumps(asdict(spec)), encoding="utf-8")
        print(
            f"{name}, rank {rank}, {workers} workers, lambda {spec.regularization:g} ...", file=sys.stderr, flush=True
        )
        command = [sys.executable, "-m", "benchmarks.mf_contestants", name, str(spec_file), str(record_file)]
        threads = {variable: str(workers) for variable in ONE_THREAD}
        subprocess.run(command, cwd=ROOT, env=os.environ | threads, check=True, stdout=subprocess.DEVNULL)
        return json.loads(record_file.read_text(encoding="utf-8"))

    def tuned(self, name: str, rank: int) -> float:
        """Return the best lambda on the validation part."""
        best = {
            value: min(self.run(name, rank, max(self.args.workers), regularization=value, test="validation")["values"])
            for value in self.lambdas
        }
        return min(best, key=lambda value: best[value])

    def gradients(self) -> Iterator[dict[str, Any]]:
        for rank in self.args.ranks:
            chosen = {name: self.tuned(name, rank) for name in ("ooc", "libmf")}
            for workers in self.args.workers:
                yield self.match("rmse", rank, workers, "libmf", {n: {"regularization": v} for n, v in chosen.items()})

    def implicit(self) -> Iterator[dict[str, Any]]:
        for rank in self.args.implicit_ranks:
            for workers in self.args.workers:
                settings: dict[str, dict[str, Any]] = {"ooc": {"options": {"implicit": True}}, "implicit": {}}
                yield self.match("objective", rank, workers, "implicit", settings)

    def match(
        self, value: str, rank: int, workers: int, peer: str, settings: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Run ooc and another program in turn; returns medians of ratings per second and of seconds to the best value
        of the other.
        """
        rounds = [
            {name: self.run(name, rank, workers, **more) for name, more in settings.items()}
            for _ in range(self.args.turns)
        ]
        found: dict[str, Any] = {"value": value, "rank": rank, "workers": workers, "peer": peer}
        for name in settings:
            records = [records[name] for records in rounds]
            speed = [record["ratings"] / statistics.median(record["seconds"]) for record in records]
            reached = [
                seconds_to(record, min(each[peer]["values"])) for record, each in zip(records, rounds, strict=True)
            ]
            found[name] = {
                "ratings_per_s": statistics.median(speed),
                "best": statistics.median(min(record["values"]) for record in records),
                "seconds_to_best_of_peer": statistics.median(reached),
                "regularization": records[0]["regularization"],
            }
        pairs = [
            statistics.median(each[peer]["seconds"]) / statistics.median(each["ooc"]["seconds"]) for each in rounds
        ]
        return found | {"speed_ratio": statistics.median(pairs)}


def seconds_to(record: dict[str, Any], target: float) -> float:
    """Return the seconds until a value was reached; infinity if it was not."""
    passed = np.cumsum(record["seconds"])
    return next((float(s) for s, value in zip(passed, record["values"], strict=True) if value <= target), float("inf"))


def describe(found: list[dict[str, Any]]) -> Iterator[str]:
    rows = [["", "rank", "workers", "lambda", "M ratings/s", "x peer", "best", "s to the peer's best", "time / peer"]]
    for match in found:
        peer = match[match["peer"]]
        for name in ("ooc", match["peer"]):
            mine = match[name]
            ratio = mine["seconds_to_best_of_peer"] / peer["seconds_to_best_of_peer"]
            rows.append(
                [
                    name,
                    str(match["rank"]),
                    str(match["workers"]),
                    f"{mine['regularization']:g}",
                    f"{mine['ratings_per_s'] / 1e6:.2f}",
                    f"{match['speed_ratio'] if name == 'ooc' else 1:.2f}",
                    f"{mine['best']:.6g}",
                    f"{mine['seconds_to_best_of_peer']:.2f}",
                    f"{ratio:.2f}",
                ]
            )
    yield from table(rows)


def main() -> None:
    args = options()
    facts = machine()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        benchmark = FactorizationBenchmark(args, Path(scratch))
        found = [*benchmark.gradients(), *benchmark.implicit()]
    print("\n".join([*describe_machine(facts), *describe(found)]))
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, "matches": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
