"""Document-major LDA whose model is a mean over the states of the chain, with more weight on later states.

A single state is one draw, and so partly noise. The mean over the iterations t = 1, 2, ... predicts better, and forgets
the start of the chain if later states weigh more (polynomial-decay averaging; Shamir and Zhang, ICML 2013, section 4):

    mean_1 = n_1,   mean_t = (1 - rho_t) * mean_{t-1} + rho_t * n_t,   rho_t = (DECAY + 1) / (t + DECAY)

in which n_t has a weight of about t^DECAY. Only the counts of words are averaged; the counts of documents come from the
last state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import kernel, unmanaged_kernel
from blocks.corpus.dataset import TokenBlock, WordSlice
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda.doc_major import DocumentMajorLda
from samplers.lda.word_prior import rows_of_model

DECAY = 2
LEAST_COUNT = 0.01  # smaller counts, remainders of old states, are dropped from the rows of a model


class RunningMeanLda(DocumentMajorLda):
    """Mixin for samplers that process whole blocks; subclasses add `sample_cell`.

    running_mean: whether the model is the mean, if rows are small enough for whole blocks; else it is the last state.
    """

    whole_blocks = True

    def __init__(self, *args: Any, running_mean: bool = True, **options: Any) -> None:
        super().__init__(*args, **options)
        self.has_mean = running_mean and self.whole_blocks

    def shared_arrays(self) -> dict[str, ArraySpec]:
        mean = (
            {"mean_rows": ArraySpec((self.dataset.vocabulary_size * self.topics,), "float32")} if self.has_mean else {}
        )
        return super().shared_arrays() | mean

    def primary_arrays(self) -> Sequence[str]:
        return (*super().primary_arrays(), *(("mean_rows",) if self.has_mean else ()))

    def large_arrays(self) -> Collection[str]:
        return {*super().large_arrays(), "dense_rows", "mean_rows"}

    def warm_up(self) -> None:
        super().warm_up()
        if self.has_mean:
            take_in(np.zeros(1, np.int32), np.zeros(1, np.float32), 1.0)
            mean_rows(np.zeros((1, 1), np.float32), LEAST_COUNT)
            mean_totals(np.zeros((1, 1), np.float32))

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        stages = super().schedule(phase, unit, parts)
        ends = phase is self.documents and unit == self.dataset.block_count - 1
        return [*stages, range(parts)] if ends and self.has_mean else stages

    def update_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        last = self.opening + len(self.steps())
        if not self.has_mean or job.phase != self.documents.name or job.stage < last:
            return super().update_documents(job, block, key)
        mine = job.share(self.layout.dense)
        iteration = job.stream[0] + 1
        rate = (DECAY + 1) / (iteration + DECAY)
        take_in(job.shared["dense_rows"][mine], job.shared["mean_rows"][mine], rate)
        return 0

    def update_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> Any:
        if job.phase != self.word_rows.name or not self.has_mean:
            return super().update_words(job, slice_, key)
        first = self.first_word(job)
        rows = mean_rows(self.means(job.shared)[first : first + job.last - job.first], LEAST_COUNT)
        return rows_of_model(rows, self.own_prior_of(job), floats=True)

    def means(self, shared: Arrays) -> np.ndarray:
        """Return the mean counts of all words, float32 (V, K)."""
        return shared["mean_rows"].reshape(-1, self.topics)

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        if not self.has_mean:
            super().export(sweep, shared, directory)
            return
        self.write(sweep, shared, directory, mean_totals(self.means(shared)), sweep(self.word_rows))


@unmanaged_kernel
def take_in(rows, means, rate):
    """Update float32 means with the int32 counts of a state: means += rate * (counts - means)."""
    share = np.float32(rate)
    for i in range(rows.size):
        means[i] += share * (np.float32(rows[i]) - means[i])


@kernel
def mean_rows(means, least):
    """Return the rows of words, float32 (W, K), in the form of `samplers.lda.token_kernels.word_rows`, with the bits of
    float32 as counts.

    least: minimum of a count in the rows.
    """
    bits = means.view(np.uint32)
    sizes = np.zeros(means.shape[0], np.uint32)
    for w in range(means.shape[0]):
        for k in range(means.shape[1]):
            sizes[w] += means[w, k] >= least
    rows = np.empty(sizes.sum(), np.uint64)
    filled = 0
    for w in range(means.shape[0]):
        for k in range(means.shape[1]):
            if means[w, k] >= least:
                rows[filled] = np.uint64(k) << np.uint64(32) | np.uint64(bits[w, k])
                filled += 1
    return sizes, rows


@kernel
def mean_totals(means):
    """Return the sum of each topic's counts over the rows of `mean_rows`, float64 (K,)."""
    totals = np.zeros(means.shape[1])
    for w in range(means.shape[0]):
        for k in range(means.shape[1]):
            if means[w, k] >= LEAST_COUNT:
                totals[k] += means[w, k]
    return totals
