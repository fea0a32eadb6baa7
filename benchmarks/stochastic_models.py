"""Compare topic models and factorizations by the stochastic engine with the other methods of ooc on the same data.

    python -m benchmarks.stochastic_models DATA [--output DIR] [--json FILE]

DATA has docword.20news.txt.gz with its words, and jester.txt.gz. All on one worker, with default priors; lambda is that
of some which is best for a method on a validation part. Times are `elapsed_s` of the metrics: without compilation and
loading. What counts is the likelihood of documents, and the RMSE of ratings, that are held out. With --output figures
are drawn of both against time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import corpus as corpora
from benchmarks import ratings as drawn
from benchmarks.report import describe_machine, machine, table
from blocks import write_corpus
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.request import RatingsRequest
from ooc.runs.run import Run
from samplers.factorization.training import train_mf
from samplers.lda.training import train_lda

SAMPLERS = ("gibbs", "sparse-gibbs", "aliaslda", "lightlda", "two-phase")
METHODS = {"sgd": (0.05, 0.1, 0.2, 0.4), "ccd": (0.05, 0.1, 0.2, 0.4), "als": (0.05, 0.1, 0.2, 0.4)}
SPLASH_LAMBDAS = (0.5, 2.0, 8.0, 32.0)  # of which the users' share is not times their ratings
DEGREES = (1, 8, 64)
HELD_OUT = "held_out_log_likelihood_per_token", "held_out_rmse"

Options = dict[str, Any]
Curve = list[tuple[float, float]]  # seconds, what is held out


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.stochastic_models",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", type=Path, help="the directory of the data")
    add("--topics", type=int, default=100)
    add("--held-out", type=int, default=1000, help="documents")
    add("--iterations", type=int, default=60, help="of LDA")
    add("--rank", type=int, default=20)
    add("--passes", type=int, default=15, help="of factorization")
    add("--output", type=Path, help="draw figures into this directory")
    add("--json", type=Path, help="write the numbers there")
    return parser.parse_args()


class StochasticContest:
    """Trainings in a directory, and their metrics."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.args, self.scratch = args, scratch

    def topics(self) -> dict[str, list[Options]]:
        """Return the metrics of each sampler."""
        args = self.args
        whole, words = corpora.load_any(args.data / "docword.20news.txt.gz", None)
        corpus = corpora.shuffled(whole, 0)
        parts = {"train": corpus.head(corpus.documents - args.held_out), "held-out": corpus.tail(args.held_out)}
        for name, part in parts.items():
            write_corpus(self.scratch / name, part.offsets, part.words, words)
        contestants: dict[str, Options] = {name: {"sampler": name} for name in SAMPLERS}
        contestants |= {f"splash, {m} workers": {"sampler": "splash", "parallelism": m} for m in DEGREES}
        found = {}
        for name, given in contestants.items():
            say(f"{name} ...")
            run = self.scratch / "run"
            common: Options = {"topics": args.topics, "iterations": args.iterations, "evaluate_every": 2}
            train_lda(
                self.scratch / "train",
                run,
                held_out=self.scratch / "held-out",
                workers=1,
                quiet=True,
                overwrite=True,
                **common,
                **given,
            )
            found[name] = Run(run).metrics()
        return found

    def factors(self) -> dict[str, list[Options]]:
        """Return the metrics of each method at its best lambda."""
        for name, part in drawn.cut(drawn.read_tsv(self.args.data / "jester.txt.gz")).items():
            drawn.write_tsv([part], self.scratch / f"{name}.tsv")
            base = None if name == "train" else str(self.scratch / "ratings-train")
            request = RatingsRequest([f"{self.scratch}/{name}.tsv"], f"{self.scratch}/ratings-{name}", names_from=base)
            ingest_ratings(request)
        found = {}
        for method, lambdas in METHODS.items():
            found[method] = self.factorize(self.best_of(lambdas, method=method), method=method)
        value = self.best_of(SPLASH_LAMBDAS, method="splash")
        for m in DEGREES:
            found[f"splash, {m} workers"] = self.factorize(value, method="splash", parallelism=m)
        return found

    def best_of(self, lambdas: tuple[float, ...], **given: Any) -> float:
        errors = {
            value: min(rmse for _, rmse in curve(self.factorize(value, "validation", **given))) for value in lambdas
        }
        return min(errors, key=lambda value: errors[value])

    def factorize(self, regularization: float, part: str = "test", **given: Any) -> list[Options]:
        say(f"{given}, lambda {regularization:g} ...")
        run = self.scratch / "run"
        common: Options = {"rank": self.args.rank, "iterations": self.args.passes, "regularization": regularization}
        train_mf(
            self.scratch / "ratings-train",
            run,
            held_out=self.scratch / f"ratings-{part}",
            workers=1,
            quiet=True,
            overwrite=True,
            **common,
            **given,
        )
        return [line | {"regularization": regularization} for line in Run(run).metrics()]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def curve(lines: list[Options]) -> Curve:
    """Return the training seconds and the held-out metric at each evaluation."""
    return [(line["elapsed_s"], line[name]) for line in lines for name in HELD_OUT if name in line]


def seconds_to(curve: Curve, target: float, sign: int) -> float:
    """Return the seconds until the target was reached.

    sign: 1 if larger values are better, else -1.
    """
    return next((seconds for seconds, value in curve if sign * (value - target) >= 0), math.inf)


def describe(found: dict[str, list[Options]], what: str, sign: int) -> Iterator[str]:
    """Return a table of methods.

    sign: 1 if larger values are better, else -1.
    """
    curves = {name: curve(lines) for name, lines in found.items()}
    best = {name: max(sign * value for _, value in points) for name, points in curves.items()}
    target = sign * best[f"splash, {DEGREES[0]} workers"]
    rows = [[what, "s an iteration", "best", "after s", "s to the best of splash, 1 worker"]]
    for name, points in curves.items():
        ends = [line["elapsed_s"] for line in found[name]]
        pace = statistics.median(after - before for before, after in pairwise(ends))
        value = sign * best[name]
        reached = seconds_to(points, target, sign)
        rows.append([name, f"{pace:.3f}", f"{value:.4f}", f"{seconds_to(points, value, sign):.2f}", f"{reached:.2f}"])
    yield from table(rows)


def draw(found: dict[str, dict[str, list[Options]]], directory: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
    for panel, (what, methods) in zip(axes, found.items(), strict=True):
        for name, lines in methods.items():
            panel.plot(*zip(*curve(lines), strict=True), "--" if "splash" in name else "-", label=name)
        panel.set(xlabel="seconds", ylabel=f"{what}, held out", xscale="log")
        panel.legend(fontsize=7)
    figure.savefig(directory / "stochastic-models.png", dpi=150)


def main() -> None:
    args = options()
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="ooc-benchmark-") as scratch:
        contest = StochasticContest(args, Path(scratch))
        found = {"log-likelihood of a token": contest.topics(), "RMSE": contest.factors()}
    print("\n".join(describe_machine(facts)))
    for (what, methods), sign in zip(found.items(), (1, -1), strict=True):
        print("\n".join(["", *describe(methods, what, sign)]))
    if args.output:
        draw(found, args.output)
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
