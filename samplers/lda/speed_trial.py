"""Measure the speed of a sampler on this machine in a short run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.corpus.from_memory import write_corpus
from blocks.corpus.hypothetical_corpus import HypotheticalCorpus
from blocks.corpus.partition import BLOCK_TOKENS
from blocks.corpus.synthetic import Synthetic, synthesize
from blocks.files import temporary_directory
from ooc.plan.memory_plan import make_plan
from ooc.ring.ring import LocalRing
from ooc.runs.new_run import create_run
from ooc.training import train
from ooc.workers.worker import ProgramSpec, slices_rotate

ITERATIONS = 4


def tokens_per_s(dataset: Dataset, spec: ProgramSpec) -> float:
    """Return the tokens per second of one worker: the fastest of a few iterations over one block.

    The block is the first of the dataset; for a hypothetical dataset it is drawn at random.
    """
    if "start" in spec.options:  # otherwise, learning the initial topics would be timed as well
        spec = spec._replace(options={**spec.options, "start": "random"})
    with temporary_directory() as directory:
        sample = _sample(dataset, directory / "data")
        run = create_run(
            directory / "run",
            sample,
            spec,
            iterations=ITERATIONS,
            evaluate_every=ITERATIONS,
            settings={"staleness": 1},
        )
        program = spec.build(sample)
        train(
            run,
            make_plan(sample, program, 1, 1 << 62),
            quiet=True,
            ring=LocalRing() if slices_rotate(program) else None,
        )
        return max(sample.tokens / line["sampling_s"] for line in run.metrics())


def _sample(dataset: Dataset, path: Path) -> Dataset:
    if isinstance(dataset, HypotheticalCorpus):
        tokens = min(dataset.tokens, BLOCK_TOKENS)
        documents = max(1, round(tokens / max(dataset.tokens / dataset.documents, 1)))
        request = Synthetic(documents, dataset.vocabulary_size, 100, length=tokens / documents)
        return synthesize(request, path, workers=1)
    block = dataset.block(0)
    ranks = np.repeat(block.words, np.diff(block.word_offsets))[block.positions]
    words, numbers = np.unique(ranks, return_inverse=True)
    return write_corpus(path, block.offsets, numbers.astype(np.uint32), [f"w{rank}" for rank in words.tolist()])
