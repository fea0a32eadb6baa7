"""Document-major LDA: block-outer, slice-inner, with stored word rows (LightLDA section 5, STRADS section 3.3).

The *update* of a run says when newly sampled topics enter the word rows and the summary row:

    delayed        word rows are frozen while a cell is sampled; afterwards each job updates a share of its words
    data-parallel  word rows are frozen for a whole iteration, then recounted (stale, as in the workers of YahooLDA)
    rotation       a block has as many document shards as there are slices; in turn r, shard p works on slice p + r
                   and updates its rows in place. Only the summary row is stale; the s-error is reported
    immediate      a single job samples the whole block, with all counts exact

In all modes but data-parallel, a block sees the topics sampled in the blocks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock, WordSlice
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda.document_kernels import (
    DocumentCell,
    DocumentCountsScratch,
    aggregate_words,
    count_words,
    find_words,
    order_tokens,
)
from samplers.lda.program import LdaProgram, tokens_of_words, topic_type
from samplers.lda.start_from_model import ModelInitializedSampler
from samplers.lda.word_topic_rows import WordTopicRows, row_layout, row_sizes

_NOTHING = np.empty(0, np.int64), np.empty(0, np.int64)  # topics whose counts changed, and the changes
_TAPERED = [4] * 2 + [2] * 2 + [1] * 4  # relative sizes of the last parts of a block; all other parts have size 8
UPDATES = ("delayed", "data-parallel", "rotation", "immediate")
SMALL = 1 << 29  # maximum bytes of dense rows with which a sampler may read the rows of all slices at once


def is_small(topics: int, vocabulary_size: int) -> bool:
    """Return whether the rows of all words may be dense."""
    return 4 * topics * vocabulary_size <= SMALL


class DocumentMajorLda(ModelInitializedSampler):
    """Base class of document-by-document samplers; subclasses add `sample_cell`.

    update: one of UPDATES. Attribute `opening`: number of stages of a block before its first step. The first looks up
        the word at each position; the second lays out the documents. If one job samples whole documents, it lays them
        out itself, without a second stage.

    With `whole_blocks` set, in mode delayed, a sampler processes all cells of a block together if the rows of all
    slices are small: documents are opened once per block instead of once per cell, and all rows are dense. A job that
    has updated rows also opens the next block for the words of these rows, in the same stage.
    """

    whole_blocks = False

    documents = Phase("document", "block", staged=True)
    word_counts = Phase("counts of words", "slice", writes=False)
    reading_phases: Sequence[Phase] = (*LdaProgram.reading_phases, word_counts)

    def __init__(self, dataset: Dataset, *, update: str = "delayed", **options: Any) -> None:
        super().__init__(dataset, **options)
        if update not in UPDATES:
            raise RequestError(f"--update: unknown update {update!r}", f"Choose one of: {', '.join(UPDATES)}.")
        self.update_mode = update
        self.in_place = update in ("rotation", "immediate")
        self.phases = (self.word_counts, self.documents) if update == "data-parallel" else (self.documents,)
        self._most_tokens = int(dataset.block_tokens().max(initial=1))
        if update != "delayed" or not is_small(self.topics, dataset.vocabulary_size):
            self.whole_blocks = False
        self.layout = row_layout(self.word_tokens(), self.topics, all_dense=self.whole_blocks)
        self.opening = 1 if self.whole_blocks or update in ("data-parallel", "immediate") else 2
        self._cells = dataset.index.cells
        self._block: Callable[[int], TokenBlock] = lru_cache(maxsize=2)(dataset.block)
        self._counts: DocumentCountsScratch | None = None

    def word_tokens(self) -> np.ndarray:
        """Return the number of tokens counted in the row of each word, int64 (V,)."""
        return self.dataset.index.frequencies

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return {
            **super().shared_arrays(),
            "dense_rows": ArraySpec((self.layout.dense,), "int32"),
            "row_tables": ArraySpec((self.layout.tables,), "int64"),
            "position_words": ArraySpec((self._most_tokens,), "uint32"),
            "token_topics": ArraySpec((self._most_tokens,), topic_type(self.topics)),
            "token_words": ArraySpec((self._most_tokens,), "uint32"),
            "counted_topics": ArraySpec((self._most_tokens,), topic_type(self.topics)),
        }

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return the rows, unless they are updated in place, in which case every stage changes rows of all slices."""
        if self.in_place or self.whole_blocks:
            return {}
        dense, tables = row_sizes(self.layout, self.topics, self.dataset.index.slice_bounds)
        return {"dense_rows": dense, "row_tables": tables}

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        if phase is self.word_counts:
            return True
        if phase is not self.documents:
            return False
        return self.update_mode == "delayed" and stage >= self.opening and self._step(stage)[1] == "aggregate"

    def _step(self, stage: int) -> tuple[int, str]:
        """Return the slice of a stage and the step done in it."""
        slice_, step = divmod(stage - self.opening, len(self.steps()))
        return slice_, self.steps()[step]

    def rows(self, shared: Arrays) -> WordTopicRows:
        """Return the rows of all words."""
        return WordTopicRows(
            self.topics, self.layout.masks, self.layout.starts, shared["dense_rows"], shared["row_tables"]
        )

    def own_bytes(self) -> int:
        return super().own_bytes() + 2 * (self.layout.masks.nbytes + self.layout.starts.nbytes)

    def scratch_bytes(self) -> int:
        counts = sum(spec.bytes for spec in self._count_specs().values())
        return super().scratch_bytes() + counts

    def _count_specs(self) -> dict[str, ArraySpec]:
        k = self.topics
        return {
            "topics": ArraySpec((k,), "int32"),
            "present": ArraySpec((k + 1,), "int32"),
            "places": ArraySpec((k,), "int32"),
            "summary": ArraySpec((k,), "float64"),
            "weights": ArraySpec((k,), "float64"),
            "of_topics": ArraySpec((k,), "float64"),
            "scales": ArraySpec((k,), "float64"),
            "row_topics": ArraySpec((k + 1,), "int32"),
            "row_counts": ArraySpec((k + 1,), "int32"),
        }

    @property
    def counts(self) -> DocumentCountsScratch:
        """Return the working memory of this worker."""
        if self._counts is None:
            self._counts = DocumentCountsScratch(**{name: spec.zeros() for name, spec in self._count_specs().items()})
        return self._counts

    def steps(self) -> tuple[str, ...]:
        """Return the steps done on a cell with frozen rows, one per stage."""
        return ("sample", "aggregate")

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase is not self.documents:
            return super().schedule(phase, unit, parts)
        opening, slices = [range(parts)] * self.opening, self.dataset.slice_count
        if self.update_mode == "data-parallel":
            return [*opening, range(parts)]
        if self.update_mode == "immediate":
            return [*opening, range(1)]
        if self.update_mode == "rotation":
            return [*opening, *[range(slices)] * slices]
        if self.whole_blocks and unit:
            opening = [range(0)]  # the block was opened when the block before it was aggregated
        cells = [1] if self.whole_blocks else self.dataset.index.cells[unit]
        steps = [far_apart_order(taper(parts).size - 1) if step == "sample" else range(parts) for step in self.steps()]
        return [*opening, *(order if tokens else () for tokens in cells for order in steps)]

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        super().restore(sweep, shared)
        for _ in sweep(self.word_counts):
            pass

    def update_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> Any:
        if job.phase != self.word_counts.name:
            return super().update_words(job, slice_, key)
        first = self.first_word(job)
        count_words(*tokens_of_words(job, slice_), self.rows(job.shared), first)
        self.rows_counted(job, np.arange(first, first + job.last - job.first, dtype=np.uint32))
        return 0

    def rows_counted(self, job: Job, words: np.ndarray) -> None:
        """Update what a sampler derives from rows, after the rows of some words were recounted (a hook)."""

    def update_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        if job.phase != self.documents.name:
            return super().update_documents(job, block, key)
        if job.stage < self.opening:
            if job.stage == 0:
                self._open_words(job, block, job.share(block.words.size))
            else:
                self._lay_out(job, block, job.bounds[job.part : job.part + 2])
            return (0, *_NOTHING) if self.update_mode == "rotation" else 0
        if self.update_mode == "delayed":
            slice_, step = self._step(job.stage)
            return self.do_step(step, job, block, slice_, key)
        if self.update_mode == "data-parallel":
            return self._sample(job, block, job.bounds[job.part : job.part + 2], None, key)
        if self.update_mode == "immediate":
            return self._sample(job, block, job.bounds[[0, -1]], None, key)
        slices = self.dataset.slice_count
        shards = np.searchsorted(block.offsets, np.arange(slices + 1) * block.positions.size // slices)
        shards[-1] = block.offsets.size - 1
        before = job.delta["topic_counts"].copy()
        turn = job.stage - self.opening
        changed = self._sample(job, block, shards[job.part : job.part + 2], (job.part + turn) % slices, key)
        moved = job.delta["topic_counts"] - before
        topics = np.flatnonzero(moved)
        return changed, topics, moved[topics]

    def find_words(self, job: Job, block: TokenBlock, span: slice) -> None:
        """Set the word at each position of some of a block's words."""
        offsets = block.word_offsets[span.start : span.stop + 1]
        find_words(block.words[span], offsets, job.shared["position_words"])

    def words_found(self, job: Job, words: np.ndarray) -> None:
        """Update what a sampler derives from the rows of a block's words, before the block's first token is sampled
        (a hook)."""

    def _lay_out(self, job: Job, block: TokenBlock, bounds: np.ndarray) -> None:
        span = slice(int(block.offsets[bounds[0]]), int(block.offsets[bounds[1]]))
        topics, words = job.shared["token_topics"][span], job.shared["token_words"][span]
        base, counted = int(job.bases[job.unit]), job.shared["counted_topics"]
        order_tokens(job.state, base, block.positions[span], job.shared["position_words"], topics, words, counted)

    def do_step(self, step: str, job: Job, block: TokenBlock, slice_: int, key: np.uint64) -> int:
        """Execute one step of sampling a cell with frozen rows, for one part of its documents or words."""
        if step == "sample":
            marks = taper(job.bounds.size - 1)[job.part : job.part + 2] * block.positions.size
            return self._sample(job, block, np.searchsorted(block.offsets, marks), slice_, key)
        span = self.words_of_part(job, block, slice_)
        offsets = block.word_offsets[span.start : span.stop + 1]
        base, counted = job.bases[job.unit], job.shared["counted_topics"]
        aggregate_words(job.state, base, counted, block.words[span], offsets, self.rows(job.shared))
        if self.whole_blocks and job.unit + 1 < self.dataset.block_count:
            self._open_next(job, block.words, span)
        return 0

    def _open_words(self, job: Job, block: TokenBlock, span: slice) -> None:
        self.find_words(job, block, span)
        self.words_found(job, block.words[span])

    def _open_next(self, job: Job, words: np.ndarray, span: slice) -> None:
        """Open the next block for the words whose rows this job updated, and for the words between them."""
        following = self._block(job.unit + 1)
        ends = np.append(words, self.dataset.vocabulary_size)
        first, last = np.searchsorted(following.words, [ends[span.start] if job.part else 0, ends[span.stop]])
        self._open_words(job, following, slice(first, last))

    def words_of_part(self, job: Job, block: TokenBlock, slice_: int) -> slice:
        """Return this job's share of a cell's words, as a slice of `block.words`."""
        first, last = self._cell_positions(job.unit, slice_)
        share = job.share(last - first)
        return slice(*np.searchsorted(block.word_offsets[:-1], [first + share.start, first + share.stop]))

    def _cell_positions(self, block: int, slice_: int) -> tuple[int, int]:
        ends = np.cumsum(self._cells[block])
        if self.whole_blocks:
            return 0, int(ends[-1])
        return int(ends[slice_ - 1]) if slice_ else 0, int(ends[slice_])

    def _sample(self, job: Job, block: TokenBlock, bounds: np.ndarray, slice_: int | None, key: np.uint64) -> int:
        """Sample the tokens of the documents between two bounds, in one slice or in all; returns how many changed
        topic."""
        if self.opening == 1:
            self._lay_out(job, block, bounds)
        first, last = (0, block.positions.size) if slice_ is None else self._cell_positions(job.unit, slice_)
        cell = DocumentCell(
            block.offsets[bounds[0] : bounds[1] + 1],
            job.shared["token_topics"],
            job.shared["token_words"],
            block.positions,
            job.state,
            int(job.bases[job.unit]),
            first,
            last,
        )
        self.counts.summary[:] = job.shared["summary"]
        changed = self.sample_cell(job, cell, key)
        job.delta["topic_counts"] += np.rint(self.counts.summary - job.shared["summary"]).astype(np.int64)
        return changed

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        """Sample the tokens of a cell and return how many changed topic."""
        raise NotImplementedError

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase is not self.documents or self.update_mode != "rotation":
            return super().aggregate(phase, shared, deltas, answers)
        sums = super().aggregate(phase, shared, deltas, [changed for changed, _, _ in answers])
        share = self.dataset.tokens / (self.dataset.block_count * self.dataset.slice_count)
        return {**sums, "s_error": share * s_error([answer[1:] for answer in answers], self.dataset.tokens)}


@cache
def taper(parts: int) -> np.ndarray:
    """Return the bounds of `parts` parts as fractions from 0 to 1; the last parts are an eighth of the usual size.

    Workers wait for the last part of a stage, so it should be short.
    """
    sizes = np.array([8] * (parts - 2) + _TAPERED) if parts > 1 else np.ones(parts)
    return np.concatenate(([0], np.cumsum(sizes) / sizes.sum()))


@cache
def far_apart_order(parts: int) -> Sequence[int]:
    """Return an order of tapered parts in which consecutive parts are far apart, except for the small parts at the end.

    Workers on neighbouring documents share cache lines of the state. Bit-reversed order works for any number of workers
    (two workers ran 1.84 times as fast as one, against 1.77 times in the original order).
    """
    whole = max(parts - len(_TAPERED), 0)
    bits = max(whole - 1, 0).bit_length()
    reversed_ = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [*(part for part in reversed_ if part < whole), *range(whole, parts)]


def s_error(moved: Sequence[tuple[np.ndarray, np.ndarray]], tokens: int) -> float:
    """Return the s-error 1 / (P*M) * sum_p ||s_p - s||_1 (STRADS supplement, eq. 1).

    s includes the moves of all P jobs, s_p only those of job p.

    moved: for each job, its topics and their changes of n_k.
    tokens: M.
    """
    size = max((int(topics.max(initial=-1)) for topics, _ in moved), default=-1) + 1
    total = np.zeros(size, np.int64)
    for topics, change in moved:
        total[topics] += change
    everything = int(np.abs(total).sum())
    apart = sum(
        everything + int((np.abs(total[topics] - change) - np.abs(total[topics])).sum()) for topics, change in moved
    )
    return apart / (max(len(moved), 1) * tokens)
