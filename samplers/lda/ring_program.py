"""LDA on a ring of machines: the part shared by all samplers, on top of the kernels in `samplers.lda.rotating_rows`.

Each machine has some of the documents (see `blocks.shards.splitting`). The word rows rotate with their slices. They are
not committed; all machines recount them when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocks.corpus.dataset import WordSlice
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.ring.packet_slots import PartInTransit
from ooc.rng import stream_key
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda import hyperparameters, packed_counts, rotating_rows, two_phase
from samplers.lda.gathered_documents import GatheredDocuments
from samplers.lda.program import LdaProgram, tokens_of_words
from samplers.lda.word_prior import rows_of_model


class RingLda(GatheredDocuments, LdaProgram):
    """Mixin for a sampler's program, listed before it in the bases; subclasses add `phases`, one of which changes the
    slices.

    The last column of the state is the topic under which the row of a token's word counts the token.
    """

    rows_made = Phase("rows", "slice", writes=False, travels="made")
    word_likelihood = Phase("word likelihood", "slice", writes=False, travels="looked at")
    word_rows = Phase("topics of words", "slice", writes=False, travels="looked at")
    word_histograms = Phase("histograms of words", "slice", writes=False, travels="looked at")
    reading_phases: Sequence[Phase] = (
        word_likelihood,
        LdaProgram.document_likelihood,
        word_rows,
        LdaProgram.document_rows,
        LdaProgram.document_histograms,
        word_histograms,
        GatheredDocuments.document_names,
        GatheredDocuments.document_numbers,
        rows_made,
    )
    exported: Sequence[Phase] = (
        GatheredDocuments.document_names,
        word_rows,
        LdaProgram.document_rows,
        GatheredDocuments.document_numbers,
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._all_frequencies = self.dataset.whole.frequencies
        self._work: rotating_rows.RotatingRowScratch | None = None

    def _words(self, slice_: int, first: int, last: int) -> np.ndarray:
        """Return the frequencies, over all machines, of words first to last of a slice, int64 (W,)."""
        start = self.dataset.index.slice_bounds[slice_]
        return self._all_frequencies[start + first : start + last]

    def rooms(self, slice_: int, bounds: np.ndarray) -> np.ndarray:
        parts = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        rooms = [packed_counts.max_packed_bytes(self._words(slice_, first, last), self.topics) for first, last in parts]
        return np.array(rooms, np.int64)

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """Return the number of bytes of the rows of all words, except in slices that are not passed on."""
        at_random = packed_counts.random_bytes(self._all_frequencies, self.topics)
        return round(at_random * packed_counts.sharpened_bytes(iteration) * (machines - 1) / machines)

    def largest_group(self) -> int:
        """Return the number of tokens in the longest document, as words are not gathered."""
        return max(self.dataset.longest_document, 1)

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + sum(spec.bytes for spec in self._work_specs().values())

    def _work_specs(self) -> dict[str, ArraySpec]:
        each = {"topics": "int32", "counts": "int32", "shares": "float64", "order": "int32", "entries": "uint64"}
        return {
            "counted": ArraySpec((self.topics,), two_phase.COUNT),
            "marks": ArraySpec((-(-self.topics // 64),), "uint64"),
            "groups": ArraySpec((-(-self.topics // 4096),), "uint64"),
            **{name: ArraySpec((self.topics,), kind) for name, kind in each.items()},
            "tokens": ArraySpec((rotating_rows.MOST_SPREAD,), "uint32"),
        }

    @property
    def work(self) -> rotating_rows.RotatingRowScratch:
        """Return the working memory of this worker."""
        if self._work is None:
            self._work = rotating_rows.RotatingRowScratch(
                **{name: spec.zeros() for name, spec in self._work_specs().items()}
            )
        return self._work

    def warm_up(self) -> None:
        super().warm_up()
        self._work = None

    def tiny_passage(self, phase: Phase, state: np.ndarray) -> PartInTransit | None:
        if not phase.travels:
            return None
        more = int(state[0, -1]) - 15
        large = [15 << 4, more & 127 | 128, more >> 7 & 127 | 128, more >> 14]
        entry = large if more >= 0 else [more + 15 << 4]  # the only token and its topic
        row = [len(entry), 0, 0, 0, *entry]
        data = np.array([] if phase is self.rows_made else row, np.uint8)
        return PartInTransit(data, np.zeros(16, np.uint8), np.zeros(1, np.int64))

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        LdaProgram.restore(self, sweep, shared)  # skip the sampler's recount of its own rows: rows rotate
        for _ in sweep(self.rows_made):
            pass

    def key(self, job: Job) -> np.uint64:
        return stream_key(self.seed, self.dataset.shard, *job.stream)

    def update_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> Any:
        assert job.passage
        if job.phase == self.word_likelihood.name:
            prior, words = self.word_prior(job.shared), job.last - job.first
            return rotating_rows.rows_likelihood(job.passage.arrived, words, prior, self.own_prior_of(job))
        if job.phase == self.word_rows.name:
            return rows_of_model(self._unpack(job, job.passage), self.own_prior_of(job))
        if job.phase == self.word_histograms.name:
            return hyperparameters.histogram(self._unpack(job, job.passage)[1] & hyperparameters.COUNT)
        if job.phase != self.rows_made.name:
            return self.sample_words(job, slice_, key)
        arrived, leaving, left = job.passage
        left[0] = rotating_rows.count_phase(*tokens_of_words(job, slice_), arrived, leaving, self.work)
        return 0

    def _unpack(self, job: Job, passage: PartInTransit) -> tuple[np.ndarray, np.ndarray]:
        most = int(np.minimum(self._words(job.unit, job.first, job.last), self.topics).sum())
        sizes, rows = np.empty(job.last - job.first, np.uint32), np.empty(most, np.uint64)
        filled = rotating_rows.unpack_rows(passage.arrived, sizes.size, sizes, rows)
        return sizes, rows[:filled].copy()
