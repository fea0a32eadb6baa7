"""Measure the effect of each optimisation of the static engine, like figures 8 and 9 of the STRADS paper.

    python -m benchmarks.static_engine docword.arxiv300k.txt.gz --topics 1000 --output figures

Engines that differ in one switch (`ooc.workers.engine_options`) do the same iterations of LDA from the same start, in
turn, so that they meet the same machine; ratios are medians over the turns. What they compute must be the same bit for
bit, so none hurts what an iteration achieves (figures 8c and 9c). `checkpoints` commit all state in every iteration;
the last lines tell what that costs when it is done once a minute. Writes `static-engine.json` and `static-engine.png`:
how the tokens of a slice spread over its words (9a), tokens a second, likelihood against seconds and against tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import corpus as corpora
from benchmarks.report import describe_machine, machine
from blocks import Dataset, memory, write_corpus
from blocks.control_groups import core_count
from blocks.errors import OocError
from ooc.engine import StaticEngine
from ooc.plan.memory_plan import make_plan
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations
from ooc.state.unit_passes import RESIDENT
from ooc.training_loop import CHECKPOINT_S
from ooc.workers.engine_options import EngineOptions
from samplers.lda.programs import sampler_spec
from samplers.lda.training import DEFAULT_BETA, default_alpha

SAME = "as it is"
VARIANTS = {  # how the engine is switched, and whether every iteration is committed
    SAME: (EngineOptions(), False),
    "micro synchronization": (EngineOptions(macro=False), False),
    "parts in random order": (EngineOptions(heaviest_first=False), False),
    "a queue per worker": (EngineOptions(own_queues=True), False),
    "checkpoints in the background": (EngineOptions(), True),
    "checkpoints in the foreground": (EngineOptions(background=False), True),
}
Result = dict[str, Any]


def options(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.static_engine",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("corpus", type=Path, help="a UCI bag of words, or a dataset made by ooc ingest")
    add("--documents", type=int, help="use so many, chosen at random (default: all)")
    add("--output", type=Path, default=Path("static-engine-benchmark"), help="directory for what is written")
    add("--sampler", default="two-phase")
    add("--topics", type=int, default=1_000)
    add("--workers", type=int, default=core_count())
    add("--iterations", type=int, default=20)
    add("--seed", type=int, default=0)
    add("--scratch", type=Path, help="for temporary files")
    return parser.parse_args(arguments)


def load(args: argparse.Namespace, scratch: Path) -> Dataset:
    """Return the corpus as a dataset; a dataset is used as it is, unless only some of its documents are requested."""
    if args.corpus.is_dir() and not args.documents:
        return Dataset(args.corpus)
    corpus, vocabulary = corpora.load_any(args.corpus, None)
    if args.documents:
        corpus = corpora.shuffled(corpus, args.seed).head(args.documents)
    return write_corpus(scratch / "dataset", corpus.offsets, corpus.words, vocabulary, seed=args.seed)


def compare(args: argparse.Namespace, dataset: Dataset, scratch: Path) -> list[Result]:
    """Run all variants for the same iterations in turn; returns seconds and likelihoods of each."""
    prior = {"topics": args.topics, "alpha": default_alpha(args.topics), "beta": DEFAULT_BETA, "seed": args.seed}
    spec = sampler_spec(args.sampler, prior, {})
    program = spec.build(dataset)
    plan = make_plan(dataset, program, args.workers, memory.available_memory() // len(VARIANTS))
    if not plan.resident:
        raise SystemExit("the state of all variants does not fit in memory; give fewer --documents")
    layout = CellLayout(dataset.index.cells, program.local_state())
    with ExitStack() as stack:
        engines = {}
        for number, (name, (switches, _)) in enumerate(VARIANTS.items()):
            generations = StateGenerations(scratch / f"state{number}", dataset, layout)
            engines[name] = stack.enter_context(StaticEngine(dataset, spec, generations, plan, switches))
            engines[name].start()
        found: dict[str, Result] = {name: {"variant": name, "seconds": [], "likelihood": []} for name in VARIANTS}
        for iteration in range(args.iterations):
            say(f"iteration {iteration + 1} ...")
            order = list(VARIANTS)[iteration % len(VARIANTS) :] + list(VARIANTS)[: iteration % len(VARIANTS)]
            for name in order:
                found[name]["seconds"].append(seconds_of_iteration(engines[name], checkpoint=VARIANTS[name][1]))
                found[name]["likelihood"].append(engines[name].objective()["log_likelihood_per_token"])
        for name, engine in engines.items():
            if not np.array_equal(engine.shared[RESIDENT], engines[SAME].shared[RESIDENT]):
                raise SystemExit(f"{name}: topics differ from those of the engine as it is")
    return list(found.values())


def seconds_of_iteration(engine: StaticEngine, *, checkpoint: bool) -> float:
    """Run one iteration; returns its duration, including a commit if there is one."""
    began = time.monotonic()
    for phase in range(len(engine.program.phases)):
        engine.step(checkpoint=checkpoint and phase == len(engine.program.phases) - 1)
    if checkpoint:
        engine.commit()
    return time.monotonic() - began


def describe(results: list[Result], tokens: int) -> Iterator[str]:
    """Return the results as text, without the first iteration, which has cold caches."""
    same = results[0]["seconds"][1:]
    yield f"{'':24}{'M tokens/s':>12}{'x its speed':>14}{'s more':>10}"
    for result in results:
        ratios = [mine / its for mine, its in zip(same, result["seconds"][1:], strict=True)]
        more = statistics.median(its - mine for mine, its in zip(same, result["seconds"][1:], strict=True))
        speed = tokens / statistics.median(result["seconds"][1:]) / 1e6
        yield f"{result['variant']:24}{speed:12.2f}{statistics.median(ratios):14.3f}{more:10.3f}"
        if result["variant"].startswith("checkpoints"):
            yield f"{'':24}once a minute: {max(more, 0) / CHECKPOINT_S:.2%} of the time"
    yield "all variants have the same topics, bit for bit"


def draw(results: list[Result], dataset: Dataset, path: Path) -> None:
    """Draw the four panels described in the module docstring."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((words, speeds), (by_seconds, by_tokens)) = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    sizes = np.sort(np.diff(dataset.slice(0).token_offsets))[::-1]
    words.loglog(np.arange(1, sizes.size + 1), sizes)
    words.set(title="tokens of the words of a slice", xlabel="word, by frequency", ylabel="tokens")
    names = [result["variant"] for result in results]
    speeds.barh(names, [dataset.tokens / statistics.median(result["seconds"][1:]) / 1e6 for result in results])
    speeds.invert_yaxis()
    speeds.set(title="data against time", xlabel="million tokens a second")
    for result in results:
        iterations = np.arange(1, len(result["seconds"]) + 1)
        by_seconds.plot(np.cumsum(result["seconds"]), result["likelihood"], label=result["variant"])
        by_tokens.plot(iterations * dataset.tokens / 1e6, result["likelihood"], label=result["variant"])
    by_seconds.set(title="objective against time", xlabel="seconds", ylabel="log-likelihood per token")
    by_tokens.set(title="objective against data", xlabel="million tokens", ylabel="log-likelihood per token")
    by_seconds.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark; by default, arguments come from the command line."""
    args = options(arguments)
    facts = machine()
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        try:
            dataset = load(args, Path(scratch))
            results = compare(args, dataset, Path(scratch))
        except OocError as error:
            raise SystemExit(str(error)) from None
        settings = {**vars(args), "corpus": args.corpus.name, "output": args.output.name, "tokens": dataset.tokens}
        found = {"machine": facts, "settings": settings, "results": results}
        (args.output / "static-engine.json").write_text(json.dumps(found, default=str) + "\n", encoding="utf-8")
        what = f"{args.sampler}, K = {args.topics:,}, {args.workers} workers, {dataset.tokens:,} tokens"
        print("\n".join([*describe_machine(facts), what, *describe(results, dataset.tokens)]))
        draw(results, dataset, args.output / "static-engine.png")


if __name__ == "__main__":
    main()
