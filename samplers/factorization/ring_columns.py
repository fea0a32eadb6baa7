"""Matrix factorization by coordinate descent and least squares on a ring of machines (STRADS supplement, section 2).

A machine has some of the rows (see `blocks.shards.splitting`) and their factors, and the factors of all columns. Rows
are updated without communication. A column has entries on all machines: each machine computes the sums over its own
entries (equations 4 and 5), the sums are added up over the ring, and all machines do the same update, for all columns
of a slice at once. The paper updates all factors of a column at once, from the previous sums; here the factors are
updated one after the other (coordinate descent), which never increases the objective.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocks.ratings.matrix import Matrix
from ooc.program import Arrays, Job, Phase
from ooc.workers.shared_arrays import ArraySpec
from samplers.factorization import distributed_ccd, shared_squares
from samplers.factorization.gathered_rows import GatheredRows
from samplers.factorization.program import SIDES, FactorizationProgram
from samplers.factorization.programs import AlternatingLeastSquares, CoordinateDescent, ImplicitFeedback
from samplers.factorization.simd import LANE


class StagedColumnPhases(GatheredRows, FactorizationProgram):
    """Mixin: all rows as on one machine; then all columns, one slice at a time, in stages that end with a sum over the
    ring.

    Subclasses define `stages`, and `sums`, the number of summed values of a column.
    """

    column_stages = Phase("columns", "slice", writes=False, staged=True)
    phases: Sequence[Phase] = (CoordinateDescent.phases[0], column_stages)
    reading_phases: Sequence[Phase] = (FactorizationProgram.squared_errors, *GatheredRows.exported)
    stages: int
    sums: int

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the shared arrays, including sums over the entries of each column of the current slice."""
        longest = int(np.diff(self.dataset.index.slice_bounds).max())
        return super().shared_arrays() | {"sums": ArraySpec((longest, self.sums), "float64")}

    def primary_arrays(self) -> Sequence[str]:
        return SIDES

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """Return the number of bytes sent: partial sums, and the final sums."""
        return 2 * 8 * self.sums * (self.stages - 1) * self.dataset.columns

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        last = stage == self.stages - 1 or phase is not self.column_stages
        return super().writes_slice(phase, stage) and last

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        return [range(parts)] * self.stages if phase is self.column_stages else super().schedule(phase, unit, parts)

    def partial_sums(self, phase: Phase, unit: int, stage: int, shared: Arrays) -> Sequence[np.ndarray]:
        if phase is not self.column_stages or stage == self.stages - 1:
            return []
        first, last = self.dataset.index.slice_bounds[unit : unit + 2].tolist()
        return [shared["sums"][: last - first]]

    def update_factors(self, job: Job) -> Any:
        return self.do_stage(job) if job.phase == self.column_stages.name else super().update_factors(job)

    @abstractmethod
    def do_stage(self, job: Job) -> float:
        """Run a stage for some columns, see `samplers.factorization.program.FactorizationProgram.update_factors`."""

    def entries_everywhere(self, job: Job) -> np.ndarray:
        """Return the number of entries of each column of a part on all machines, int64 (n,)."""
        return self.dataset.whole.column_entries[job.within(self.dataset.index.slice_bounds)]


class RingDescent(StagedColumnPhases, CoordinateDescent):
    """Coordinate descent on a ring, with a stage for each factor and a final stage; see
    `samplers.factorization.distributed_ccd`."""

    sums = 2

    def __init__(self, dataset: Matrix, **options: Any) -> None:
        super().__init__(dataset, **options)
        # indices of the factors that are changed
        self._places = [place for place in range(self.used) if not (self.biases and place == 0)]
        self.stages = len(self._places) + 1

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the shared arrays, including the residual of each entry of the current slice."""
        entries = int(self.dataset.index.cells.sum(axis=0).max())
        kept = {"residuals": ArraySpec((entries,), "float32"), "tile": ArraySpec((LANE, entries), "float32")}
        return super().shared_arrays() | kept

    def tiny_arrays(self) -> dict[str, np.ndarray]:
        return super().tiny_arrays() | {"tile": np.zeros((LANE, 1), np.float32)}

    def do_stage(self, job: Job) -> float:
        offsets, rows, values = self.entries(job)
        columns, others, sums = self.mine(job), self.others(job), job.shared["sums"][job.first : job.last]
        residuals, tile = job.shared["residuals"], job.shared["tile"]
        errors, stage = 0.0, job.stage
        if stage == 0:
            errors = distributed_ccd.open_rows(offsets, rows, values, np.float32(self.mean), columns, others, residuals)
        else:
            place = self._places[stage - 1]
            biased = self.biases and place == 1 - self.fixed(job)
            solver = place, biased, self.entries_everywhere(job), self.penalty, self.least
            distributed_ccd.descend(offsets, residuals, tile, sums, columns, *solver)
        if stage < len(self._places):
            place = self._places[stage]
            if stage == 0 or place % LANE == 0:
                distributed_ccd.take_factors(offsets, rows, others, place // LANE * LANE, tile)
            distributed_ccd.sum_up(offsets, residuals, tile[place % LANE], sums)
        return errors


class RingLeastSquares(StagedColumnPhases, AlternatingLeastSquares):
    """Least squares on a ring: one stage for each conjugate gradient step, and two further stages; see
    `samplers.factorization.shared_squares`.
    """

    def __init__(self, dataset: Matrix, **options: Any) -> None:
        super().__init__(dataset, **options)
        self.stages, self.sums = self.steps + 2, self.width

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the shared arrays, including the conjugate gradients of each column of the current slice."""
        shape = super().shared_arrays()["sums"].shape
        return super().shared_arrays() | {name: ArraySpec(shape, "float32") for name in ("left", "direction")}

    def do_stage(self, job: Job) -> float:
        entries, columns, others = self.entries(job), self.mine(job), self.others(job)
        sums, left, direction = (job.shared[name][job.first : job.last] for name in ("sums", "left", "direction"))
        weights = self.confidences, self.gram(job)
        if job.stage == 0:
            return shared_squares.open_rows(*entries, np.float32(self.mean), *weights, columns, others, sums)
        solver = self.entries_everywhere(job), self.fixed(job), self.penalty
        if job.stage == 1:
            shared_squares.begin(sums, columns, left, direction, *solver)
        else:
            shared_squares.step(sums, columns, left, direction, *solver)
        if job.stage < self.stages - 1:
            shared_squares.multiply_rows(*entries, *weights, direction, others, sums)
        return 0.0


class RingImplicitFeedback(RingLeastSquares, ImplicitFeedback):
    """Implicit feedback on a ring: for columns, `products` is W'W of this machine's rows, and G is the sum over all
    machines.
    """

    phases: Sequence[Phase] = (*ImplicitFeedback.phases[:3], StagedColumnPhases.column_stages)
    reading_phases: Sequence[Phase] = (*ImplicitFeedback.reading_phases, *GatheredRows.exported)
