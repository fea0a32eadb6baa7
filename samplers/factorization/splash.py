"""Matrix factorization by stochastic gradients of the items' vectors alone, as a stochastic program (Splash, 6.2).

The vector u of a user is always the optimal one for the current vectors v of the items, so the objective is a function
of v:

    sum_i min_u [ sum_j (u . v_j - (a_ij - mean))^2 + lambda |u|^2 + lambda * sum_j |v_j|^2 ]      (equation 18)

over the items j that user i has rated. A step follows its gradient, with the learning rates of AdaGrad; a user of
weight m counts as m users. Items start with random unit vectors with nonnegative coordinates.

Ratings far from 1 are trained in a unit s (see `samplers.factorization.rating_units`): items are unchanged, users are u
/ s, and the objective divided by s^2 has lambda for users and lambda / s^2 for items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import inlined_kernel, unmanaged_kernel
from blocks.errors import ModelDiverged, RequestError
from blocks.ratings.matrix import Matrix
from ooc.program import Arrays, Job, Sweep
from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.variable_arrays import Shared
from samplers.factorization.gathered_rows import GatheredRows
from samplers.factorization.model import TrainedFactors, export_bytes, trained_columns, trained_rows, write_factors
from samplers.factorization.program import MOST_PENALTY, MOST_RANK
from samplers.factorization.rating_units import check_unit, rows_in_unit
from samplers.factorization.row_kernels import squared_errors
from samplers.factorization.simd import LANE

_LEAST = np.float32(1e-12)  # lower bound of a sum of squares


class SplashFactorization(StochasticProgram):
    """Stochastic program with shared item vectors.

    rank: R.
    regularization: lambda.
    rate: initial learning rate.
    center: subtract the mean of all ratings.
    unit: unit of the ratings, see `samplers.factorization.rating_units`.
    """

    maps: Sequence[str] = ("squared_error",)

    def __init__(
        self,
        dataset: Matrix,
        *,
        rank: int,
        regularization: float,
        rate: float = 0.1,
        center: bool = True,
        unit: float = 1.0,
        **options: Any,
    ) -> None:
        if not 1 <= rank <= MOST_RANK:
            raise RequestError(f"--rank must be from 1 to {MOST_RANK:,}, got {rank}")
        if not 0 < regularization < math.inf:
            raise RequestError(
                f"--regularization must be a finite number above 0 for --method splash, got {regularization:g}"
            )
        if not 0 < rate < math.inf:
            raise RequestError(f"--rate must be a finite number above 0, got {rate:g}")
        self.rank, self.regularization, self.rate = rank, regularization, rate
        check_unit(unit)
        self.unit, self.mean = unit, (dataset.whole.mean if center else 0.0) / unit
        self.width = -(-rank // LANE) * LANE
        super().__init__(dataset, **options)

    def shared_variables(self) -> dict[str, Shared]:
        rows = self.dataset.columns, self.width
        return {"items": Shared(rows, "float32"), "squares": Shared(rows, "float32")}

    def local_variables(self) -> dict[str, Local]:
        return {
            "user": Local((self.width,), "float32", derived=True),  # used by `squared_error`
            "gram": Local((self.rank, self.rank), per="work"),
            "best": Local((self.rank,), per="work"),
            "row": Local((self.rank,), "float32", per="work"),
        }

    def constants(self) -> dict[str, Any]:
        of_items = self.regularization if self.unit == 1 else min(self.regularization / self.unit**2, MOST_PENALTY)
        return {
            "scaling": 1 / self.unit,
            "squared_unit": self.unit**2,
            "mean": float(self.mean),
            "penalty": float(self.regularization),
            "item_penalty": float(of_items),
            "rate": np.float32(self.rate),
        }

    def own_bytes(self) -> int:
        return super().own_bytes() + export_bytes(self.dataset)

    def first_values(self) -> dict[str, Any]:
        drawn = np.zeros((self.dataset.columns, self.width), np.float32)
        directions = np.abs(np.random.default_rng(self.seed).normal(size=(self.dataset.columns, self.rank)))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        drawn[:, : self.rank] = directions[self.dataset.index.column_ids]
        return {"items": drawn}

    @staticmethod
    def process(element, weight, shared, local):
        solve_user(element, shared, local)
        best, times = local.best, np.float32(weight)
        shrinkage = np.float32(2.0 * shared.item_penalty)
        for entry in range(element.columns.size):
            item = element.columns[entry]
            factors, squares = shared.items.row_view(item), shared.squares.row_view(item)
            error = np.float32(2.0 * residual(element.values[entry], factors, shared, best))
            for k in range(best.size):
                gradient = error * np.float32(best[k]) + shrinkage * factors.get(k)
                squares.add(k, times * gradient * gradient)
                factors.add(k, -shared.rate * times * gradient / np.sqrt(squares.get(k) + _LEAST))

    @staticmethod
    def loss(element, shared, local):
        solve_user(element, shared, local)
        total = errors_of(element, shared, local)
        for k in range(local.best.size):
            total += shared.penalty * local.best[k] * local.best[k]
        return shared.squared_unit * total

    @staticmethod
    def squared_error(element, shared, local):
        solve_user(element, shared, local)
        for k in range(local.best.size):
            local.user[k] = local.best[k]
        return shared.squared_unit * errors_of(element, shared, local)

    def update(self, job: Job) -> Any:
        try:
            return super().update(job)
        except ModelDiverged:
            raise self.diverged() from None

    def diverged(self) -> ModelDiverged:
        """Return the error for infinite or NaN factors."""
        return ModelDiverged(
            f"--method splash: training diverged: factors are no longer finite; --rate is {self.rate:g}",
            "Train a new run with a smaller --rate, or with ratings divided by their standard deviation.",
        )

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        errors = math.fsum(math.fsum(some) for some in self.values("squared_error", sweep))
        return {**super().measure(sweep, shared), "errors": errors}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        told = super().objective({}, shared)
        squares, whole = np.einsum("ij,ij->i", shared["items"], shared["items"], dtype=np.float64), self.dataset.whole
        penalty = self.regularization * float(np.sum(squares * whole.column_entries))
        rmse = math.sqrt(sums["errors"] / whole.entries)
        if not math.isfinite(sums["objective"] + penalty):
            raise self.diverged()
        return {"objective": sums["objective"] + penalty, "rmse": rmse, **told}

    def held_out_errors(self, held_out: Matrix, order: np.ndarray, sweep: Sweep, shared: Arrays) -> float:
        """Return the sum of squared errors on held-out ratings; see `FactorizationProgram`."""
        self._solve_users(sweep)
        unknown, errors = np.zeros(self.width, np.float32), 0.0
        for number in range(held_out.block_count):
            for block in rows_in_unit(held_out.block(number), self.unit):
                work = np.empty(int(np.diff(block.offsets).max()), np.float32)
                factors = shared["local.user"], order[block.rows], unknown, shared["items"]
                entries = block.offsets, block.columns, block.values
                errors += squared_errors(*entries, np.float32(self.mean), *factors, work)
        return errors * self.unit**2

    def _solve_users(self, sweep: Sweep) -> None:
        """Solve for the vectors of all users, given the current items."""
        for _ in self.values("squared_error", sweep):
            pass

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        self._solve_users(sweep)
        rows, columns = shared["local.user"], shared["items"]
        self.write(directory, trained_rows(self.dataset, rows), trained_columns(self.dataset, columns))

    def write(self, directory: Path, rows: TrainedFactors, columns: TrainedFactors, **more: Any) -> None:
        """Write a model; see `write_factors`."""
        try:
            write_factors(
                directory,
                self.dataset,
                rows=rows._replace(unit=self.unit),
                columns=columns,
                biases=False,
                rank=self.rank,
                mean=self.mean * self.unit,
                solver={"regularization": self.regularization, "per_entry": False, "alpha": 0.0, "nonnegative": False},
                **more,
            )
        except ModelDiverged:
            raise self.diverged() from None


class RingSplashFactorization(GatheredRows, SplashFactorization):
    """Splash on a ring of machines, each with some of the users; every machine has all items."""

    def __init__(self, dataset: Matrix, **options: Any) -> None:
        super().__init__(dataset, on_ring=True, **options)
        self.reading_phases = (*self.reading_phases, *self.exported)

    def mine(self, job: Job) -> np.ndarray:
        """Return the vectors of a part's users, given the current items: float32 (n, width)."""
        self.jobs.do(replace(job, phase="squared_error"))
        return job.shared["local.user"][job.within(self.dataset.index.block_bounds)]

    def gathered_columns(self, sweep: Sweep, shared: Arrays, directory: Path) -> np.ndarray:
        return shared["items"]


@inlined_kernel
def residual(value, factors, shared, best):
    """Return u . v - (a - mean) for an item, given the row of its vector."""
    predicted = shared.mean
    for k in range(best.size):
        predicted += best[k] * factors.get(k)
    return predicted - value * shared.scaling


@inlined_kernel
def errors_of(element, shared, local):
    """Return the sum of squared errors of a user's ratings."""
    total = 0.0
    for entry in range(element.columns.size):
        factors = shared.items.row_view(element.columns[entry])
        error = residual(element.values[entry], factors, shared, local.best)
        total += error * error
    return total


@inlined_kernel
def solve_user(element, shared, local):
    """Set `local.best` to the best vector of a user, given the current items, by solving the normal equations."""
    gram, best, row = local.gram, local.best, local.row
    for k in range(best.size):
        best[k] = 0.0
        for other in range(k + 1):
            gram[k, other] = shared.penalty if k == other else 0.0
    for entry in range(element.columns.size):
        shared.items.get_row(element.columns[entry], row)
        value = element.values[entry] * shared.scaling - shared.mean
        for k in range(best.size):
            best[k] += value * row[k]
            for other in range(k + 1):
                gram[k, other] += row[k] * row[other]
    solve(gram, best)


@unmanaged_kernel
def solve(gram, right):
    """Solve a symmetric positive definite system by Cholesky factorization, in place.

    gram: float64 (R, R); its lower half is read, and overwritten by the factor.
    right: float64 (R,), overwritten by the solution.
    """
    for k in range(right.size):
        for column in range(k + 1):
            total = gram[k, column]
            for other in range(column):
                total -= gram[k, other] * gram[column, other]
            gram[k, column] = math.sqrt(total) if column == k else total / gram[column, column]
    for k in range(right.size):
        for other in range(k):
            right[k] -= gram[k, other] * right[other]
        right[k] /= gram[k, k]
    for k in range(right.size - 1, -1, -1):
        for other in range(k + 1, right.size):
            right[k] -= gram[other, k] * right[other]
        right[k] /= gram[k, k]
