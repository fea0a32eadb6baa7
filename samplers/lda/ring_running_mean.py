"""Document-major LDA on a ring of machines whose model is a mean over the states of the chain.

See `samplers.lda.running_mean`. A word's row counts the tokens of all machines once its slice has visited all of them,
so the last machine on the trip updates its means with the row. In each iteration this is a different machine. So each
of R machines holds the terms of every R-th iteration, and the mean is the sum over machines, computed when a model is
written:

mean_T = sum_t kept(t, T) * rho_t * n_t,   kept(t, T) = prod_{u=t+1..T} (1 - rho_u)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import kernel
from blocks.corpus.dataset import WordSlice
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.ring.rotation_schedule import resting_slices
from samplers.lda.doc_major import is_small
from samplers.lda.gathered_documents import GatheredDocuments
from samplers.lda.program import LdaProgram
from samplers.lda.ring_doc_major import RingDocumentMajorLda
from samplers.lda.running_mean import DECAY, LEAST_COUNT, RunningMeanLda, mean_rows, mean_totals
from samplers.lda.word_prior import rows_of_model
from samplers.lda.word_topic_rows import WordTopicRows, nonzeros


def kept(since: int, iteration: int) -> float:
    """Return the factor by which the states after iteration `since` have reduced the weight of a mean."""
    return math.prod((since + i) / (iteration + i) for i in range(DECAY + 1))


class RingRunningMeanLda(RingDocumentMajorLda, RunningMeanLda):
    """Mixin for samplers on a ring, listed before the sampler's program in the bases.

    running_mean: whether the model is the mean, if the rows of all words are small enough; else it is the last state.
    """

    mean_parts = Phase("parts of means", "slice", writes=False)

    def __init__(self, *args: Any, running_mean: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.has_mean = running_mean and is_small(self.topics, self.dataset.vocabulary_size)
        if self.has_mean:
            self.reading_phases = (*self.reading_phases, self.mean_parts)
            documents = GatheredDocuments.document_names, LdaProgram.document_rows, GatheredDocuments.document_numbers
            self.exported = (self.mean_parts, *documents)

    def export_bytes(self) -> int:
        means = 4 * self.dataset.vocabulary_size * self.topics if self.has_mean else 0
        return super().export_bytes() + means

    def warm_up(self) -> None:
        super().warm_up()
        if self.has_mean:
            one = np.zeros((1, self.topics), np.float32)
            layout = self.layout.masks[:1], self.layout.starts[:1]
            rows = WordTopicRows(self.topics, *layout, np.zeros(1, np.int32), np.zeros(1, np.int64))
            take_in_rows(rows, 0, self.counts, one[:0], 1.0, 1.0)
            add_rows(*mean_rows(one, 1.0), 1.0, one)

    def slice_sampled(self, job: Job, first: int) -> None:
        iteration = job.stream[0] + 1
        if not self.has_mean or not self._rests(job.unit, iteration):
            return
        rate = (DECAY + 1) / (iteration + DECAY)
        keep = kept(max(iteration - self.dataset.shards, 0), iteration)
        means = self.means(job.shared)[first : first + job.last - job.first]
        take_in_rows(self.rows(job.shared), first, self.counts, means, keep, rate)

    def _rests(self, slice_: int, iteration: int) -> bool:
        """Return whether the trip of a slice in an iteration, counted from 1, ended at this machine."""
        return slice_ in resting_slices(self.dataset.slice_count, self.dataset.shards, self.dataset.shard, iteration)

    def update_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> Any:
        if job.phase != self.mean_parts.name:
            return super().update_words(job, slice_, key)
        iteration, machines = job.stream[0], self.dataset.shards
        ends = range(iteration, max(iteration - machines, 0), -1)
        since = next((end for end in ends if self._rests(job.unit, end)), 0)
        first = int(self.dataset.index.slice_bounds[job.unit])
        means = self.means(job.shared)[first + job.first : first + job.last]
        scale = kept(since, iteration) if since else 0.0
        least = LEAST_COUNT / (machines * scale) if scale else math.inf
        return *mean_rows(means, least), np.array([scale])

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        if not self.has_mean:
            super().export(sweep, shared, directory)
            return
        means, word = np.zeros((self.dataset.vocabulary_size, self.topics), np.float32), 0
        for sizes, rows, scale in sweep(self.mean_parts):  # all words of one machine, then those of the next machine
            add_rows(sizes, rows, scale[0], means[word : word + sizes.size])
            word = (word + sizes.size) % len(means)
        self.write(sweep, shared, directory, mean_totals(means), self._by_slice(means))

    def _by_slice(self, means: np.ndarray) -> Iterator[Any]:
        for first, last in pairwise(self.dataset.index.slice_bounds.tolist()):
            own = self.own_prior.from_word(first) if self.own_prior else None
            yield rows_of_model(mean_rows(means[first:last], LEAST_COUNT), own, floats=True)


@kernel
def take_in_rows(rows, first, counts, means, keep, rate):
    """Update the means of words with their rows: means = keep * means + rate * n.

    rows: `samplers.lda.word_topic_rows.WordTopicRows`.
    first: rank of the first word.
    counts: `samplers.lda.document_kernels.DocumentCountsScratch`, whose `row_topics` and `row_counts` are overwritten.
    means: float32 (W, K).
    """
    kept_share, share = np.float32(keep), np.float32(rate)
    for w in range(means.shape[0]):
        for k in range(means.shape[1]):
            means[w, k] *= kept_share
        for i in range(nonzeros(rows, first + w, counts.row_topics, counts.row_counts)):
            means[w, counts.row_topics[i]] += share * np.float32(counts.row_counts[i])


@kernel
def add_rows(sizes, rows, scale, means):
    """Add the counts of words, multiplied by `scale`, to float32 (W, K).

    sizes, rows: results of `mean_rows`.
    """
    share, i = np.float32(scale), 0
    bits = (rows & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    for w in range(sizes.size):
        for _ in range(sizes[w]):
            means[w, rows[i] >> np.uint64(32)] += share * bits[i]
            i += 1
