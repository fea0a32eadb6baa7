"""Simulate N workers on one machine: model-parallel rotation (STRADS) against data parallelism (YahooLDA).

A worker is a shard of documents. What matters for the progress of a data sample is which counts a worker sees, not
when: so the N shards may be sampled by any number of processes. Topics of documents are always exact; SparseLDA, which
both systems run, is the sampler, since rotation updates rows in place, where alias tables would cost O(K) a token.

    rotation       In turn r worker p samples its tokens of the words of slice p + r: rows are exact. The summary row is
                   that of the turn's start and the worker's own changes. N turns are an iteration. It is
                   `--update rotation` on a dataset of one block and N slices.
    data-parallel  A worker samples all its tokens on a copy of the rows and of the summary row, both those of the
                   iteration's start and its own changes; all copies are synchronized once an iteration. It is the
                   program below on a dataset of one block and N parts. YahooLDA synchronizes without pause, word by
                   word: it falls behind as far as this if a round of all words takes it as long as an iteration.
    frozen         `--update data-parallel` of the samplers: a worker does not see its own changes of rows either. It
                   is the limit of data parallelism for many workers.

With one worker, rotation and data-parallel are sequential Gibbs sampling.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import Corpus
from blocks import Dataset, write_corpus
from blocks.errors import RequestError
from ooc.program import Job
from ooc.workers.worker import ProgramSpec, unit_parts
from samplers.lda.document_kernels import DocumentCell
from samplers.lda.programs import SparseLda, sampler_spec


class DataParallelSparseLda(SparseLda):
    """SparseLDA in which each part of a block is sampled with its own copy of all rows."""

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        super().__init__(dataset, update="data-parallel", **options)
        self.in_place = True

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        copies = {name: job.shared[name].copy() for name in ("dense_rows", "row_tables")}
        return super().sample_cell(replace(job, shared={**job.shared, **copies}), cell, key)


MODES = ("rotation", "data-parallel", "frozen")


def mode_spec(mode: str, options: dict[str, Any]) -> ProgramSpec:
    """Return the program for one of MODES.

    options: options of every LDA sampler.
    """
    if mode == "data-parallel":
        return ProgramSpec(f"{__name__}:{DataParallelSparseLda.__name__}", options)
    return sampler_spec("sparselda", options, {"update": "data-parallel" if mode == "frozen" else mode})


def write_for_workers(path: Path, corpus: Corpus, vocabulary: list[str], workers: int, seed: int) -> Dataset:
    """Write a dataset with one block that has a slice and a part for each simulated worker."""
    dataset = write_corpus(
        path,
        corpus.offsets,
        corpus.words,
        vocabulary,
        seed=seed,
        block_tokens=corpus.tokens,
        part_tokens=-(-corpus.tokens // workers),
        slices=workers,
    )
    if (shards := unit_parts(dataset, "block", 0)[1].size - 1) != workers:
        raise RequestError(f"the corpus is too small for {workers} workers: it falls into {shards} shards")
    return dataset
