"""L1-regularised logistic regression by rounds of coordinate descent: a program for the dynamic engine.

The objective, over columns x_j that are scaled to norm 1, with labels y of -1 and 1 and margins f = sum_j x_j b_j, is

    sum_i log(1 + exp(-y_i f_i)) + sum_j penalty_j |b_j|
    b_j <- S(b_j + 4 x_j' g, 4 penalty_j),    g_i = y_i / (1 + exp(y_i f_i))

1/4 is the maximum curvature of the loss along a column of norm 1 (Shotgun, section 2), so a single update never raises
the objective.
"""

from __future__ import annotations

import math

import numpy as np

from blocks.compiled import unmanaged_kernel
from blocks.design.design import Design
from ooc.dynamic.held_columns import HeldSparseColumns, band_bounds
from ooc.dynamic.round_program import ParameterSurvey, ParameterWave, RoundProgram
from ooc.program import Arrays
from ooc.workers.shared_arrays import ArraySpec
from samplers.regression.linear_algebra.vectors import inner_product
from samplers.regression.quadratic.coordinate_descent import soft_threshold
from samplers.regression.rounds.column_sums import add_columns, column_sums, require_values

_CURVATURE = 0.25
_GRADIENT = "pulls"  # name of the negative gradient in saved states


class LogisticRounds(RoundProgram):
    """L1 logistic regression by rounds.

    Shared arrays of parameters: `coefficients` b, `scales` of the columns, `penalties`, `nearness`; of rows: `labels`
    y, `margins` f and `pulls`, the negative gradient of the loss with respect to the margins.
    """

    nearness = "nearness"

    def __init__(self, design: Design, most: int | None = None) -> None:
        super().__init__(design, most)
        require_values(design)
        self._band_bounds = band_bounds(design)
        self._uncentred = np.zeros(self.most), np.zeros(self._band_bounds.size - 1)  # means, totals

    def shared_arrays(self) -> dict[str, ArraySpec]:
        names = ("coefficients", "scales", "penalties", "nearness")
        of_parameters = dict.fromkeys(names, ArraySpec((self.most,), "float64"))
        of_rows = dict.fromkeys(("labels", "margins", _GRADIENT), ArraySpec((self.design.rows,), "float64"))
        return of_parameters | of_rows

    def begin(
        self, shared: Arrays, columns: np.ndarray, penalty: float | np.ndarray, labels: np.ndarray | None = None
    ) -> None:
        """Initialize b = 0 in the coordinator, for columns, int64 (m,), of the design.

        penalty: a number, or float64 (m,) with one for each column.
        labels: -1 and 1, float64 (n,); None for the labels of the design.
        """
        labels = self.design.y if labels is None else labels
        assert labels is not None
        held, norms = slice(columns.size), self.design.norms[columns]
        shared["coefficients"][held], shared["penalties"][held], shared["nearness"][held] = 0.0, penalty, 0.0
        shared["scales"][held] = np.where(norms > 0, norms, 1.0)
        shared["labels"][:], shared["margins"][:] = labels, 0.0
        shared[_GRADIENT][:] = labels / 2

    def objective(self, shared: Arrays, parameters: int) -> float:
        """Return the objective over `parameters` held parameters, in the coordinator between rounds."""
        held = slice(parameters)
        losses = np.logaddexp(0.0, -shared["labels"] * shared["margins"])
        return float(losses.sum() + inner_product(shared["penalties"][held], np.abs(shared["coefficients"][held])))

    def update(self, wave: ParameterWave) -> int:
        negative_gradient = wave.shared[_GRADIENT]
        return column_sums(wave.columns, wave.parameters, wave.bands, negative_gradient, *self._uncentred, wave.sums)

    def aggregate(self, wave: ParameterWave) -> None:
        arrays = (wave.shared[name] for name in ("scales", "penalties", "coefficients", "nearness"))
        logistic_changes(wave.parameters, wave.sums, *arrays, wave.changes, wave.priorities)

    def apply(self, wave: ParameterWave) -> None:
        margins, (first, last) = wave.shared["margins"], wave.bands
        add_columns(wave.columns, wave.parameters, wave.bands, wave.changes, margins, np.empty(last))
        rows = [wave.shared[name] for name in ("labels", "margins", _GRADIENT)]
        if isinstance(wave.columns, HeldSparseColumns):
            update_negative_gradient(wave.columns, wave.parameters, first, last, wave.changes, *rows)
        elif wave.changes.any():
            set_negative_gradient(*(array[slice(*self._band_bounds[[first, last]])] for array in rows))

    def survey(self, survey: ParameterSurvey) -> int:
        """Set the priority of each parameter to the squared change that its update makes."""
        shared, parameters, bands = survey.shared, survey.parameters, self._band_bounds.size - 1
        sums, own = np.empty((parameters.size, bands, 1)), np.arange(parameters.size)
        samples = column_sums(survey.columns, parameters, (0, bands), shared[_GRADIENT], *self._uncentred, sums)
        copies = (shared[name][parameters] for name in ("scales", "penalties", "coefficients"))
        nearness = np.empty(own.size)
        logistic_changes(own, sums, *copies, nearness, np.empty(own.size), survey.priorities)
        shared["nearness"][parameters] = nearness
        return samples


@unmanaged_kernel
def logistic_changes(parameters, sums, scales, penalties, coefficients, nearness, changes, priorities):
    """Update coefficients from the products of their columns with the negative gradient.

    parameters: int64 (c,).
    sums: float64 (c, B, 1), see `column_sums`.
    scales, penalties: float64 (m,), of all parameters.
    coefficients: float64 (m,), updated.
    nearness: float64 (m,), set for these parameters.
    priorities: float64 (c,), set.
    changes: float64 (c,), set to the factors of the held columns to add to the margins.
    """
    for i in range(parameters.size):
        j = parameters[i]
        before = coefficients[j]
        goal = before + sums[i, :, 0].sum() / (scales[j] * _CURVATURE)
        after = soft_threshold(goal, penalties[j] / _CURVATURE)
        coefficients[j], nearness[j] = after, abs(goal) - penalties[j] / _CURVATURE
        changes[i] = (after - before) / scales[j]
        priorities[i] = (after - before) ** 2


@unmanaged_kernel
def set_negative_gradient(labels, margins, negative_gradient):
    """Set the negative gradient of the loss with respect to the margins of some rows.

    labels, margins: float64 (n,).
    negative_gradient: float64 (n,), set.
    """
    for row in range(labels.size):
        negative_gradient[row] = labels[row] / (1.0 + math.exp(labels[row] * margins[row]))


@unmanaged_kernel
def update_negative_gradient(columns, parameters, first, last, changes, labels, margins, negative_gradient):
    """Set the negative gradient of the rows that have entries of changed parameters, in bands `first` to `last` - 1."""
    for i in range(parameters.size):
        bounds = columns.bounds[parameters[i]]
        for row in columns.rows[bounds[first] : bounds[last if changes[i] != 0 else first]]:
            negative_gradient[row] = labels[row] / (1.0 + math.exp(labels[row] * margins[row]))
