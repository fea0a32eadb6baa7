"""Document-major LDA on a ring of machines: slice-outer, block-inner.

On one machine each block visits all slices (see `samplers.lda.doc_major`). On a ring, slices would then have to go
round once per block. So here each slice visits all blocks while it is on a machine: the rows of its words are unpacked;
for each block, its tokens of these words are sampled with frozen rows, which are then updated; finally the rows are
packed and sent on. Rows count exactly the tokens of all machines; only the summary row is stale.

The counts of a document include its tokens in all slices, so the topics and words of all tokens stay in memory,
document by document: 4 bytes per token, plus the topic. They are laid out when a run is started or resumed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from blocks.corpus.dataset import TokenBlock, WordSlice
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda import rotating_rows
from samplers.lda.doc_major import DocumentMajorLda
from samplers.lda.document_kernels import find_words, order_tokens
from samplers.lda.program import tiny_data, topic_type
from samplers.lda.ring_program import RingLda
from samplers.lda.word_topic_rows import DENSE, row_sizes

_OPEN = "open"  # the first step: record the topics under which the rows count the tokens of a cell


class RingDocumentMajorLda(RingLda, DocumentMajorLda):
    """Mixin for a `samplers.lda.doc_major` program in mode delayed, listed before it in the bases. Rows are kept for
    one slice at a time."""

    whole_blocks = False

    cells = Phase("cells", "slice", staged=True, travels="changed")
    laid_out = Phase("laying out", "block", writes=False)
    reading_phases: Sequence[Phase] = (*RingLda.reading_phases, laid_out)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.phases = (self.cells,)
        self._begins = np.append(0, np.cumsum(self.dataset.block_tokens()))
        bounds = self.dataset.index.slice_bounds
        dense, tables = row_sizes(self.layout, self.topics, bounds)
        before = (np.repeat(np.cumsum(sizes) - sizes, np.diff(bounds)) for sizes in (dense, tables))
        self.layout = self.layout._replace(
            starts=self.layout.starts - np.where(self.layout.masks == DENSE, *before),
            dense=int(dense.max(initial=0)),
            tables=int(tables.max(initial=0)),
        )

    def word_tokens(self) -> np.ndarray:
        return self.dataset.whole.frequencies

    def shared_arrays(self) -> dict[str, ArraySpec]:
        arrays = super().shared_arrays()
        del arrays["position_words"]
        return arrays | {
            "token_topics": ArraySpec((self.dataset.tokens,), topic_type(self.topics)),
            "token_words": ArraySpec((self.dataset.tokens,), "uint32"),
        }

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return no arrays, as memory holds the rows of one slice only."""
        return {}

    def large_arrays(self) -> Collection[str]:
        return {*super().large_arrays(), "dense_rows", "row_tables", "token_topics", "token_words"}

    def scratch_bytes(self) -> int:
        laid_out = (4 + np.dtype(topic_type(self.topics)).itemsize) * self._most_tokens
        return super().scratch_bytes() + laid_out

    def warm_up(self) -> None:
        own = self._block, self._cells
        self._block, self._cells = lambda number: tiny_data()[0], np.ones((1, 1), np.int64)
        super().warm_up()
        self._block, self._cells = own

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        super().restore(sweep, shared)
        for _ in sweep(self.laid_out):
            pass

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase == self.laid_out:
            return [range(1)]
        if phase != self.cells:
            return super().schedule(phase, unit, parts)
        every = range(parts)
        return [every, *(every if tokens else () for tokens in self._cells[:, unit] for _ in self._steps()), every]

    def _steps(self) -> tuple[str, ...]:
        return (_OPEN, *self.steps())

    def update_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        if job.phase != self.laid_out.name:
            return super().update_documents(job, block, key)
        words = np.empty(block.positions.size, np.uint32)
        find_words(block.words, block.word_offsets, words)
        span = self._of_block(job.shared, job.unit)
        counted = np.empty(words.size, span["token_topics"].dtype)
        topics, base = span["token_topics"], int(job.bases[job.unit])
        order_tokens(job.state, base, block.positions, words, topics, span["token_words"], counted)
        return 0

    def _of_block(self, shared: Arrays, block: int) -> dict[str, np.ndarray]:
        """Return the topics and words of a block's tokens, as they were laid out."""
        span = slice(self._begins[block], self._begins[block + 1])
        return {name: shared[name][span] for name in ("token_topics", "token_words")}

    def sample_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> int:
        """Run one stage of a slice: unpack its rows, do one step on one of its cells, or pack the rows."""
        assert job.passage
        arrived, leaving, left = job.passage
        first, rows = int(self.dataset.index.slice_bounds[job.unit]) + job.first, self.rows(job.shared)
        if job.stage == 0:
            rotating_rows.load_rows(arrived, rows, first, job.last - job.first)
            return 0
        block, step = divmod(job.stage - 1, len(self._steps()))
        if block == len(self._cells):
            self.slice_sampled(job, first)
            left[0] = rotating_rows.pack_rows(rows, first, job.last - job.first, self.counts, leaving, self.work)
            return 0
        cell = replace(job, unit=block, shared={**job.shared, **self._of_block(job.shared, block)})
        return self.do_step(self._steps()[step], cell, self._block(block), job.unit, key)

    def slice_sampled(self, job: Job, first: int) -> None:
        """Use the rows of a part's words, from `first` on, when all of their tokens here are sampled (a hook)."""

    def do_step(self, step: str, job: Job, block: TokenBlock, slice_: int, key: np.uint64) -> int:
        if step == "sample":
            span = job.share(block.positions.size)
            return self._sample(job, block, np.searchsorted(block.offsets, [span.start, span.stop]), slice_, key)
        if step != _OPEN:
            return super().do_step(step, job, block, slice_, key)
        first, last = self._cell_positions(job.unit, slice_)
        span, base = job.share(last - first), int(job.bases[job.unit]) + first
        job.shared["counted_topics"][first:last][span] = job.state[base : base + last - first, 0][span]
        return 0
