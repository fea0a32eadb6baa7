"""Lasso and elastic net by rounds of coordinate descent: a program for the dynamic engine.

The objective, over columns x_j that are scaled to norm 1 and, with an intercept, centred, is (STRADS, eq. 4 and 5)

    1/2 ||y - sum_j x_j b_j||^2 + sum_j (penalty_j |b_j| + ridge_j / 2 b_j^2)
    b_j <- S(x_j' r + b_j, penalty_j) / (1 + ridge_j)

Columns are held without centring. Centring would add a constant to all rows of the residual r, which does not affect
products with centred columns, so the residual is kept without it.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.design.design import Design
from ooc.dynamic.held_columns import band_bounds
from ooc.dynamic.round_program import ParameterSurvey, ParameterWave, RoundProgram
from ooc.program import Arrays
from ooc.workers.shared_arrays import ArraySpec
from samplers.regression.linear_algebra.vectors import inner_product
from samplers.regression.quadratic.coordinate_descent import soft_threshold
from samplers.regression.rounds.column_sums import add_columns, column_sums, require_values


class LassoRounds(RoundProgram):
    """Lasso by rounds.

    Shared arrays of parameters: `coefficients` b, `scales` and `means` of the columns, `penalties` and `ridges`,
    `nearness`; of rows: `residual`, and `totals`, its sums in each band.
    """

    nearness = "nearness"

    def __init__(self, design: Design, most: int | None = None, intercept: bool = True) -> None:
        super().__init__(design, most)
        self._intercept = intercept
        if not intercept:
            require_values(design)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        names = ("coefficients", "scales", "means", "penalties", "ridges", "nearness")
        of_parameters = dict.fromkeys(names, ArraySpec((self.most,), "float64"))
        bands = band_bounds(self.design).size - 1
        rows = {"residual": ArraySpec((self.design.rows,), "float64"), "totals": ArraySpec((bands,), "float64")}
        return of_parameters | rows

    def begin(
        self, shared: Arrays, columns: np.ndarray, penalty: float | np.ndarray, ridge: float | np.ndarray = 0.0
    ) -> None:
        """Initialize b = 0 in the coordinator, for columns, int64 (m,), of the design.

        penalty, ridge: one number for all columns, or one for each, float64 (m,).
        """
        design, held = self.design, slice(columns.size)
        assert design.y is not None
        norms = (design.deviations * np.sqrt(design.rows) if self._intercept else design.norms)[columns]
        shared["coefficients"][held] = shared["nearness"][held] = 0.0
        shared["scales"][held] = np.where(norms > 0, norms, 1.0)
        shared["means"][held] = design.means[columns] if self._intercept else 0.0
        shared["penalties"][held], shared["ridges"][held] = penalty, ridge
        shared["residual"][:] = design.y - (design.y.mean() if self._intercept else 0.0)
        shared["totals"][:] = np.add.reduceat(shared["residual"], band_bounds(design)[:-1])

    def objective(self, shared: Arrays, parameters: int) -> float:
        """Return the objective over `parameters` held parameters, in the coordinator between rounds."""
        held, residual = slice(parameters), shared["residual"]
        coefficients = shared["coefficients"][held]
        squares = inner_product(residual, residual) - (residual.sum() ** 2 / residual.size if self._intercept else 0.0)
        ridge = inner_product(shared["ridges"][held], coefficients**2)
        return float(squares / 2 + inner_product(shared["penalties"][held], np.abs(coefficients)) + ridge / 2)

    def update(self, wave: ParameterWave) -> int:
        state, means, totals = (wave.shared[name] for name in ("residual", "means", "totals"))
        return column_sums(wave.columns, wave.parameters, wave.bands, state, means, totals, wave.sums)

    def aggregate(self, wave: ParameterWave) -> None:
        names = ("scales", "penalties", "ridges", "coefficients", "nearness")
        arrays = (wave.shared[name] for name in names)
        lasso_changes(wave.parameters, wave.sums, *arrays, wave.changes, wave.priorities)

    def apply(self, wave: ParameterWave) -> None:
        state, totals = wave.shared["residual"], wave.shared["totals"]
        add_columns(wave.columns, wave.parameters, wave.bands, wave.changes, state, totals)

    def survey(self, survey: ParameterSurvey) -> int:
        """Set the priority of each parameter to the squared change that its update makes."""
        shared, parameters = survey.shared, survey.parameters
        state, means, totals = (shared[name] for name in ("residual", "means", "totals"))
        sums, own = np.empty((parameters.size, totals.size, 1)), np.arange(parameters.size)
        samples = column_sums(survey.columns, parameters, (0, totals.size), state, means, totals, sums)
        names = ("scales", "penalties", "ridges", "coefficients")
        copies, nearness = (shared[name][parameters] for name in names), np.empty(own.size)
        lasso_changes(own, sums, *copies, nearness, np.empty(own.size), survey.priorities)
        shared["nearness"][parameters] = nearness
        return samples


@unmanaged_kernel
def lasso_changes(parameters, sums, scales, penalties, ridges, coefficients, nearness, changes, priorities):
    """Update coefficients from the products of their columns with the residual.

    parameters: int64 (c,).
    sums: float64 (c, B, 1), see `column_sums`.
    scales, penalties, ridges: float64 (m,), of all parameters.
    coefficients: float64 (m,), updated.
    nearness: float64 (m,), set for these parameters.
    priorities: float64 (c,), set.
    changes: float64 (c,), set to the factors of the held columns to add to the residual.
    """
    for i in range(parameters.size):
        j = parameters[i]
        before = coefficients[j]
        goal = before + sums[i, :, 0].sum() / scales[j]
        after = soft_threshold(goal, penalties[j]) / (1.0 + ridges[j])
        coefficients[j], nearness[j] = after, abs(goal) - penalties[j]
        changes[i] = (before - after) / scales[j]
        priorities[i] = (after - before) ** 2
