"""Gather the rows of a factorization and their names from all machines of a ring at rank 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from blocks.number_spool import NumberSpool
from blocks.ratings.matrix import MatrixRowBlock
from ooc.program import Arrays, Job, Phase, StaticProgram, Sweep
from samplers.external_sort import lines_in_order
from samplers.factorization.model import TrainedFactors, place_of_line, trained_columns
from samplers.gathered_names import gather_names, names_of_block


class GatheredRows(StaticProgram):
    """Mixin for factorizations on several machines: rank 0 collects the rows of all machines, and writes the model with
    the rows in the order of the whole dataset. It is listed first among the bases of the program.

    The program provides `width`, the numbers per row; `mine(job)`, the rows of a part of a block; and `write`,
    as in `MatrixFactorization`.
    """

    trains_on_shards = True
    rows_of_blocks = Phase("rows of blocks", "block", writes=False)
    names_of_rows = Phase("names of rows", "block", writes=False)
    exported: Sequence[Phase] = (names_of_rows, rows_of_blocks)
    width: int
    mine: Callable[[Job], np.ndarray]
    write: Callable[..., None]

    def own_bytes(self) -> int:
        """Return the memory in bytes for ordering all rows, and for the offsets of their names."""
        return super().own_bytes() + 80 * self.dataset.whole.rows

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        return [range(1)] if phase == self.names_of_rows else super().schedule(phase, unit, parts)

    def update(self, job: Job) -> Any:
        if job.phase == self.names_of_rows.name:
            return names_of_block(self.dataset, "rows", job.unit)
        if job.phase == self.rows_of_blocks.name:
            return self._rows(job, job.data)
        return super().update(job)

    def _rows(self, job: Job, block: MatrixRowBlock) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for the rows of a part, their indices in the whole dataset, uint64 (n,), entries, int64 (n,), and
        factors, float32.
        """
        numbers = self.dataset.originals()[block.rows[job.first : job.last]]
        return numbers, np.diff(job.entries()[0]), self.mine(job).reshape(-1)

    def gathered_columns(self, sweep: Sweep, shared: Arrays, directory: Path) -> np.ndarray:
        """Return the factors of all columns, float32 (C, width), by rank."""
        return shared["columns"]

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        names, text = gather_names(sweep(self.names_of_rows), directory)
        rows = self._gathered_rows(sweep, directory, names.size)
        columns = trained_columns(self.dataset, self.gathered_columns(sweep, shared, directory))
        lines = lines_in_order(text, place_of_line(names, names.size))
        self.write(directory, rows, columns, row_names=lines)

    def _gathered_rows(self, sweep: Sweep, directory: Path, names: int) -> TrainedFactors:
        """Return all rows with entries, in order of arrival."""
        with ExitStack() as stack:
            spools = [stack.enter_context(NumberSpool(directory, dtype)) for dtype in ("uint64", "int64", "float32")]
            for answer in sweep(self.rows_of_blocks):
                for spool, numbers in zip(spools, answer, strict=True):
                    spool.add(numbers)
            numbers, entries = (spool.mapped(-1) for spool in spools[:2])
            return TrainedFactors(spools[2].mapped(-1, self.width), entries, place_of_line(numbers, names))
