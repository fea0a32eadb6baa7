"""Matrix factorization by stochastic gradient descent on a ring of machines.

A machine has some of the rows (see `blocks.shards.splitting`) and their factors. The factors of columns rotate with
their slices, so only one machine changes them at a time. Within a machine, the parts of a slice rotate in the same way:
the rows are divided into as many bands as the slice has parts, and in each turn every part has a band of its own. So no
two workers use the same row or column, and the steps do not depend on the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.number_spool import NumberSpool
from blocks.ratings.matrix import Matrix, MatrixRowBlock
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.ring.packet_slots import PartInTransit
from ooc.workers.shared_arrays import ArraySpec
from samplers.factorization import sgd
from samplers.factorization.gathered_rows import GatheredRows
from samplers.factorization.gradient_programs import GradientDescent
from samplers.factorization.program import FactorizationProgram
from samplers.factorization.rating_units import in_unit
from samplers.factorization.row_kernels import squared_errors


class ColumnsInTransit(NamedTuple):
    """Columns in transit.

    factors: float32 (n, width).
    squares: float32 (n, 2), see `samplers.factorization.sgd`.
    """

    factors: np.ndarray
    squares: np.ndarray


class RingGradient(GatheredRows, GradientDescent):
    """Rotation of slices around the ring, and of their parts through the rows of a machine."""

    column_factors = Phase("factors of columns", "slice", writes=False, travels="made")
    initial: Sequence[Phase] = (FactorizationProgram.row_factors, column_factors)
    phases: Sequence[Phase] = (Phase("descent", "slice", writes=False, staged=True, travels="changed"),)
    squared_errors = Phase("squared errors", "slice", writes=False, travels="shown")
    row_penalties = Phase("penalties of rows", "block", writes=False)
    column_penalties = Phase("penalties of columns", "slice", writes=False, travels="looked at")
    column_rows = Phase("columns", "slice", writes=False, travels="looked at")
    shown_columns = Phase("columns of all", "slice", writes=False, travels="shown")
    exported: Sequence[Phase] = (*GatheredRows.exported, column_rows)
    reading_phases: Sequence[Phase] = (squared_errors, shown_columns, row_penalties, column_penalties, *exported)

    def __init__(self, dataset: Matrix, **options: Any) -> None:
        super().__init__(dataset, **options)
        self._column_bytes = 4 * (self.width + 2)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        rows = super().shared_arrays()["rows"]
        return {"rows": rows, "row_squares": ArraySpec((self.dataset.rows, 2), "float32")}

    def primary_arrays(self) -> Sequence[str]:
        return tuple(self.shared_arrays())

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return no arrays: the rows of all blocks are needed for each slice."""
        return {}

    def rooms(self, slice_: int, bounds: np.ndarray) -> np.ndarray:
        return self._column_bytes * np.diff(bounds)

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        return self._column_bytes * self.dataset.columns

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + 8 * int(np.diff(self.dataset.index.slice_bounds).max())

    def tiny_passage(self, phase: Phase) -> PartInTransit | None:
        if not phase.travels:
            return None
        arrived, leaving = np.zeros((2, self._column_bytes), np.uint8)
        return PartInTransit(arrived, leaving, np.zeros(1, np.int64))

    def begin(self, phase: Phase, shared: Arrays) -> None:
        if phase is self.initial[0]:
            shared["row_squares"][:] = self.first_squares

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        return [range(parts)] * parts if phase is self.phases[0] else super().schedule(phase, unit, parts)

    def columns(self, data: np.ndarray) -> ColumnsInTransit:
        """Return the columns in the bytes, uint8 (n,), of a part that arrives or leaves."""
        numbers = data.view(np.float32)
        factors = numbers[: numbers.size // (self.width + 2) * self.width]
        return ColumnsInTransit(factors.reshape(-1, self.width), numbers[factors.size :].reshape(-1, 2))

    def mine(self, job: Job) -> np.ndarray:
        if isinstance(job.data, MatrixRowBlock):
            return super().mine(job)
        assert job.passage
        made = job.phase == self.column_factors.name
        return self.columns(job.passage.leaving if made else job.passage.arrived).factors

    def start_factors(self, job: Job) -> None:
        """Draw initial factors; all machines draw the same factors for the columns."""
        if job.passage:
            job.passage.leaving[:] = 0
            self.columns(job.passage.leaving).squares[:] = self.first_squares
            job.passage.left[0] = job.passage.leaving.size
        super().start_factors(job)

    def update(self, job: Job) -> Any:
        if job.phase == self.squared_errors.name:
            return self._squared_errors(job)
        if job.phase == self.row_penalties.name:
            return self.weighted_squares(self.mine(job), np.diff(job.entries()[0]))
        if job.phase == self.column_penalties.name:
            return self._column_penalties(job)
        if job.phase == self.column_rows.name:
            return (self.mine(job).reshape(-1).copy(),)
        if job.phase == self.shown_columns.name:
            return job.unit, job.first, self.mine(job).copy()
        return super().update(job)

    def update_factors(self, job: Job) -> float:
        """Process a turn of a part: its columns, and the rows of one band."""
        assert job.passage
        arrived, leaving, left = job.passage
        if job.stage == 0:
            leaving[:] = arrived
            left[0] = arrived.size
        factors, squares = self.columns(leaving)
        bands, rows = job.bounds.size - 1, self.dataset.rows
        band = (job.part + job.stage) % bands
        first, last = rows * band // bands, rows * (band + 1) // bands
        offsets, others, values = job.entries()
        ratings = sgd.RatingRows(offsets[1:], others, values, np.empty(len(factors), np.int64))
        sgd.rewind(ratings, offsets, first)
        squares_of_both = squares, job.shared["row_squares"]
        steps = self.steps(0, first_pass=job.stream[0] == 0)
        return sgd.sweep_cell(
            ratings, np.uint32(last), factors, job.shared["rows"], *squares_of_both, steps, self.open_rows
        )

    def _squared_errors(self, job: Job) -> float:
        """Return the squared errors of this machine's entries in the columns of a part."""
        entries, columns = self.entries(job), self.mine(job)
        work = np.empty(int(np.diff(entries[0]).max(initial=0)), np.float32)
        factors = columns, np.arange(len(columns)), columns[0], job.shared["rows"]
        return squared_errors(*entries, np.float32(self.mean), *factors, work) * self.unit**2

    def _column_penalties(self, job: Job) -> float:
        entries = self.dataset.whole.column_entries[job.within(self.dataset.index.slice_bounds)]
        return self.weighted_squares(self.mine(job), entries)

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        penalties = [*sweep(self.row_penalties), *sweep(self.column_penalties)]
        return {"errors": math.fsum(sweep(self.squared_errors)), "penalties": math.fsum(penalties)}

    def held_out_errors(self, held_out: Matrix, order: np.ndarray, sweep: Sweep, shared: Arrays) -> float:
        """Return held-out errors by columns, as the columns arrive; `held_out` has the same columns in each slice."""
        lines = np.concatenate([held_out.block(number).rows for number in range(held_out.block_count)])
        places, unknown, errors = order[lines], self.unknown_row()[None], 0.0
        for unit, first, columns in sweep(self.shown_columns):
            offsets, of_rows, values = held_out.slice(unit)
            offsets = offsets[first : first + len(columns) + 1]
            mine = slice(int(offsets[0]), int(offsets[-1]))
            rows, values = places[of_rows[mine]], in_unit(values[mine], self.unit)
            for chosen, factors in ((rows >= 0, shared["rows"]), (rows < 0, unknown)):
                ends = np.concatenate(([0], np.cumsum(chosen)))[offsets - offsets[0]]
                entries = ends, np.maximum(rows[chosen], 0).astype(np.uint32), values[chosen]
                work = np.empty(int(np.diff(ends).max()), np.float32)
                all_of = columns, np.arange(len(columns)), columns[0]
                errors += squared_errors(*entries, np.float32(self.mean), *all_of, factors, work)
        return errors * self.unit**2

    def column_penalty(self, shared: Arrays) -> float:
        """Return 0: `measure` includes the columns stored on each machine."""
        return 0.0

    def gathered_columns(self, sweep: Sweep, shared: Arrays, directory: Path) -> np.ndarray:
        with NumberSpool(directory, "float32") as spool:
            for (factors,) in sweep(self.column_rows):
                spool.add(factors)
            return spool.mapped(self.dataset.columns, self.width)
