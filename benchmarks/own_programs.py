"""Speed of user programs beside plain loops: NMF, k-means and a factorization machine of examples/, with one worker.

    python -m benchmarks.own_programs --entries 4e6

A plain loop calls the kernels of the example on arrays in memory; the factorization machine, whose `process` the engine
compiles, is written again as a plain kernel. Prints the processor time of an iteration of each, for ooc that of all its
processes, and the speed of ooc relative to the plain loop. The first iterations do not count, and with them starting
and compiling. Trainings of the two alternate, and medians are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import psutil

from benchmarks.report import describe_machine, machine, table
from blocks import Matrix, Samples
from ooc import fit

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
sys.path.append(str(EXAMPLES))

FEW = 2  # iterations that do not count
RANK = 10


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.own_programs",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--entries", type=float, default=4e6)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    return parser.parse_args()


def used() -> float:
    """Return the processor seconds of this process and of the processes below it."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def made(directory: Path, entries: int) -> tuple[Matrix, Samples]:
    """Return ratings of 20 times as many users as items, and samples of 30 entries."""
    random = np.random.default_rng(0)
    users = max(entries // 200, 100)
    with Matrix.create(directory / "ratings") as writer:
        for first in range(0, entries, 1 << 20):
            count = min(1 << 20, entries - first)
            of_users, items = random.integers(0, users, count), random.integers(0, users // 20, count)
            writer.add(of_users, items, random.integers(1, 6, count))
    with Samples.create(directory / "samples") as writer:
        for first in range(0, entries // 30, 1 << 15):
            count = min(1 << 15, entries // 30 - first)
            columns = np.cumsum(random.integers(1, 60, (count, 30)), axis=1).reshape(-1)
            rows = random.random(columns.size), columns, np.arange(count + 1) * 30
            writer.add(rows, random.normal(size=count))
    return Matrix(directory / "ratings"), Samples(directory / "samples")


def whole(pieces: list[Any], others: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join blocks or slices to one sparse matrix."""
    lengths = np.concatenate([np.diff(piece.offsets) for piece in pieces])
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    entries, values = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in (others, "values"))
    return offsets, entries, values


def plain_nmf(matrix: Matrix) -> Callable[[int], None]:
    from nmf import descend

    rows, columns = sides(matrix)
    random = np.random.default_rng(0)

    def run(iterations: int) -> None:
        left, right = random.random((rows[0].size - 1, RANK)), random.random((columns[0].size - 1, RANK))
        for _ in range(iterations):
            descend(*rows, right, right.T @ right, left)
            descend(*columns, left, left.T @ left, right)

    return run


def plain_kmeans(matrix: Matrix) -> Callable[[int], None]:
    from kmeans import assign, average

    rows, columns = sides(matrix)
    random = np.random.default_rng(0)

    def run(iterations: int) -> None:
        centres, assigned = random.random((columns[0].size - 1, RANK)), np.zeros(rows[0].size - 1, np.int64)
        for _ in range(iterations):
            assign(*rows, centres, np.square(centres).sum(axis=0), assigned)
            average(*columns, assigned, np.bincount(assigned, minlength=RANK), centres)

    return run


def sides(matrix: Matrix) -> tuple[Any, Any]:
    """Return the rows and the columns of a matrix."""
    blocks = [matrix.block(number) for number in range(matrix.block_count)]
    return whole(blocks, "columns"), whole([matrix.slice(number) for number in range(matrix.slice_count)], "rows")


@numba.njit(nogil=True, cache=True)
def descend_pairs(offsets, columns, values, labels, w0, w, v, sums, rate, penalty):
    """Run one pass of a factorization machine, as examples/fm.py does. Changed: w0 float64 (1,), w (p,), v (p, R)."""
    for row in range(labels.size):
        found = w0[0]
        sums[:] = 0
        for entry in range(offsets[row], offsets[row + 1]):
            value, column = values[entry], columns[entry]
            found += w[column] * value
            for k in range(sums.size):
                sums[k] += v[column, k] * value
                found -= 0.5 * (v[column, k] * value) ** 2
        for k in range(sums.size):
            found += 0.5 * sums[k] ** 2
        error = found - labels[row]
        w0[0] -= rate * error
        for entry in range(offsets[row], offsets[row + 1]):
            value, column = values[entry], columns[entry]
            w[column] -= rate * (error * value + penalty * w[column])
            for k in range(sums.size):
                gradient = value * (sums[k] - v[column, k] * value)
                v[column, k] -= rate * (error * gradient + penalty * v[column, k])


def plain_fm(samples: Samples) -> Callable[[int], None]:
    blocks = [samples.block(number) for number in range(samples.block_count)]
    rows, labels = whole(blocks, "columns"), np.concatenate([block.labels for block in blocks])

    def run(passes: int) -> None:
        v = np.random.default_rng(0).normal(scale=0.01, size=(samples.columns, 8))
        w0, w = np.zeros(1), np.zeros(samples.columns)
        for _ in range(passes):
            descend_pairs(*rows, labels, w0, w, v, np.zeros(8), 1e-4, 1e-4)

    return run


def seconds_of(plain: Callable[[int], object], iterations: int) -> float:
    """Return the processor seconds per iteration of a plain loop."""
    before = used()
    plain(iterations)
    return (used() - before) / iterations


def trained(target: str, data: Any, directory: Path, given: dict[str, Any]) -> Callable[[int], float]:
    """Return a function that trains a program for some iterations, and returns the processor seconds of each."""

    def train(iterations: int) -> float:
        marks: dict[int, float] = {}

        def mark(line: dict[str, Any]) -> None:
            if line["iteration"] in (FEW, FEW + iterations):
                marks[line["iteration"]] = used()

        # The last iteration does not count, either, since the objective is computed after it.
        path, count = directory / f"run-{time.monotonic_ns()}", FEW + iterations + 1
        training: dict[str, Any] = {
            "options": given,
            "iterations": count,
            "evaluate_every": 10**6,
            "workers": 1,
            "quiet": True,
        }
        fit(target, data, path, callback=mark, **training)
        return (marks[FEW + iterations] - marks[FEW]) / iterations

    return train


def main() -> None:
    args = options()
    with tempfile.TemporaryDirectory() as name:
        matrix, samples = made(Path(name), int(args.entries))
        contests = {
            "NMF, rank 10": (plain_nmf(matrix), trained("nmf:NMF", matrix, Path(name), {"rank": RANK})),
            "k-means, 10 clusters": (
                plain_kmeans(matrix),
                trained("kmeans:KMeans", matrix, Path(name), {"clusters": RANK}),
            ),
            "factorization machine, rank 8": (
                plain_fm(samples),
                trained("fm:FactorizationMachine", samples, Path(name), {"parallelism": 1, "rate": 1e-4}),
            ),
        }
        found = []
        for what, (plain, ooc) in contests.items():
            plain(1)  # compiles
            rounds = [(seconds_of(plain, args.iterations), ooc(args.iterations)) for _ in range(args.rounds)]
            plainly, engine = (statistics.median(times) for times in zip(*rounds, strict=True))
            ratios = sorted(one / other for one, other in rounds)
            found.append({"program": what, "plain_s": plainly, "ooc_s": engine, "speed": ratios[len(ratios) // 2]})
    rows = [["program", "plain, s", "ooc, s", "speed of ooc / plain"]]
    for row in found:
        rows.append([row["program"], f"{row['plain_s']:.3f}", f"{row['ooc_s']:.3f}", f"{row['speed']:.2f}"])
    print("\n".join([*describe_machine(machine()), "", *table(rows)]))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "programs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
