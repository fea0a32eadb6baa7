"""Benchmark the dynamic engine, like figures 4, 5, 10, 11 and 12 and table 4 of the STRADS paper.

    python -m benchmarks.dynamic_engine --output figures
    python -m benchmarks.dynamic_engine --data dense/mice.npz --output figures

Lasso and sparse logistic regression by rounds of the engine, on simulated genotypes of which neighbours are correlated
(463 individuals as in the paper), or on X of an .npz file; y is a sum of 60 columns, and noise. The excess of an
objective is what it is above the least that any run has found, as a share of what there is to gain.

    parallelism    at random (Shotgun), 32 to 256 updates at once, and by priority with the check (figure 4)
    convergence    parameters that have their last value after so many passes over the data (figure 5)
    schedules      by priority with and without the check of dependencies, at random, in turn (figures 10 and 11)
    density        million samples a second, in turn with the check, by entries of a column, 1 worker and all (table 4)
    depth          pipelines of depth 1 to 4 (figure 12)

Writes `dynamic-engine.json` and a figure of each, and tells of each when it is done.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import designs, dynamic_report
from benchmarks.report import describe_machine, machine
from benchmarks.rounds import LASSO, LOGISTIC, ObjectiveCurve, RoundsProblem, penalised, run, shotgun, solved
from blocks.control_groups import core_count
from blocks.errors import OocError
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.selection_rules import SelectionRule

LEAST = 1e-7  # excess at which a run ends
Found = dict[str, Any]


def options(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.dynamic_engine",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--output", type=Path, default=Path("dynamic-engine-benchmark"), help="directory for what is written")
    add("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="some of what is described below")
    add("--data", type=Path, help="an .npz file with X (n, p)")
    add("--rows", type=int, default=463)
    add("--columns", type=int, default=5_000)
    add("--correlation", type=float, default=0.99, help="of what neighbouring genotypes are cut off from")
    add("--penalty-ratio", type=float, default=0.1, help="of the penalty, to the least for which all is 0")
    add("--parallel", type=int, default=64, help="parameters of a round")
    add("--rho", type=float, default=0.2)
    add("--passes", type=float, default=30, help="over the data, at most, of each run")
    add("--density", type=int, nargs="+", default=[8, 32, 128, 512], help="entries of a column")
    add("--density-entries", type=int, default=20_000_000, help="in all")
    add("--workers", type=int, default=core_count())
    add("--seed", type=int, default=0)
    add("--scratch", type=Path, help="for temporary files")
    return parser.parse_args(arguments)


class RuleProblems:
    """Problems on which rules are compared. Attributes: `args`, `scratch`."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.args, self.scratch = args, scratch
        self._problems: dict[str, RoundsProblem] = {}
        self._x = self._features()
        self._y = designs.response(self._x, min(60, self._x.shape[1] // 4), 0.5, args.seed + 1)

    def _features(self) -> np.ndarray:
        if self.args.data:
            with np.load(self.args.data) as arrays:
                return arrays["X"]
        return designs.genotypes(self.args.rows, self.args.columns, self.args.correlation, self.args.seed)

    def rule(self, **changes: Any) -> SelectionRule:
        """Return the rule that draws by priority with the dependency check, with some fields changed."""
        args = self.args
        usual = {"parallel": args.parallel, "candidates": 2 * args.parallel, "rho": args.rho, "seed": args.seed}
        return SelectionRule(**{**usual, **changes})

    def problem(self, name: str) -> RoundsProblem:
        """Return a Lasso or logistic regression with its optimal objective."""
        if name not in self._problems:
            self._problems[name] = self._solved(name)
        return self._problems[name]

    def _solved(self, name: str) -> RoundsProblem:
        say(f"the least objective of {name} ...")
        logistic, args = name == "logistic regression", self.args
        y = np.where(self._y > np.median(self._y), 1.0, -1.0) if logistic else self._y
        design = designs.design_of(self.scratch / name, self._x, y)
        problem = penalised(design, LOGISTIC if logistic else LASSO, args.penalty_ratio, args.workers)
        return solved(problem, self.rule(centred=not logistic), 2 * args.passes, args.workers)

    def curve(self, name: str, problem: RoundsProblem, rule: SelectionRule) -> ObjectiveCurve:
        say(f"{name} ...")
        return run(problem, rule, self.args.passes, self.args.workers, least=LEAST)


def parallelism(laboratory: RuleProblems) -> Found:
    problem, seed = laboratory.problem("lasso"), laboratory.args.seed
    rules = {f"random, {parallel}": shotgun(parallel, seed) for parallel in (32, 64, 128, 256)}
    rules |= {
        f"priority, {parallel}": laboratory.rule(parallel=parallel, candidates=2 * parallel) for parallel in (32, 256)
    }
    return curves(laboratory, problem, rules)


def schedules(laboratory: RuleProblems) -> Found:
    args, found = laboratory.args, {}
    for name in ("lasso", "logistic regression"):
        problem, centred = laboratory.problem(name), name == "lasso"
        rules = {
            "priority, check": laboratory.rule(centred=centred),
            "priority": laboratory.rule(rho=None),
            "random": shotgun(args.parallel, args.seed),
            "cyclic, check": laboratory.rule(schedule="cyclic", candidates=args.parallel, centred=centred),
        }
        found[name] = curves(laboratory, problem, rules)
    return found


def depth(laboratory: RuleProblems) -> Found:
    rules = {f"depth {depth}": laboratory.rule(pipeline=RoundPipeline(depth, 5, 1)) for depth in (1, 2, 3, 4)}
    return curves(laboratory, laboratory.problem("lasso"), rules)


def curves(laboratory: RuleProblems, problem: RoundsProblem, rules: dict[str, SelectionRule]) -> Found:
    """Return the learning curve of each rule, with its excess over the optimum."""
    found = {name: laboratory.curve(name, problem, rule) for name, rule in rules.items()}
    best = min(problem.best, *(min(curve.objectives) for curve in found.values()))
    problem = problem._replace(best=best)
    return {name: {**curve._asdict(), "excess": curve.excess(problem)} for name, curve in found.items()}


def convergence(laboratory: RuleProblems) -> Found:
    """Return, for several penalties, the fraction of parameters that no longer change after each pass over the data."""
    args, design = laboratory.args, laboratory.problem("lasso").design
    found: Found = {}
    for ratio in (0.5, 0.2, 0.1, 0.05):
        say(f"convergence of parameters, penalty {ratio} ...")
        kept: list[np.ndarray] = []
        problem = penalised(design, LASSO, ratio, args.workers)
        rule = laboratory.rule(schedule="cyclic", candidates=args.parallel, pipeline=RoundPipeline(1, 1, 1))
        curve = run(problem, rule, args.passes, args.workers, kept)
        away = np.abs(np.array(kept) - kept[-1]) > 1e-3 * np.abs(kept[-1]).max()
        last = np.max(np.where(away, np.arange(len(kept))[:, None], -1), axis=0) + 1  # 0 if it never was elsewhere
        shares = [float(np.mean(last <= look)) for look in range(len(kept))]
        found[f"penalty {ratio}"] = {"passes": curve.passes, "converged": shares}
    return found


def density(laboratory: RuleProblems) -> Found:
    """Return the speed in million samples per second, with and without the check in turn, by entries per column and
    number of workers.
    """
    args, rows = laboratory.args, 50_000
    found: Found = {}
    for entries in args.density:
        x = designs.sparse(rows, args.density_entries // entries, entries, args.seed)
        y = designs.response(x, 50, 0.5, args.seed)
        for name, spec in (("lasso", LASSO), ("logistic regression", LOGISTIC)):
            labels = y if spec == LASSO else np.where(y > 0, 1.0, -1.0)
            design = designs.design_of(laboratory.scratch / f"{name}-{entries}", x, labels)
            for workers in sorted({1, args.workers}):
                say(f"{name}, {entries} entries, {workers} workers ...")
                problem = penalised(design, spec, args.penalty_ratio, workers)
                rule = laboratory.rule(schedule="cyclic", candidates=args.parallel, centred=spec == LASSO)
                curve = run(problem, rule, 1.0, workers)
                rate = curve.passes[-1] * problem.samples / curve.seconds[-1]
                found.setdefault(name, {}).setdefault(str(workers), {})[str(entries)] = rate / 1e6
    return found


PARTS: dict[str, Callable[[RuleProblems], Found]] = {
    "parallelism": parallelism,
    "convergence": convergence,
    "schedules": schedules,
    "density": density,
    "depth": depth,
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the arguments select; by default, arguments come from the command line."""
    args = options(arguments)
    facts = machine()
    settings = {**vars(args), "output": args.output.name, "data": args.data and args.data.name}
    found: Found = {}
    print("\n".join(describe_machine(facts)))
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        try:
            laboratory = RuleProblems(args, Path(scratch))
            for name in args.only:
                found[name] = PARTS[name](laboratory)
                print("", *dynamic_report.TOLD[name](found[name]), sep="\n", flush=True)
                dynamic_report.draw({name: found[name]}, args.output)
        except OocError as error:
            raise SystemExit(str(error)) from None
        finally:
            written = {"machine": facts, "settings": settings, "found": found}
            (args.output / "dynamic-engine.json").write_text(json.dumps(written, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
