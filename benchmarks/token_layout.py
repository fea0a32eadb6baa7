"""Compare sampling speed with a block's words and topics in two arrays, and in one array of (word, topic) pairs.

    python -m benchmarks.token_layout docword.20news.txt.gz --topics 1000

The program and its kernels are the real ones, run in this process; only the arrays `token_words` and `token_topics`
that a block is laid out in differ. `separate` is how `samplers.lda.doc_major` has them: 4 bytes and 2 (4 from 65,537
topics on). `interleaved` has them as the fields of records of 8 bytes. Every iteration is done in both layouts, taking
turns to go first, from the same state and with the same random numbers, and has to end in the same topics. Seconds are
of this process on a processor, as the machine may have other work. A kernel that is given a field learns its stride
only when it runs: that multiplication is part of what `interleaved` is charged with."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import corpus as corpora
from benchmarks.report import describe_machine, machine, table
from blocks import Dataset, write_corpus
from ooc.program import Arrays, Job, Phase
from ooc.state.cell_layout import CellLayout
from ooc.workers.worker import all_phases, unit_parts
from samplers.lda.doc_major import DocumentMajorLda
from samplers.lda.programs import sampler_spec
from samplers.lda.training import DEFAULT_BETA, default_alpha

LAYOUTS = ("separate", "interleaved")
TIMED = ("lay out", "sample")

Seconds = dict[str, float]  # of each step of an iteration


class TokenLayoutChain:
    """A document-major program on a dataset in this process, whose rows are updated after each cell. Attributes:
    `state` and `shared`, all arrays that an iteration changes.
    """

    def __init__(self, dataset: Dataset, program: DocumentMajorLda) -> None:
        self.dataset, self.program = dataset, program
        layout = CellLayout(dataset.index.cells, program.local_state())
        self.bases = layout.block_rows[:-1]
        self.state = np.zeros((dataset.tokens, program.columns), program.local_state().dtype)
        self.shared = {name: spec.zeros() for name, spec in program.shared_arrays().items()}
        self.delta = {name: spec.zeros() for name, spec in program.delta_arrays().items()}
        self.iteration = 0
        for phase in program.initial:
            for _, _, answers in self.stages(phase, self.shared):
                program.aggregate(phase, self.shared, [self.delta], answers)
                self.delta["topic_counts"][:] = 0
        program.restore(lambda phase: self.stages(phase, self.shared), self.shared)

    def stages(self, phase: Phase, shared: Arrays) -> Iterator[tuple[int, float, list[Any]]]:
        """Run a phase; yields the index of each stage of each unit, its seconds, and the answers of its parts."""
        self.program.begin(phase, shared)
        self.delta["topic_counts"][:] = 0
        number = all_phases(self.program).index(phase)
        for unit in range(self.dataset.slice_count if phase.order == "slice" else self.dataset.block_count):
            data = self.dataset.slice(unit) if phase.order == "slice" else self.dataset.block(unit)
            bounds = unit_parts(self.dataset, phase.order, unit)[1]
            for stage, parts in enumerate(self.program.schedule(phase, unit, bounds.size - 1)):
                began = time.thread_time()
                answers = [
                    self.program.update(
                        Job(
                            phase=phase.name,
                            unit=unit,
                            stage=stage,
                            part=part,
                            bounds=bounds,
                            data=data,
                            state=self.state,
                            bases=self.bases,
                            shared=shared,
                            delta=self.delta,
                            stream=(self.iteration, number, unit, stage, part),
                        )
                    )
                    for part in parts
                ]
                yield stage, time.thread_time() - began, answers

    def iterate(self, layout: Arrays) -> Seconds:
        """Run one iteration with blocks in the given arrays; returns the seconds of each step."""
        program, shared = self.program, {**self.shared, **layout}
        seconds = dict.fromkeys(("lay out", *program.steps()), 0.0)
        for stage, taken, answers in self.stages(program.documents, shared):
            step = (stage - program.opening) % len(program.steps())
            seconds["lay out" if stage < program.opening else program.steps()[step]] += taken
            program.aggregate(program.documents, shared, [self.delta], answers)
            self.delta["topic_counts"][:] = 0
        return seconds


def layouts(shared: Arrays) -> dict[str, Arrays]:
    """Return the arrays for the tokens of a block in both layouts."""
    words, topics = shared["token_words"], shared["token_topics"]
    pairs = np.zeros(words.size, np.dtype([("word", words.dtype), ("topic", topics.dtype)], align=True))
    return {
        "separate": {"token_words": words, "token_topics": topics},
        "interleaved": {"token_words": pairs["word"], "token_topics": pairs["topic"]},
    }


def measure_pair(chain: TokenLayoutChain, arrays: dict[str, Arrays]) -> dict[str, Seconds]:
    """Run the next iteration in both layouts; returns the seconds of each step in each layout."""
    changing = [chain.state, *chain.shared.values()]
    before = [array.copy() for array in changing]
    seconds: dict[str, Seconds] = {}
    ends = []
    for layout in LAYOUTS[:: 1 if chain.iteration % 2 else -1]:
        for array, value in zip(changing, before, strict=True):
            array[:] = value
        seconds[layout] = chain.iterate(arrays[layout])
        ends.append(chain.state.copy())
    if not np.array_equal(ends[0], ends[1]):
        raise SystemExit(f"the layouts differ in what iteration {chain.iteration + 1} sampled")
    chain.iteration += 1
    return seconds


def describe(pairs: list[dict[str, Seconds]]) -> Iterator[list[str]]:
    """Return a row for each step: median seconds in each layout, and median and quartiles of the pairwise ratios."""
    yield ["", *(f"{layout}, s" for layout in LAYOUTS), "separate / interleaved", "quartiles"]
    for steps in (*((step,) for step in TIMED), TIMED):
        times = {layout: [sum(pair[layout][step] for step in steps) for pair in pairs] for layout in LAYOUTS}
        ratios = [one / other for one, other in zip(*times.values(), strict=True)]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        medians = [f"{statistics.median(times[layout]):.4f}" for layout in LAYOUTS]
        yield [" + ".join(steps), *medians, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.token_layout", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("corpus", type=Path, help="a UCI bag of words, or a dataset made by ooc ingest")
    add("--sampler", choices=["gibbs", "sparselda", "aliaslda", "lightlda"], default="lightlda")
    add("--topics", type=int, default=1_000)
    add(
        "--warm-up",
        type=int,
        default=5,
        help="iterations before those that count",
    )
    add("--pairs", type=int, default=21)
    args = parser.parse_args()
    facts = machine()
    corpus, vocabulary = corpora.load_any(args.corpus, None)
    options = {"topics": args.topics, "alpha": default_alpha(args.topics), "beta": DEFAULT_BETA, "seed": 0}
    with TemporaryDirectory(prefix="ooc-benchmark-") as scratch:
        dataset = write_corpus(Path(scratch) / "dataset", corpus.offsets, corpus.words, vocabulary)
        program = sampler_spec(args.sampler, options, {}).build(dataset)
        assert isinstance(program, DocumentMajorLda)
        chain = TokenLayoutChain(dataset, program)
        arrays = layouts(chain.shared)
        pairs = [measure_pair(chain, arrays) for _ in range(args.warm_up + args.pairs)][args.warm_up :]
    print("\n".join(describe_machine(facts)))
    print(f"{args.corpus.name}: {corpus.tokens:,} tokens; {args.sampler}, K = {args.topics:,}, {args.pairs} pairs\n")
    print("\n".join(table(describe(pairs))))


if __name__ == "__main__":
    main()
