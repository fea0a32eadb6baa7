"""Compare the samplers of LDA, and two ways to run one sampler on many workers, with figures like those of two papers.

    python -m benchmarks.samplers docword.20news.txt.gz --output figures

writes `samplers.json` and, for each K, one worker and every sampler with its default options (rows of words are
`--update delayed`):

    likelihood-by-seconds.png    log-likelihood, its document part and its word part (LightLDA, figure 12)
    likelihood-by-iteration.png  the same against iterations (LightLDA, figures 14 and, by proposals, 11)
    cost.png                     seconds an iteration, and pairs of word and topic with n_kw > 0 (figures 13 and 10c)
    workers.png                  log-likelihood against tokens sampled by rotation and data-parallel on simulated
                                 workers, with the s-error (STRADS, figures 6a to 6c; its supplement, figure 2)

Seconds are `elapsed_s` of the metrics: sampling and what belongs to it (tables, rows, commits). Evaluations of the
likelihood, compilation, loading and export are not in them. `--seconds` is wall-clock time, evaluations and the start
of processes included: a sampler that is too slow for all iterations has fewer points.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import corpus as corpora
from benchmarks.report import describe_machine, machine
from benchmarks.sampler_figures import draw
from benchmarks.sampler_report import Result, describe
from benchmarks.simulated_workers import MODES, mode_spec, write_for_workers
from blocks import Dataset, memory, write_corpus
from blocks.control_groups import core_count
from blocks.errors import Interrupted, OocError
from ooc.plan.memory_plan import make_plan
from ooc.runs.new_run import create_run
from ooc.training import train
from ooc.workers.worker import ProgramSpec
from samplers.lda.programs import sampler_spec
from samplers.lda.training import DEFAULT_BETA, default_alpha

SAMPLERS = ["gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda", "lightlda:word", "lightlda:doc", "two-phase"]


def options(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.samplers",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("corpus", type=Path, help="a UCI bag of words, or a dataset made by ooc ingest")
    add("--vocab", type=Path, help="its words; default: vocab.X.txt beside docword.X.txt[.gz] if it is there")
    add("--documents", type=int, help="use so many, chosen at random (default: all)")
    add("--output", type=Path, default=Path("samplers-benchmark"), help="directory for what is written")
    add("--samplers", nargs="*", default=SAMPLERS, help="such as: gibbs lightlda:word (proposals); none: no figures")
    add("--topics", type=int, nargs="+", default=[1_000, 10_000])
    add("--iterations", type=int, default=100)
    add("--seconds", type=float, default=600, help="for the iterations of one sampler and K after the first")
    add("--evaluate-every", type=int, default=1, help="iterations from one point of a curve to the next")
    add("--simulated-workers", type=int, nargs="*", default=[1, 4, 16, 64], help="none: no figure of them")
    add("--simulated-topics", type=int, default=1_000)
    add("--simulated-iterations", type=int, default=50)
    add("--seed", type=int, default=0)
    add("--scratch", type=Path, help="for temporary files")
    return parser.parse_args(arguments)


class SamplerBenchmark:
    """The corpus and the runs on it."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.args, self.scratch = args, scratch
        corpus, self.vocabulary = corpora.load_any(args.corpus, args.vocab)
        self.corpus = corpora.shuffled(corpus, args.seed).head(args.documents) if args.documents else corpus

    def settings(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in vars(self.args).items() if not isinstance(value, Path)},
            "corpus": self.args.corpus.name,
            "documents": self.corpus.documents,
            "tokens": self.corpus.tokens,
            "vocabulary": len(self.vocabulary),
        }

    def compare_samplers(self) -> Iterator[Result]:
        """Run every sampler with every K, as `ooc train lda --workers 1` does."""
        args = self.args
        if not args.samplers:
            return
        dataset = write_corpus(
            self.scratch / "dataset", self.corpus.offsets, self.corpus.words, self.vocabulary, seed=args.seed
        )
        for topics in args.topics:
            for label in args.samplers:
                say(f"{label}, K = {topics} ...")
                name, _, proposal = label.partition(":")
                spec = sampler_spec(name, self.priors(topics), {"proposal": proposal or None})
                lines = self.run(dataset, spec, args.iterations, workers=1, seconds=args.seconds)
                yield {"sampler": label, "topics": topics, "lines": lines}

    def compare_modes(self) -> Iterator[Result]:
        """Run rotation and data parallelism with every number of simulated workers, and frozen rows with the largest
        number.
        """
        args = self.args
        for workers in args.simulated_workers:
            path = self.scratch / "dataset-for-workers"
            dataset = write_for_workers(path, self.corpus, self.vocabulary, workers, args.seed)
            for mode in MODES if workers == max(args.simulated_workers) else MODES[:2]:
                say(f"{mode}, {workers} simulated workers ...")
                spec = mode_spec(mode, self.priors(args.simulated_topics))
                lines = self.run(dataset, spec, args.simulated_iterations, workers=core_count())
                yield {"mode": mode, "workers": workers, "topics": args.simulated_topics, "lines": lines}
            shutil.rmtree(path)

    def priors(self, topics: int) -> dict[str, Any]:
        return {"topics": topics, "alpha": default_alpha(topics), "beta": DEFAULT_BETA, "seed": self.args.seed}

    def run(
        self, dataset: Dataset, spec: ProgramSpec, iterations: int, *, workers: int, seconds: float | None = None
    ) -> list[dict[str, Any]]:
        """Train; returns the metrics. The first iteration, which includes compilation, does not count towards the time
        limit.
        """
        run = create_run(self.scratch / "run", dataset, spec, iterations=1, evaluate_every=self.args.evaluate_every)
        plan = make_plan(dataset, spec.build(dataset), workers, memory.available_memory())
        train(run, plan, quiet=True)
        run.set_iterations(iterations)
        try:
            train(run, plan, max_time=seconds, quiet=True)
        except Interrupted as stop:
            if "--max-time" not in stop.what:
                raise
        lines = run.metrics()
        shutil.rmtree(run.path)
        return lines


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the arguments select; by default, arguments come from the command line."""
    args = options(arguments)
    facts = machine()
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        try:
            benchmark = SamplerBenchmark(args, Path(scratch))
            found: dict[str, Any] = {"machine": facts, "settings": benchmark.settings(), "samplers": [], "modes": []}
            for part, results in (("samplers", benchmark.compare_samplers()), ("modes", benchmark.compare_modes())):
                for result in results:
                    found[part].append(result)  # written after each: a run that is stopped has told what it knew
                    (args.output / "samplers.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
        except OocError as error:
            raise SystemExit(str(error)) from None
    print("\n".join([*describe_machine(facts), *describe(found)]))
    draw(found, args.output)


if __name__ == "__main__":
    main()
