"""Document-major LDA with proposals from alias tables of the word rows (see `samplers.lda.word_tables`).

Tables are built for each cell, or each iteration, from rows that are frozen while proposals are drawn. The tables of a
cell are dropped after it, so only one slice's tables are kept. If rows are updated in place, a table is built for every
token, in O(K).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock
from ooc.program import Arrays, Job, Phase
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda.doc_major import DocumentMajorLda
from samplers.lda.word_tables import AliasTableScratch, WordAliasTables, make_smoothing, make_tables, room_for_tables
from samplers.lda.word_topic_rows import per_slice


class AliasTableLda(DocumentMajorLda):
    """Base class of samplers with alias tables; subclasses add `table_weights` and `sample_cell`."""

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        super().__init__(dataset, **options)
        sizes = np.array([self.topics]) if self.in_place else np.minimum(self.word_tokens(), self.topics)
        self._table_specs, self._table_starts = room_for_tables(sizes, self.topics)
        if not self.in_place:
            self._of_slices = per_slice(sizes, dataset.index.slice_bounds)
        if self.update_mode == "delayed":
            before = np.cumsum(self._of_slices) - self._of_slices
            self._table_starts[:-1] -= np.repeat(before, np.diff(dataset.index.slice_bounds))
            self._table_specs["entries"] = ArraySpec((self.topics + int(self._of_slices.max()),), "uint64")
        self._own_tables: WordAliasTables | None = None
        self._scratch_of_tables: AliasTableScratch | None = None

    def table_weights(self, shared: Arrays) -> np.ndarray:
        """Return the weights of the tables for the current summary row, float64 (K,)."""
        raise NotImplementedError

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | ({} if self.in_place else self._table_specs)

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        if self.update_mode != "data-parallel":
            return super().sliced_arrays()
        entries = self._of_slices.copy()
        entries[0] += self.topics  # the smoothing table
        return super().sliced_arrays() | {"entries": entries}

    def own_bytes(self) -> int:
        return super().own_bytes() + 4 * self._table_starts.nbytes

    def scratch_bytes(self) -> int:
        own = sum(spec.bytes for spec in self._table_specs.values()) if self.in_place else 0
        return super().scratch_bytes() + own + 20 * (self.topics + 1)

    @property
    def table_scratch(self) -> AliasTableScratch:
        """Return this worker's working memory for building a table."""
        if self._scratch_of_tables is None:
            size = self.topics + 1
            self._scratch_of_tables = AliasTableScratch(np.zeros(size), *(np.zeros(size, np.int32) for _ in range(3)))
        return self._scratch_of_tables

    def tables(self, shared: Arrays) -> WordAliasTables:
        """Return the tables of all words or, in place, this worker's space for a single table."""
        if not self.in_place:
            return WordAliasTables(**{name: shared[name] for name in self._table_specs}, starts=self._table_starts)
        if self._own_tables is None:
            arrays = {name: spec.zeros() for name, spec in self._table_specs.items()}
            self._own_tables = WordAliasTables(**arrays, starts=self._table_starts)
        return self._own_tables

    def steps(self) -> tuple[str, ...]:
        return ("tables", "sample", "aggregate")

    def begin(self, phase: Phase, shared: Arrays) -> None:
        super().begin(phase, shared)
        if phase in self.phases and not self.in_place:
            tables = self.tables(shared)
            tables.weights[:] = self.table_weights(shared)
            make_smoothing(tables, self.table_scratch)

    def rows_counted(self, job: Job, words: np.ndarray) -> None:
        if self.update_mode == "data-parallel":
            make_tables(self.tables(job.shared), self.rows(job.shared), words, self.table_scratch)

    def do_step(self, step: str, job: Job, block: TokenBlock, slice_: int, key: np.uint64) -> int:
        if step != "tables":
            return super().do_step(step, job, block, slice_, key)
        words = block.words[self.words_of_part(job, block, slice_)]
        make_tables(self.tables(job.shared), self.rows(job.shared), words, self.table_scratch)
        return 0
