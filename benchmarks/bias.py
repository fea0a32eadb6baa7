"""Measure how much held-out likelihood delayed updates of counts cost, beside exact Gibbs sampling.

    python -m benchmarks.bias ../shared/data/docword.ap.txt.gz --topics 20 --iterations 160

Every chain trains on the same documents and is evaluated on the same others (document completion, as `ooc evaluate`).
A chain's value is the mean over the evaluations of its second half. That it has converged is seen from the means of its
third and fourth quarter: the rise from one to the other should be within the spread between seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import corpus as corpora
from blocks import Dataset, write_corpus
from blocks.corpus.partition import BLOCK_TOKENS
from ooc.runs.run import Run
from samplers.lda.held_out import FIELD
from samplers.lda.training import train_lda
from samplers.models import open_model
from samplers.topics.inference import evaluate

EXACT = "gibbs immediate"
EVALUATIONS = 8  # of each chain; those of the second half count
ROW = "| {} | {} | {} | {:.4f} | {:.4f} | {:+.4f} | {:.4f} | {:+.2f}% | {:+.2f}% |"


class SamplerVariant(NamedTuple):
    """A sampler and an update mode.

    factor: number of iterations relative to Gibbs sampling, as the variant mixes more slowly.
    """

    sampler: str
    update: str | None
    factor: int = 1
    mh_steps: int | None = None


VARIANTS = {EXACT: SamplerVariant("gibbs", "immediate")}
for _sampler, _factor in (("gibbs", 1), ("sparselda", 1), ("aliaslda", 1), ("lightlda", 2)):
    for _update in ("delayed", "data-parallel", "rotation"):
        VARIANTS[f"{_sampler} {_update}"] = SamplerVariant(_sampler, _update, _factor)
VARIANTS["sparse-gibbs delayed"] = SamplerVariant("sparse-gibbs", "delayed")
VARIANTS["two-phase"] = SamplerVariant("two-phase", None, 3)
VARIANTS["two-phase --mh-steps 4"] = SamplerVariant("two-phase", None, 2, 4)


class BiasDocuments(NamedTuple):
    """Training documents, and held-out documents in the vocabulary of the training documents."""

    training: Dataset
    held_out: Dataset


@dataclass(frozen=True)
class BiasChain:
    """Held-out log-likelihood per token of one chain: at each evaluation, and for the average of the last states."""

    iterations: int
    values: Sequence[float]
    averaged: float

    def mean(self, first: float, last: float = 1.0) -> float:
        """Return the mean over the evaluations between two fractions of the chain."""
        size = len(self.values)
        return statistics.fmean(self.values[round(first * size) : round(last * size)])


def split(source: Path, directory: Path, *, held_out: int, documents: int = 0, **grid: Any) -> BiasDocuments:
    """Create training and held-out datasets from the first documents of a UCI file (0: all), in random order."""
    vocabulary = source.with_name(source.name.replace("docword", "vocab").removesuffix(".gz"))
    corpus, words = corpora.load_uci(source, vocabulary)
    corpus = corpora.shuffled(corpus, 0)
    corpus = corpus.head(documents or corpus.documents)
    ours, others = corpus.head(corpus.documents - held_out), corpus.tail(held_out)
    training = write_corpus(directory / "training", ours.offsets, ours.words, words, **grid)
    held_out_part = directory / "held-out", others.offsets, others.words, words
    return BiasDocuments(training, write_corpus(*held_out_part, vocab_from=training.path))


def run_chain(
    data: BiasDocuments, path: Path, variant: SamplerVariant, *, topics: int, iterations: int, seed: int, **more: Any
) -> BiasChain:
    """Train one chain in the new run directory `path`, with the number of iterations times the variant's factor."""
    iterations *= variant.factor
    options = {"sampler": variant.sampler, "update": variant.update, "mh_steps": variant.mh_steps, **more}
    options |= {
        "evaluate_every": iterations // EVALUATIONS,
        "average": EVALUATIONS // 2,
        "held_out": data.held_out.path,
    }
    train_lda(data.training.path, path, topics=topics, iterations=iterations, seed=seed, quiet=True, **options)
    found = evaluate(open_model(path), data.held_out, workers=1, quiet=True)
    values = [line[FIELD] for line in Run(path).metrics() if FIELD in line]
    return BiasChain(iterations, values, found["predictive_log_likelihood_per_token"])


def row(name: str, chains: Sequence[BiasChain], exact: Sequence[BiasChain]) -> str:
    """Return one line of the table."""
    value = statistics.fmean(chain.mean(0.5) for chain in chains)
    averaged = statistics.fmean(chain.averaged for chain in chains)
    spread = statistics.stdev(chain.mean(0.5) for chain in chains) if len(chains) > 1 else 0.0
    rise = statistics.fmean(chain.mean(0.75) - chain.mean(0.5, 0.75) for chain in chains)
    reference = statistics.fmean(chain.mean(0.5) for chain in exact)
    reference_averaged = statistics.fmean(chain.averaged for chain in exact)
    differences = 100 * (1 - value / reference), 100 * (1 - averaged / reference_averaged)
    return ROW.format(name, chains[0].iterations, len(chains), value, spread, rise, averaged, *differences)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.bias", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("corpus", type=Path, help="docword.X.txt.gz, beside vocab.X.txt")
    add("--held-out", type=int, default=246, help="documents that nobody trains on")
    add("--topics", type=int, default=20)
    add("--iterations", type=int, default=160, help="of Gibbs sampling; of others two or three times as many")
    add("--seeds", type=int, nargs="+", default=[0, 1], help="a chain from each")
    add("--block-tokens", type=int, default=BLOCK_TOKENS)
    add("--slices", type=int, help="[default: by the size of the corpus]")
    add("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    add("--workers", type=int, default=1)
    add("--scratch", type=Path, help="for temporary files")
    add("--json", type=Path, help="write the numbers there")
    return parser.parse_args()


def main() -> None:
    """Print the table, each line as soon as its chains are finished."""
    args = options()
    chosen = [EXACT, *(name for name in args.variants if name != EXACT)]
    found: dict[str, list[BiasChain]] = {}
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        grid = {"block_tokens": args.block_tokens, "slices": args.slices}
        data = split(args.corpus, Path(scratch), held_out=args.held_out, **grid)
        print(
            f"{args.corpus.name}, K = {args.topics}: {data.training.documents:,} documents, {data.training.tokens:,} "
            f"tokens in {data.training.block_count} blocks x {data.training.slice_count} slices; "
            f"{data.held_out.documents:,} held out\n\n"
            "| | iterations | chains | held out | spread | rise | average | to gibbs | average to gibbs |\n"
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        )
        for name in chosen:
            configured = {"topics": args.topics, "iterations": args.iterations}
            found[name] = []
            for seed in args.seeds:
                path = Path(scratch) / f"{name}-{seed}"
                if VARIANTS[name].update != "immediate":
                    configured["workers"] = args.workers
                found[name].append(run_chain(data, path, VARIANTS[name], seed=seed, **configured))
            print(row(name, found[name], found[EXACT]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({name: [asdict(chain) for chain in each] for name, each in found.items()}))


if __name__ == "__main__":
    main()
