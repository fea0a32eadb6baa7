"""Compare sparse regression in memory by ooc, celer, skglm, adelie, scikit-learn and LIBLINEAR.

    python -m benchmarks.regression --data DIRECTORY
    python -m benchmarks.regression --cells sparse/100 correlated/100 --scale 1

A cell is a problem and a lambda, as a share of the largest, or a path of 100 down to a hundredth. What counts is the
time until the duality gap is a share of that of zero coefficients (for paths: of their loss). For each contestant the
loosest of its tolerances that gets so far is looked for first; then all take turns. A gap is that of the residual,
scaled to a dual point, or of the dual point that the contestant has found (celer), if that is better; it is found in
float64, whatever the contestant reckons with. Times are without loading and compilation. Problems drawn at random have
a fifth of their size (50,000 x 1,000,000, and 463 x 500,000 if dense), unless --scale says otherwise.

With several workers, as many processes of one worker solve the problem at once, too, before and after each turn: what
they get done in the time of one alone is what the cores are worth at that moment. On a virtual machine two of them may
be one that has two threads, or less.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import regression_problems
from benchmarks.measure import ONE_THREAD, ROOT
from benchmarks.regression_contestants import LevelSolutions, gaps, largest_slopes, residuals_and_losses
from benchmarks.report import describe_machine, machine, table

PATH = "path"
CLOCKS = ("seconds", "processor_seconds")
LEVELS, LEAST = 100, 0.01  # of a path
PEERS = {
    ("squared", "sparse"): ("scikit-learn", "celer64", "celer", "skglm64", "skglm"),
    ("squared", "dense"): ("scikit-learn", "celer", "celer64", "skglm", "skglm64", "adelie", "adelie64"),
    ("logistic", "sparse"): ("liblinear64", "celer64", "celer", "skglm64", "skglm"),
    ("logistic", "dense"): ("liblinear64", "celer64", "celer", "skglm64", "adelie64"),
}
CELLS = (
    *(f"{name}/{ratio}" for name in ("sparse", "correlated") for ratio in ("10", "100", PATH)),
    *(f"dense/{ratio}" for ratio in ("10", PATH)),
    *("abstracts/100", "20news/100", "20news/path"),
    *("mice/10", "mice/100", "mice/path", "singh/10", "singh/100", "singh/path"),
)
_STEP = 0.3  # from one tolerance to the next
_TRIED = 24
_STUCK, _BETTER = 5, 0.9  # of these without a gap that much smaller: it would need more digits than it reckons with
_COMPILING = 600.0  # seconds
_SOME = 20  # levels that all is compiled for, all along a path
_OWN = 0.9  # of the cores, which are then counted as all there


class SolverProcess:
    """A process that solves problems.

    limit: maximum seconds per answer, after which the process is ended.
    """

    def __init__(self, name: str, directory: Path, workers: int, limit: float) -> None:
        self.name, self.limit = name, limit
        self.tolerance = math.nan
        self.records: list[dict[str, Any]] = []
        self.best = math.inf
        command = [sys.executable, "-m", "benchmarks.regression_contestants", name, str(directory), str(workers)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> SolverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, levels: np.ndarray, tolerance: float, limit: float) -> dict[str, Any] | None:
        """Return the answer of the process; None if it failed or exceeded `limit` seconds."""
        self.begin(levels, tolerance)
        return self.answer(limit)

    def begin(self, levels: np.ndarray, tolerance: float) -> None:
        assert self._process.stdin
        if self._process.poll() is None:
            print(json.dumps({"levels": levels.tolist(), "tolerance": tolerance}), file=self._process.stdin, flush=True)

    def answer(self, limit: float) -> dict[str, Any] | None:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], limit)[0]:
            self._process.kill()
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def calibrate(self, levels: np.ndarray, targets: np.ndarray, first: float) -> bool:
        """Find the loosest tolerance with which a contestant reaches the targets; returns whether there is one."""
        self.records, self.best, self.tolerance = [], math.inf, first
        self.ask(levels[:: max(levels.size // _SOME, 1)], first, _COMPILING)
        stuck = 0
        for _ in range(_TRIED):
            answer = self.ask(levels, self.tolerance, self.limit)
            if answer is None:
                break
            gap = max(np.array(answer["gaps"]) / targets)
            stuck = 0 if gap < _BETTER * self.best else stuck + 1
            self.best = min(self.best, gap)
            if self.best <= 1 or stuck == _STUCK:
                break
            self.tolerance *= _STEP
        return self.best <= 1


class RegressionCase:
    """One problem, and the lambdas for which it is solved."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        problem = regression_problems.read(directory)
        self.kind = problem.loss, "dense" if isinstance(problem.x, np.ndarray) else "sparse"
        residual, loss = residuals_and_losses(problem, np.zeros((problem.y.size, 1)))
        largest, ratio = largest_slopes(problem, residual)[0], name.partition("/")[2]
        self.null_loss = float(loss[0])
        self.levels = largest * (np.geomspace(1, LEAST, LEVELS) if ratio == PATH else np.array([1 / float(ratio)]))
        nothing = LevelSolutions([np.zeros(problem.x.shape[1])])
        start = self.null_loss if ratio == PATH else gaps(problem, nothing, self.levels)[0]
        self.initial = np.full(self.levels.size, start)

    def compete(self, tolerance: float, args: argparse.Namespace) -> dict[str, Any]:
        """Return the seconds that each contestant takes until its gap is the given fraction of the initial gap."""
        targets = tolerance * self.initial
        with ExitStack() as stack:
            ours = [
                stack.enter_context(SolverProcess("ooc", self.directory, workers, args.limit))
                for workers in args.workers
            ]
            most = ours[args.workers.index(max(args.workers))]
            several = max(args.workers) if 1 in args.workers and len(ours) > 1 else 0
            twins = [stack.enter_context(SolverProcess("ooc", self.directory, 1, args.limit)) for _ in range(several)]
            names = [name for name in PEERS[self.kind] if not args.peers or name in args.peers]
            peers = [stack.enter_context(SolverProcess(name, self.directory, 1, args.limit)) for name in names]
            reached = [
                *(one for one in ours if one.calibrate(self.levels, targets, targets[0] / self.null_loss)),
                *(one for one in peers if one.calibrate(self.levels, targets, tolerance / _STEP**4)),
            ]
            for twin in twins:
                twin.ask(self.levels, most.tolerance, _COMPILING)
            at_once: list[float] = []
            for _ in range(args.rounds):
                for contestant in reached:
                    pair = twins if contestant is most else []
                    around = [self._at_once(pair, contestant.tolerance)]
                    if answer := contestant.ask(self.levels, contestant.tolerance, contestant.limit):
                        contestant.records.append(answer)
                    around.append(self._at_once(pair, contestant.tolerance))
                    at_once += [max(around)] * bool(pair)
            return self._result(tolerance, ours, peers, args) | {"seconds_at_once": at_once}

    def _at_once(self, several: list[SolverProcess], tolerance: float) -> float:
        """Return the seconds of the slowest process if several solve at the same time."""
        for one in several:
            one.begin(self.levels, tolerance)
        answers = [one.answer(one.limit) for one in several]
        return max((answer["seconds"] if answer else math.inf for answer in answers), default=0.0)

    def _result(
        self, tolerance: float, ours: list[SolverProcess], peers: list[SolverProcess], args: argparse.Namespace
    ) -> dict[str, Any]:
        names = ["ooc" if workers == 1 else f"ooc, {workers} workers" for workers in args.workers]
        records = {name: one.records for name, one in zip(names, ours, strict=True)}
        records |= {peer.name: peer.records for peer in peers}
        return {
            "cell": self.name,
            "tolerance": tolerance,
            "nonzeros": ours[0].records[-1]["nonzeros"][-1] if ours[0].records else None,
            "not_reached": {one.name: one.best * tolerance for one in [*ours, *peers] if not one.records},
            **{
                clock: {name: [record[clock] for record in found] for name, found in records.items() if found}
                for clock in CLOCKS
            },
        }


def compare(result: dict[str, Any]) -> dict[str, Any]:
    """Return ratios of times for each clock: medians over turns of ooc to the best other program, and of one worker to
    several, also over only the turns in which all cores were available.
    """
    found: dict[str, Any] = {}
    for clock in CLOCKS:
        seconds: dict[str, list[float]] = result[clock]
        peers = {name: times for name, times in seconds.items() if not name.startswith("ooc")}
        if "ooc" not in seconds:
            continue
        if peers:
            best = min(peers, key=lambda name: statistics.median(peers[name]))
            found |= {f"best_peer_{clock}": best, f"ratio_{clock}": _ratio(seconds["ooc"], peers[best])}
        for name, times in seconds.items():
            if name.startswith("ooc, "):
                found[f"speedup_{clock} of {name}"] = _ratio(seconds["ooc"], times)
    return found | _with_all_cores(result["seconds"], result["seconds_at_once"])


def _with_all_cores(seconds: dict[str, list[float]], at_once: list[float]) -> dict[str, Any]:
    """Return the cores available in each turn, and the speed-up by several workers in the turns with all cores."""
    name = max((name for name in seconds if name.startswith("ooc, ")), default="", key=_workers)
    if not (name and at_once and "ooc" in seconds):
        return {}
    cores = [_workers(name) * alone / slowest for alone, slowest in zip(seconds["ooc"], at_once, strict=False)]
    speedups = [one / more for one, more in zip(seconds["ooc"], seconds[name], strict=False)]
    with_all = [ratio for ratio, worth in zip(speedups, cores, strict=False) if worth >= _OWN * _workers(name)]
    return {"cores": cores, "speedups": speedups, "speedups_with_all_cores": with_all}


def _workers(name: str) -> int:
    return int(name.split()[1])


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=False))


def describe(results: list[dict[str, Any]]) -> Iterator[str]:
    rows = [["problem", "gap", "nonzeros", "seconds (CPU seconds)", "best peer", "ooc / best peer", "CPU ooc / peer"]]
    for result in results:
        times = [
            f"{name} {statistics.median(seconds):.3g} ({statistics.median(result['processor_seconds'][name]):.3g})"
            for name, seconds in result["seconds"].items()
        ]
        times += [f"{name} gets to {share:.1e}" for name, share in result["not_reached"].items()]
        if result.get("cores"):
            times.append(_describe_speedup(result))
        rows.append(
            [
                result["cell"],
                f"{result['tolerance']:g}",
                str(result["nonzeros"]),
                times[0] if times else "",
                result.get("best_peer_seconds", "-"),
                f"{result.get('ratio_seconds', math.nan):.2f}",
                f"{result.get('ratio_processor_seconds', math.nan):.2f}",
            ]
        )
        rows += [["", "", "", one, "", "", ""] for one in times[1:]]
    yield from table(rows)


def _describe_speedup(result: dict[str, Any]) -> str:
    every, some = result["speedups"], result["speedups_with_all_cores"]
    told = f"{statistics.median(every):.2f} times as fast, on {statistics.median(result['cores']):.2f} cores"
    return f"{told}; {statistics.median(some):.2f} in {len(some)} of {len(every)} turns with all" if some else told


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regression", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--cells", nargs="+", default=CELLS, help="default: all")
    parser.add_argument("--peers", nargs="+", help="default: all")
    parser.add_argument("--tolerances", nargs="+", type=float, default=[1e-4, 1e-6])
    parser.add_argument("--workers", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=0.2, help="of the problems drawn at random")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a contestant may take")
    parser.add_argument("--data", type=Path, help="directory of the real data")
    parser.add_argument("--scratch", type=Path, help="where problems are written")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


def main() -> None:
    args = options()
    facts, results = machine(), []
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        for name in args.cells:
            problem = name.partition("/")[0]
            directory = Path(scratch) / problem
            if not directory.exists():
                regression_problems.make(problem, args.scale, args.data).write(directory)
            cell = RegressionCase(name, directory)
            for tolerance in args.tolerances:
                result = cell.compete(tolerance, args)
                results.append(result | compare(result))
                print("\n".join(describe(results[-1:])), flush=True)
    print("\n".join([*describe_machine(facts), *describe(results)]))
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
