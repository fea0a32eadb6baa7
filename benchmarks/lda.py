"""Compare LDA of ooc, tomotopy, gensim and scikit-learn: tokens per second, memory, and held-out likelihood against
time.

    python -m benchmarks.lda --corpus docword.arxiv300k.txt.gz --vocab vocab.arxiv300k.txt --topics 100 1000

All train on the same documents with the same alpha and beta, and predict the same tokens of the documents held out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import corpus as corpora
from benchmarks import report
from benchmarks.contestants import TopicModelSpec
from benchmarks.measure import ContestantFailed, checked_tokens, held_out_likelihood, run_contestant
from blocks import OocError, write_corpus
from samplers.lda.training import DEFAULT_BETA, default_alpha

MODULES = {"tomotopy": "tomotopy", "gensim": "gensim", "scikit-learn": "sklearn"}
SUBSET = {"gensim", "scikit-learn"}  # hundreds of times slower: they train on some documents only
SCHEMES = ("PARTITION", "COPY_MERGE")  # of tomotopy with several workers
TRIAL_ITERATIONS = 4
TURN_ITERATIONS = 12  # of a short run, which is compared with others


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.lda", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    default = Path("../shared/data/docword.arxiv300k.txt.gz")
    add("--corpus", type=Path, default=default, help="a UCI bag of words, or a dataset made by ooc ingest")
    add("--vocab", type=Path, help="its words; default: vocab.X.txt beside docword.X.txt[.gz] if it is there")
    add(
        "--shuffle", action="store_true", help="put the documents in random order first, if their order means something"
    )
    add("--documents", type=int, default=0, help="use the first so many only (default: all)")
    add("--held-out", type=int, default=3000, help="documents at the end that nobody trains on")
    add("--topics", type=int, nargs="+", default=[100, 1000])
    add("--workers", type=int, nargs="+", default=[1, 2])
    add("--iterations", type=int, default=50)
    add("--ooc-iterations", type=int, help="default: three times --iterations, so that curves cross")
    add("--checkpoints", type=int, nargs="+", default=[5, 10, 20, 30, 50, 70, 100, 150, 200, 300])
    add("--alpha", type=float, help="for all (default: what ooc takes for that many topics)")
    add("--beta", type=float, default=DEFAULT_BETA, help="for all (default: what ooc takes)")
    add("--seed", type=int, default=0)
    add("--samplers", nargs="+", default=["auto"], help="of ooc, such as: auto two-phase two-phase:2 (proposals)")
    add("--peers", nargs="*", choices=list(MODULES), default=list(MODULES))
    add("--subset", type=int, help="documents for gensim and scikit-learn (default: 3000, from K = 1000 on 1000)")
    add("--passes", type=int, default=5, help="of gensim and scikit-learn over them")
    add("--turns", type=int, default=5, help="rounds of short runs of ooc in turn, for all topics and workers")
    add("--scratch", type=Path, help="for temporary files; on a disk: files mapped in tmpfs count as memory")
    add("--timeout", type=float, default=7200, help="seconds that one contestant may take")
    add("--json", type=Path, help="write the numbers there")
    add("--plot", type=Path, help="draw the curves there")
    return parser.parse_args()


def checkpoints(wanted: list[int], iterations: int) -> tuple[int, ...]:
    """Return the iterations of the checkpoints, the last of which is the last iteration."""
    return tuple(sorted({point for point in wanted if point < iterations} | {iterations}))


class LdaBenchmark:
    """The corpus on disk and the contestants of one benchmark."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.args, self.scratch = args, scratch
        corpus, vocabulary = corpora.load_any(args.corpus, args.vocab)
        if args.shuffle:
            corpus = corpora.shuffled(corpus, args.seed)
        corpus = corpus.head(args.documents or corpus.documents)
        if not 0 < args.held_out < corpus.documents:
            raise SystemExit(f"--held-out {args.held_out}: the corpus has {corpus.documents} documents")
        self.held_out = corpus.tail(args.held_out)
        self.training = corpus.head(corpus.documents - args.held_out)
        self.vocabulary_size = len(vocabulary)
        self._write("whole", self.training, vocabulary)
        self._write("tiny", self.training.head(200), vocabulary)
        self.runs = 0

    def _write(self, name: str, corpus: corpora.Corpus, vocabulary: list[str]) -> None:
        corpora.save(corpus, vocabulary, self.scratch / f"{name}-arrays")
        write_corpus(self.scratch / f"{name}-dataset", corpus.offsets, corpus.words, vocabulary, seed=self.args.seed)

    def settings(self) -> dict[str, Any]:
        return {
            "corpus": self.args.corpus.name,
            "documents": self.training.documents,
            "tokens": self.training.tokens,
            "vocabulary": self.vocabulary_size,
            "held_out_documents": self.held_out.documents,
            "held_out_tokens": self.held_out.tokens,
            "iterations": self.args.iterations,
            "seed": self.args.seed,
        }

    def spec(
        self, topics: int, workers: int, points: tuple[int, ...], data: str = "whole", **more: Any
    ) -> TopicModelSpec:
        self.runs += 1
        return TopicModelSpec(
            corpus=str(self.scratch / f"{data}-arrays"),
            dataset=str(self.scratch / f"{data}-dataset"),
            out=str(self.scratch / f"run-{self.runs}"),
            topics=topics,
            alpha=default_alpha(topics) if self.args.alpha is None else self.args.alpha,
            beta=self.args.beta,
            workers=workers,
            seed=self.args.seed,
            checkpoints=points,
            **more,
        )

    def contestants(self, topics: int, workers: int) -> Iterator[tuple[str, str, TopicModelSpec]]:
        """Return label, name and specification of each contestant for a number of topics and workers."""
        args = self.args
        for sampler in args.samplers:
            points = checkpoints(args.checkpoints, args.ooc_iterations or 3 * args.iterations)
            yield f"ooc {sampler}", "ooc", self.spec(topics, workers, points, variant=sampler)
        for peer in args.peers:
            if peer in SUBSET:
                documents = min(args.subset or (1000 if topics >= 1000 else 3000), self.training.documents)
                yield peer, peer, self.spec(topics, workers, (args.passes,), documents=documents)
            else:
                yield peer, peer, self.spec(topics, workers, checkpoints(args.checkpoints, args.iterations))

    def compete(self) -> Iterator[report.Result]:
        """Run all contestants in alternating order, so that a warm or busy machine does not always hit the same one."""
        turn = 0
        for topics in self.args.topics:
            for sampler in self.args.samplers:  # compiles, if nobody has yet; its numbers are thrown away
                run_contestant("ooc", self.spec(topics, 1, (1,), "tiny", variant=sampler), self.args.timeout)
            for workers in self.args.workers:
                turn += 1
                for label, name, spec in list(self.contestants(topics, workers))[:: 1 if turn % 2 else -1]:
                    try:
                        yield self.result(label, name, spec)
                    except ContestantFailed as failure:
                        say(f"{label}, K = {topics}, {workers} workers failed: {failure}")

    def in_turn(self, results: list[report.Result]) -> None:
        """Add to the results of ooc the tokens per second relative to one worker, and to the smallest number of topics.

        Ratios are measured by short alternating runs, because the speed of a shared machine changes within the minutes
        between two whole runs.
        """
        for sampler in self.args.samplers:
            mine = [result for result in results if result["contestant"] == f"ooc {sampler}"]
            if len(mine) == 1:
                continue
            for turn in range(1, self.args.turns + 1):
                say(f"ooc {sampler}, turn {turn} of all topics and workers ...")
                cases = sorted({(result["topics"], workers) for result in mine for workers in (1, result["workers"])})
                try:
                    seconds = {case: self.short_run(sampler, *case) for case in cases}
                except ContestantFailed as failure:
                    say(f"ooc {sampler}, in turn, failed: {failure}")
                    break
                for result in mine:
                    topics, workers = result["topics"], result["workers"]
                    own = seconds[topics, workers]
                    if workers > 1:
                        result.setdefault("speedups", []).append(seconds[topics, 1] / own)
                    if topics > cases[0][0]:
                        result.setdefault("kept", []).append(seconds[cases[0][0], workers] / own)

    def short_run(self, sampler: str, topics: int, workers: int) -> float:
        """Return the median seconds of an iteration."""
        spec = self.spec(topics, workers, (TURN_ITERATIONS,), variant=sampler)
        seconds = run_contestant("ooc", spec, self.args.timeout)["seconds"]
        shutil.rmtree(spec.out)
        return statistics.median(seconds)

    def result(self, label: str, name: str, spec: TopicModelSpec) -> report.Result:
        """Return the measurements of one contestant."""
        note = ""
        if name == "tomotopy" and spec.workers > 1:
            spec, note = self.with_fastest_scheme(spec)
        say(f"{label}, K = {spec.topics}, {spec.workers} workers ...")
        record = run_contestant(name, spec, self.args.timeout)
        for point in record["checkpoints"]:
            counts = Path(point.pop("counts"))
            likelihoods = held_out_likelihood(counts, spec, self.held_out, self.vocabulary_size)
            point["likelihood"], point["likelihood_by_em"] = likelihoods
            if name not in SUBSET and checked_tokens(counts) != record["tokens"]:
                raise ContestantFailed(f"its counts are of {checked_tokens(counts)} tokens, not of {record['tokens']}")
        seconds = statistics.median(record.pop("seconds")[: self.args.iterations])
        record.pop("intervals")
        shutil.rmtree(spec.out)
        return {
            "contestant": label,
            "topics": spec.topics,
            "workers": spec.workers,
            "alpha": spec.alpha,
            "beta": spec.beta,
            "tokens_per_s": record["tokens"] / seconds,
            "subset": record["documents"] < self.training.documents,
            "note": note,
            **record,
        }

    def with_fastest_scheme(self, spec: TopicModelSpec) -> tuple[TopicModelSpec, str]:
        """Time the parallel schemes of tomotopy for some iterations of the real training.

        Returns the specification with the fastest scheme, and a description of the trial.
        """
        speed = {}
        for scheme in SCHEMES:
            trial = self.spec(spec.topics, spec.workers, (TRIAL_ITERATIONS,), variant=scheme)
            say(f"tomotopy, K = {spec.topics}, {spec.workers} workers: trying {scheme} ...")
            record = run_contestant("tomotopy", trial, self.args.timeout)
            speed[scheme] = record["tokens"] / statistics.median(record["seconds"])
        best = max(speed, key=lambda scheme: speed[scheme])
        tried = ", ".join(f"{scheme} {rate / 1e6:.2f}M tokens/s" for scheme, rate in speed.items())
        return replace(spec, variant=best), f"parallel scheme {best} ({tried} in {TRIAL_ITERATIONS} iterations)"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tell(path: Path | None, facts: dict[str, Any], benchmark: LdaBenchmark, results: list[report.Result]) -> None:
    """Print a comparison of the results, and write them to a file if one is given."""
    report.compare(results)
    if path:
        whole = {"machine": facts, "settings": benchmark.settings(), "results": results}
        path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    args = options()
    if missing := [peer for peer in args.peers if importlib.util.find_spec(MODULES[peer]) is None]:
        raise SystemExit(f"not installed: {', '.join(missing)}; pip install -e '.[bench]', or choose with --peers")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: the contestant ends, the scratch files go
    facts = report.machine()
    if args.scratch:
        args.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        try:
            benchmark = LdaBenchmark(args, Path(scratch))
        except OocError as error:
            raise SystemExit(str(error)) from None
        results: list[report.Result] = []
        for result in benchmark.compete():
            results.append(result)
            tell(args.json, facts, benchmark, results)  # so that a long run that is stopped has told what it knew
        benchmark.in_turn(results)
        tell(args.json, facts, benchmark, results)
    names = [f"ooc {sampler}" for sampler in args.samplers] + args.peers
    results.sort(key=lambda result: (result["topics"], names.index(result["contestant"]), result["workers"]))
    print(report.describe(facts, benchmark.settings(), results))
    if args.plot:
        report.plot(results, args.plot)


if __name__ == "__main__":
    main()
