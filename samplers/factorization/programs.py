"""The methods of matrix factorization by name, and the programs for the kernels of `ccd` and `als`.

Programs with stochastic gradient descent are in `samplers.factorization.gradient_programs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import LARGEST, Matrix, MatrixRowBlock
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.workers.shared_arrays import ArraySpec
from ooc.workers.worker import ProgramSpec
from samplers.factorization import als, ccd
from samplers.factorization.options import FactorizationOptions
from samplers.factorization.program import FactorizationProgram, silence_overflow
from samplers.factorization.rating_units import rating_unit
from samplers.factorization.row_kernels import LEAST
from samplers.factorization.simd import LANE
from samplers.options import takers
from samplers.programs import target

_CHUNK = 1 << 13  # number of rows whose products are summed in float32


class CoordinateDescent(FactorizationProgram):
    """Coordinate descent: all rows, then all columns, one factor at a time; see `samplers.factorization.ccd`.

    nonnegative: keep all factors at 0 or above.
    """

    option = "--method ccd"
    phases: Sequence[Phase] = (Phase("rows", "block", writes=False), Phase("columns", "slice", writes=False))

    def __init__(self, dataset: Matrix, *, nonnegative: bool = False, **options: Any) -> None:
        if nonnegative:
            options |= {"center": False}
        super().__init__(dataset, **options)
        if nonnegative and self.biases:
            raise RequestError("--nonnegative cannot be used with biases", "Add --no-biases.")
        if nonnegative and dataset.whole.high <= 0:
            raise RequestError(f"--nonnegative cannot be used: no value of {dataset.path} is above 0")
        self.least = np.float32(0.0) if nonnegative else LEAST

    def start_factors(self, job: Job) -> None:
        super().start_factors(job)
        if self.least == 0:
            np.abs(self.mine(job), out=self.mine(job))

    def solver(self) -> dict[str, Any]:
        return super().solver() | {"nonnegative": bool(self.least == 0)}

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + 4 * LANE * self._longest()

    def update_factors(self, job: Job) -> float:
        offsets, others, values = self.entries(job)
        longest = int(np.diff(offsets).max(initial=0))
        work = ccd.DescentScratch(np.empty(longest, np.float32), np.empty((LANE, longest), np.float32))
        own_factors, theirs = self.mine(job), self.others(job)
        places = self.used, self.fixed(job)
        return ccd.sweep_rows(
            offsets, others, values, np.float32(self.mean), own_factors, theirs, *places, self.penalty, self.least, work
        )


class AlternatingLeastSquares(FactorizationProgram):
    """Alternating least squares: all rows, then all columns, by some conjugate gradient steps; see
    `samplers.factorization.als`."""

    option = "--method als"
    phases: Sequence[Phase] = CoordinateDescent.phases
    confidences = als.RATINGS

    def __init__(self, dataset: Matrix, *, steps: int = 3, **options: Any) -> None:
        super().__init__(dataset, **options)
        if steps < 1:
            raise RequestError(f"--steps must be at least 1, got {steps}")
        self.steps = steps

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + 4 * 3 * self.width

    def gram(self, job: Job) -> np.ndarray:
        """Return H'H over all columns, or W'W over all rows, if every cell is an entry: float32 (width, width), else
        (0, 0).
        """
        return np.zeros((0, 0), np.float32)

    def update_factors(self, job: Job) -> float:
        work = als.ConjugateGradientScratch(*np.zeros((3, self.width), np.float32))
        solver = self.fixed(job), self.penalty, self.steps, work
        weights = np.float32(self.mean), self.confidences, self.gram(job)
        return als.solve_rows(*self.entries(job), *weights, self.mine(job), self.others(job), *solver)


class ImplicitFeedback(AlternatingLeastSquares):
    """Implicit feedback: counts of events as confidences (Hu, Koren and Volinsky, ICDM 2008).

    Objective: sum_(all i,j) c_ij (p_ij - w_i . h_j)^2 + lambda (sum n_i |w_i|^2 + sum n_j |h_j|^2), with p_ij = 1 and
    c_ij = 1 + alpha a_ij for the known entries, and p_ij = 0 and c_ij = 1 for all others; n is 1 or, with the penalty
    "entry", the number of known entries. If confidences are far above 1, they and lambda are divided by a power of four
    while solving for rows: this applies to `products`, `confidences` and `penalty`, but not to metrics.

    alpha: confidence that a count of 1 adds.
    """

    option = "--implicit"

    row_products = Phase("products of rows", "block", writes=False)
    column_products = Phase("products of columns", "slice", writes=False)
    phases: Sequence[Phase] = (
        column_products,
        CoordinateDescent.phases[0],
        row_products,
        CoordinateDescent.phases[1],
    )
    known_terms = Phase("confidences", "block", writes=False)
    reading_phases: Sequence[Phase] = (known_terms,)

    def __init__(self, dataset: Matrix, *, alpha: float, penalty: str = "row", **options: Any) -> None:
        super().__init__(dataset, penalty=penalty, center=False, **options)
        if self.biases:
            raise RequestError("--implicit cannot be used with --biases", "Omit --biases.")
        if not 0 < alpha <= LARGEST:
            raise RequestError(f"--alpha must be above 0 and at most {LARGEST:.3g}, got {alpha:g}")
        if dataset.whole.low <= 0:
            raise RequestError(
                f"--implicit: counts must be above 0, but {dataset.path} has the value {dataset.whole.low:g}",
                "Omit user-item pairs without a count when you ingest.",
            )
        self.alpha, self.scale = np.float32(alpha), 1.0
        self.divisor = max(rating_unit(alpha * self.size), 1.0)
        self.confidences = als.ImplicitConfidences(np.float32(alpha / self.divisor), np.float32(1 / self.divisor))
        self.penalty = self.penalty._replace(regularization=np.float32(self.regularization / self.divisor))

    def cause(self) -> str:
        return f"counts are about {self.size:.3g}, and --alpha is {self.alpha:g}"

    def remedy(self) -> str:
        return "Train a new run with a smaller --alpha, or with smaller counts."

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | {"products": ArraySpec((self.width, self.width), "float32")}

    def own_bytes(self) -> int:
        return super().own_bytes() + 8 * self.width**2 * max(self.dataset.block_count, self.dataset.slice_count)

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + (4 + 8) * self.width**2

    @property
    def passes(self) -> int:
        return 2

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        return [range(1)] if phase in (self.row_products, self.column_products) else [range(parts)]

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        return super().writes_slice(phase, stage) and phase not in (self.row_products, self.column_products)

    def gram(self, job: Job) -> np.ndarray:
        return job.shared["products"]

    def update(self, job: Job) -> Any:
        if job.phase in (self.row_products.name, self.column_products.name):
            return products(self._of_unit(job))
        if job.phase == self.known_terms.name:
            rows, entries = self.mine(job), job.entries()
            terms = als.confidence_terms(*entries, self.alpha, rows, self.others(job))
            return terms, self.weighted_squares(rows, np.diff(entries[0]))
        return super().update(job)

    def _of_unit(self, job: Job) -> np.ndarray:
        """Return the factors of all rows of a block, or of all columns of a slice."""
        by_row = isinstance(job.data, MatrixRowBlock)
        bounds = self.dataset.index.block_bounds if by_row else self.dataset.index.slice_bounds
        return job.shared["rows" if by_row else "columns"][slice(*bounds[job.unit : job.unit + 2].tolist())]

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase in (self.row_products, self.column_products):
            with silence_overflow():
                shared["products"][:] = np.sum(answers, axis=0) / self.divisor
            return {}
        return super().aggregate(phase, shared, deltas, answers)

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        with silence_overflow():
            products = (np.sum(list(sweep(phase)), axis=0) for phase in (self.row_products, self.column_products))
            everywhere = float(np.sum(np.multiply(*products)))
        known, penalties = map(_sum_of, zip(*sweep(self.known_terms), strict=True))
        return {"objective": everywhere + known + penalties}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        return self.finite({"objective": sums["objective"] + self.column_penalty(shared)})

    def solver(self) -> dict[str, Any]:
        return super().solver() | {"alpha": float(self.alpha)}


def _sum_of(terms: Iterable[float]) -> float:
    """Return the exactly rounded sum; NaN for infinite terms, because `math.fsum` cannot add infinities of both
    signs.
    """
    found = list(terms)
    return math.fsum(found) if all(map(math.isfinite, found)) else math.nan


def products(factors: np.ndarray) -> np.ndarray:
    """Return the sum of the outer products of rows, float32 (n, R), with themselves: float64 (R, R)."""
    total = np.zeros((factors.shape[1],) * 2)
    with silence_overflow():
        for first in range(0, len(factors), _CHUNK):
            some = factors[first : first + _CHUNK]
            total += some.T @ some
    return total


METHODS = ("sgd", "bsp", "ccd", "als", "implicit", "splash")
ON_RING = ("sgd", "ccd", "als", "implicit", "splash")  # methods that run on several machines
TAKES = takers(FactorizationOptions)  # options that only some methods have

_OPTIONS = {name: f"--method {name}" for name in METHODS} | {"implicit": "--implicit", "bsp": "--schedule bsp"}


def factorization_spec(
    method: str, options: dict[str, Any], given: dict[str, Any], *, on_ring: bool = False
) -> ProgramSpec:
    """Return the program of a method in METHODS: "implicit" is als with --implicit, "bsp" is sgd with --schedule bsp.

    options: options of all methods.
    given: options of some methods, None if not given by the user.
    on_ring: whether several machines train together.
    Raises RequestError if the method does not have one of the options, or does not run on a ring.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in chosen:
        if method not in TAKES[name]:
            takers = ", ".join(dict.fromkeys(_OPTIONS[taker] for taker in TAKES[name]))
            raise RequestError(
                f"--{name.replace('_', '-')} cannot be used with {_OPTIONS[method]}", f"Use it only with {takers}."
            )
    if on_ring and method not in ON_RING:
        known = ", ".join(_OPTIONS[name] for name in ON_RING)
        raise RequestError(f"{_OPTIONS[method]} cannot be used on several machines yet", f"Choose one of: {known}.")
    return ProgramSpec(target(f"mf-{method}"), options | chosen | ({"on_ring": True} if on_ring else {}))
