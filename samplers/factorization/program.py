"""Base class of the methods of matrix factorization, as programs of the static engine.

A value is approximated by the mean of all values, the biases of its row and its column, and the inner product of their
factors; mean and biases are optional. The objective is

    sum_(i,j) (a_ij - mean - b_i - c_j - w_i . h_j)^2 + lambda * (sum_i n_i |w_i, b_i|^2 + sum_j n_j |h_j, c_j|^2)

over the known entries. With the penalty "entry", n is the number of known entries of the row or column (Zhou and
others, AAIM 2008); with "row", n is 1 (STRADS supplement, equation 2).

Factors and biases are stored in two shared arrays, rows by position and columns by rank, in the layout of
`samplers.factorization.row_kernels`. Both are primary state, and may be kept in a file. Each row is written by one job
only, while no other job reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import ModelDiverged, RequestError
from blocks.ratings.matrix import LARGEST, PART_ENTRIES, Matrix, MatrixColumnSlice, MatrixRowBlock
from ooc.program import Arrays, Job, Phase, StaticProgram, Sweep
from ooc.ring.packet_slots import PartInTransit
from ooc.rng import stream_key
from ooc.workers.shared_arrays import ArraySpec
from samplers.factorization.model import TrainedFactors, export_bytes, trained_columns, trained_rows, write_factors
from samplers.factorization.rating_units import check_unit, entries_in_unit, rating_size, rows_in_unit
from samplers.factorization.row_kernels import BIASES, RowPenalty, draw_factors, squared_errors
from samplers.factorization.simd import LANE

SIDES = ("rows", "columns")
MOST_RANK = 1 << 16
PENALTIES = ("entry", "row")
_FEW_FACTORS = 1 << 23  # factors of all entries: 20 iterations take about half a second, as starting worker processes
MOST_PENALTY = 2.0**30  # maximum penalty, in the unit of the ratings: factors become 0 at much smaller penalties


class FactorizationProgram(StaticProgram):
    """Base class of factorization programs.

    rank: R.
    regularization: lambda, weighted by `penalty`.
    center: subtract the mean of all values.
    biases: fit biases of rows and columns.
    unit: unit of the ratings during training, see `samplers.factorization.rating_units`; the shared arrays `mean`,
        `scale` and `penalty` are in this unit, metrics and exports are not.
    """

    option: str  # name by which users request the method

    row_factors = Phase("factors of rows", "block", writes=False)
    column_factors = Phase("factors of columns", "slice", writes=False)
    initial: Sequence[Phase] = (row_factors, column_factors)
    squared_errors = Phase("squared errors", "block", writes=False)
    reading_phases: Sequence[Phase] = (squared_errors,)
    spreads = 0.5, 0.5  # initial factors of rows and columns, for rank 1 and values with deviation 1

    def __init__(
        self,
        dataset: Matrix,
        *,
        rank: int,
        regularization: float,
        seed: int,
        penalty: str = "entry",
        biases: bool = False,
        center: bool = True,
        unit: float = 1.0,
    ) -> None:
        super().__init__(dataset)
        check_unit(unit)
        if not 1 <= rank <= MOST_RANK:
            raise RequestError(f"--rank must be from 1 to {MOST_RANK:,}, got {rank}")
        if not 0 <= regularization <= LARGEST:
            raise RequestError(f"--regularization must be from 0 to {LARGEST:.3g}, got {regularization:g}")
        if penalty not in PENALTIES:
            raise RequestError(f"--penalty: unknown penalty {penalty!r}", f"Choose one of: {', '.join(PENALTIES)}.")
        self.rank, self.seed, self.regularization = rank, seed, np.float32(regularization)
        self.biases, mean = biases, dataset.whole.mean if center else 0.0
        self.size = rating_size(dataset.whole, mean)
        self.unit, self.mean = unit, mean / unit
        # unit of products of factors
        self.scale = self.size / self.unit if self.unit != 1 else dataset.whole.deviation or 1.0
        self.penalty = self._penalty(regularization, per_entry=penalty == "entry")
        self.first = BIASES if biases else 0
        self.used = self.first + rank
        self.width = -(-self.used // LANE) * LANE
        self.few_samples = _FEW_FACTORS // self.width

    def _penalty(self, regularization: float, *, per_entry: bool) -> RowPenalty:
        """Return the penalty in the unit of the ratings."""
        if self.unit == 1 or regularization == 0:
            return RowPenalty(np.float32(regularization), per_entry)
        of_factors = min(regularization / self.unit, MOST_PENALTY)
        return RowPenalty(np.float32(of_factors), per_entry, np.float32(regularization / of_factors))

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return {
            "rows": ArraySpec((self.dataset.rows, self.width), "float32"),
            "columns": ArraySpec((self.dataset.columns, self.width), "float32"),
        }

    def primary_arrays(self) -> Sequence[str]:
        return SIDES

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        index = self.dataset.index
        return {
            "rows": self.width * np.diff(index.block_bounds),
            "columns": self.width * np.diff(index.slice_bounds),
        }

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        return phase not in self.reading_phases

    def own_bytes(self) -> int:
        return export_bytes(self.dataset)

    def scratch_bytes(self) -> int:
        copied = 12 * (PART_ENTRIES + self._longest()) if self.unit != 1 else 0
        return 4 * self._longest() + copied

    def _longest(self) -> int:
        """Return an upper bound on the number of entries of a row or column."""
        rows = max(entry["longest"] for entry in self.dataset.manifest["blocks"])
        return max(rows, int(self.dataset.index.column_entries.max()))

    def warm_up(self) -> None:
        """Compile every phase, except those over the grid, by running the phase on one entry with arrays of the real
        types.
        """
        ends, zero, one = np.array([0, 1]), np.zeros(1, np.uint32), np.ones(1, np.float32)
        row, column = MatrixRowBlock(zero, ends, zero, one), MatrixColumnSlice(ends, zero, one)
        for array in (*row, *column):
            array.setflags(write=False)  # read-only like mapped files, as numba distinguishes these types
        shared = self.tiny_arrays()
        for phase in all_but_grid(self):
            data: Any = row if phase.order == "block" else column
            none = np.zeros((0, 0), np.uint8), np.zeros(1, np.int64)
            for stage in range(len(self.schedule(phase, 0, 1))):
                stream = (0, 0, 0, stage, 0)
                passage = self.tiny_passage(phase)
                self.update(Job(phase.name, 0, stage, 0, ends, data, *none, shared, {}, stream, passage))

    def tiny_arrays(self) -> dict[str, np.ndarray]:
        """Return shared arrays for one row and one column, for `warm_up`."""
        return {name: np.zeros((1, *spec.shape[1:]), spec.dtype) for name, spec in self.shared_arrays().items()}

    def tiny_passage(self, phase: Phase) -> PartInTransit | None:
        """Return a one-column slice, as rotating slices are passed on, to compile the phase in `warm_up`; else None."""
        return None

    def update(self, job: Job) -> Any:
        if job.phase in (self.row_factors.name, self.column_factors.name):
            self.start_factors(job)
            return 0.0
        if job.phase == self.squared_errors.name:
            return self._measure(job)
        return self.update_factors(job)

    def update_factors(self, job: Job) -> Any:
        """Run a part of a phase of the method; returns the sum of squared errors."""
        raise NotImplementedError

    def start_factors(self, job: Job) -> None:
        """Draw small random factors; factors that start at 0 would never change."""
        own_factors, side = (
            self.mine(job),
            SIDES.index("rows" if isinstance(job.data, MatrixRowBlock) else "columns"),
        )
        key, spread = stream_key(self.seed, side), self.spreads[side] * math.sqrt(self.scale / self.rank)
        draw_factors(own_factors[:, self.first : self.used], self.numbers(job), key, np.float32(spread))
        if self.biases:
            own_factors[:, self.fixed(job)] = 1.0

    def entries(self, job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of a part, see `Job.entries`, in the unit of training."""
        return entries_in_unit(*job.entries(), self.unit)

    def _measure(self, job: Job) -> tuple[float, float]:
        """Return the sum of squared errors of a part of a block, and the sum of its weighted squared factors."""
        entries, rows = self.entries(job), self.mine(job)
        work = np.empty(int(np.diff(entries[0]).max(initial=0)), np.float32)
        factors = rows, np.arange(len(rows)), rows[0], job.shared["columns"]
        errors = squared_errors(*entries, np.float32(self.mean), *factors, work) * self.unit**2
        return errors, self.weighted_squares(rows, np.diff(entries[0]))

    def weighted_squares(self, factors: np.ndarray, entries: np.ndarray) -> float:
        """Return the penalty on the factors of rows, float32 (n, R).

        entries: int64 (n,), number of entries of each row.
        """
        weights = np.maximum(entries, 1) if self.penalty.per_entry else np.ones(len(entries))
        with silence_overflow():
            squares = self._squares(factors)
            if self.unit != 1:
                of_biases = self._squares(factors[:, : self.first])
                squares = self.unit * (squares - of_biases) + self.unit**2 * of_biases
            # Not with BLAS, whose threads would spin for 50 ms on the workers' cores after this.
            return float(self.regularization) * float(np.sum(weights * squares))

    def _squares(self, factors: np.ndarray) -> np.ndarray:
        # one of the first two places is a constant 1
        return np.einsum("ij,ij->i", factors, factors, dtype=np.float64) - self.biases

    def numbers(self, job: Job) -> np.ndarray:
        """Return the line numbers, in rows.txt or columns.txt of the whole dataset, of the rows or columns of a part:
        integers (n,).
        """
        if not isinstance(job.data, MatrixRowBlock):
            return self.dataset.index.column_ids[job.within(self.dataset.index.slice_bounds)]
        lines = job.data.rows[job.first : job.last]
        return self.dataset.originals()[lines] if self.dataset.shards > 1 else lines

    def mine(self, job: Job) -> np.ndarray:
        """Return the factors of the rows or columns in a part: float32 (n, width)."""
        index = self.dataset.index
        if isinstance(job.data, MatrixRowBlock):
            return job.shared["rows"][job.within(index.block_bounds)]
        return job.shared["columns"][job.within(index.slice_bounds)]

    def others(self, job: Job) -> np.ndarray:
        """Return the factors of the opposite side, columns for rows and rows for columns: float32 (n, width)."""
        return job.shared["columns" if isinstance(job.data, MatrixRowBlock) else "rows"]

    def fixed(self, job: Job) -> int:
        """Return the index of the factor that is fixed to 1 in a part, or -1."""
        return int(isinstance(job.data, MatrixRowBlock)) if self.biases else -1

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase in self.initial:
            return {}
        return self.finite({"squared_error": math.fsum(answers) * self.unit**2 / self.passes})

    def finite(self, sums: dict[str, float]) -> dict[str, float]:
        """Return sums over the entries; raises ModelDiverged unless all are finite."""
        if not all(map(math.isfinite, sums.values())):
            raise self.diverged()
        return sums

    def diverged(self) -> ModelDiverged:
        """Return the error for infinite or NaN factors."""
        return ModelDiverged(
            f"{self.option}: training diverged: factors are no longer finite; {self.cause()}", self.remedy()
        )

    def cause(self) -> str:
        """Return the probable cause of infinite factors, for the message."""
        return f"ratings are about {self.size:.3g}, and --regularization is {self.regularization:g}"

    def remedy(self) -> str:
        return "Train a new run with a larger --regularization, or with ratings divided by their standard deviation."

    @property
    def passes(self) -> int:
        """Return how many times an iteration visits each entry."""
        return len(self.phases)

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        errors, penalties = map(math.fsum, zip(*sweep(self.squared_errors), strict=True))
        return {"errors": errors, "penalties": penalties}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        objective = sums["errors"] + (sums["penalties"] + self.column_penalty(shared))
        self.finite({"objective": objective})
        return {"objective": objective, "rmse": math.sqrt(sums["errors"] / self.dataset.whole.entries)}

    def held_out_errors(self, held_out: Matrix, order: np.ndarray, sweep: Sweep, shared: Arrays) -> float:
        """Return the sum of squared errors on held-out ratings.

        sweep: function that runs one of `reading_phases`.
        order: int64, position of the row of each name, or -1, see `factor_model.row_order`.
        """
        unknown, errors = self.unknown_row(), 0.0
        for number in range(held_out.block_count):
            for block in rows_in_unit(held_out.block(number), self.unit):
                work = np.empty(int(np.diff(block.offsets).max()), np.float32)
                entries = block.offsets, block.columns, block.values
                factors = shared["rows"], order[block.rows], unknown, shared["columns"]
                errors += squared_errors(*entries, np.float32(self.mean), *factors, work)
        return errors * self.unit**2

    def unknown_row(self) -> np.ndarray:
        """Return the factors of a user without ratings, float32 (width,): 0."""
        row = np.zeros(self.width, np.float32)
        row[1] = self.biases
        return row

    def column_penalty(self, shared: Arrays) -> float:
        """Return the penalty on the columns' factors, a term of the objective."""
        return self.weighted_squares(shared["columns"], np.asarray(self.dataset.whole.column_entries))

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        rows, columns = trained_rows(self.dataset, shared["rows"]), trained_columns(self.dataset, shared["columns"])
        self.write(directory, rows, columns)

    def write(self, directory: Path, rows: TrainedFactors, columns: TrainedFactors, **more: Any) -> None:
        """Write a model; see `write_factors`."""
        unit = math.sqrt(self.unit)
        try:
            write_factors(
                directory,
                self.dataset,
                rows=rows._replace(unit=unit),
                columns=columns._replace(unit=unit),
                biases=self.biases,
                rank=self.rank,
                mean=self.mean * self.unit,
                solver=self.solver(),
                **more,
            )
        except ModelDiverged:
            raise self.diverged() from None

    def solver(self) -> dict[str, Any]:
        """Return the parameters that solve for the factors of new rows, as JSON types.

        alpha: 0 for ratings, else the alpha of the confidences.
        """
        return {
            "regularization": float(self.regularization),
            "per_entry": self.penalty.per_entry,
            "alpha": 0.0,
            "nonnegative": False,
            **({"unit": math.sqrt(self.unit)} if self.unit != 1 else {}),  # weight of the penalty on factors
        }


def silence_overflow() -> np.errstate:
    """Silence NumPy warnings where training may diverge; `MatrixFactorization.finite` raises the error."""
    return np.errstate(over="ignore", invalid="ignore")


def all_but_grid(program: FactorizationProgram) -> list[Phase]:
    phases = (*program.initial, *program.phases, *program.reading_phases)
    return [phase for phase in phases if phase.order != "grid"]
