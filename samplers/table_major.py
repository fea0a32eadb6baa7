"""Document-major LDA with proposals from alias tables of the rows of words, see `samplers.word_tables`.

Tables are made for each cell, or each iteration, from rows that stay as they are while proposals are drawn from them.
Where rows are updated in place they are made anew for every token, O(K).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.dataset import Block, Dataset
from ooc.program import Arrays, Job, Phase
from ooc.shared import ArraySpec
from samplers.doc_major import DocMajor
from samplers.word_tables import TableScratch, WordTables, make_smoothing, make_tables, room_for_tables


class TableMajor(DocMajor):
    """Subclasses add `table_weights` and `sample_cell`."""

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        super().__init__(dataset, **options)
        sizes = np.array([self.topics]) if self.in_place else np.minimum(dataset.index.frequencies, self.topics)
        self._table_specs, self._table_starts = room_for_tables(sizes, self.topics)
        self._own_tables: WordTables | None = None
        self._scratch_of_tables: TableScratch | None = None

    def table_weights(self, shared: Arrays) -> np.ndarray:
        """float64 (K,): the weights of the tables, given the present summary row."""
        raise NotImplementedError

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | ({} if self.in_place else self._table_specs)

    def scratch_bytes(self) -> int:
        own = sum(spec.bytes for spec in self._table_specs.values()) if self.in_place else 0
        return super().scratch_bytes() + own + 20 * (self.topics + 1)

    @property
    def table_scratch(self) -> TableScratch:
        """The working memory of this worker to make a table."""
        if self._scratch_of_tables is None:
            size = self.topics + 1
            self._scratch_of_tables = TableScratch(np.zeros(size), *(np.zeros(size, np.int32) for _ in range(3)))
        return self._scratch_of_tables

    def tables(self, shared: Arrays) -> WordTables:
        """The tables of all words, or, in place, this worker's own room for one."""
        if not self.in_place:
            return WordTables(**{name: shared[name] for name in self._table_specs}, starts=self._table_starts)
        if self._own_tables is None:
            arrays = {name: np.zeros(*spec) for name, spec in self._table_specs.items()}
            self._own_tables = WordTables(**arrays, starts=self._table_starts)
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

    def do_step(self, step: str, job: Job, block: Block, slice_: int, key: np.uint64) -> int:
        if step != "tables":
            return super().do_step(step, job, block, slice_, key)
        words = block.words[self.words_of_part(job, block, slice_)]
        make_tables(self.tables(job.shared), self.rows(job.shared), words, self.table_scratch)
        return 0
