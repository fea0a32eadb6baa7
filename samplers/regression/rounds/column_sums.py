"""Kernels of rounds: sums of columns over rows, and updates of the rows after coefficients have changed.

`columns` is a HeldSparseColumns or HeldDenseColumns, `parameters` int64 (c,) are the indices of columns in it. A worker
processes the bands from `first` to `last` (exclusive) of the rows. Sums are float64 and computed band by band.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.compiled import reordered_kernel
from blocks.design.design import Design
from blocks.errors import RequestError
from ooc.dynamic.held_columns import HeldDenseColumns, HeldSparseColumns

Columns = HeldSparseColumns | HeldDenseColumns


def require_values(design: Design) -> None:
    """Raise RequestError if a design stores differences from offsets and there is no intercept to absorb the
    offsets.
    """
    if design.offsets is not None:
        name = design.names_of(np.flatnonzero(design.offsets)[:1])[0]
        raise RequestError(
            f"--schedule cannot be used with --no-intercept here: column {name} is stored as differences from"
            f" {design.offsets[design.offsets != 0][0]:.15g}",
            "Omit --schedule, or subtract this number in the input.",
        )


def column_sums(
    columns: Columns,
    parameters: np.ndarray,
    bands: tuple[int, int],
    state: np.ndarray,
    means: np.ndarray,
    totals: np.ndarray,
    sums: Any,
) -> int:
    """Fill sums[:, b, 0], of sums float64 (c, B, 1), with (x_j - mean_j)' state over each band b.

    state: float64 (n,), whose sum over each band is in totals, float64 (B,).
    means: float64 (m,).
    Returns the number of samples read.
    """
    kernel = sparse_sums if isinstance(columns, HeldSparseColumns) else dense_sums
    return int(kernel(columns, parameters, *bands, state, means, totals, sums))


def add_columns(
    columns: Columns,
    parameters: np.ndarray,
    bands: tuple[int, int],
    changes: np.ndarray,
    state: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Add sum_j changes_j x_j to state, float64 (n,), and its sum over each band to totals, float64 (B,)."""
    kernel = add_sparse if isinstance(columns, HeldSparseColumns) else add_dense
    kernel(columns, parameters, *bands, changes, state, totals)


@reordered_kernel
def sparse_sums(columns, parameters, first, last, state, means, totals, sums):
    """See `column_sums`."""
    samples = 0
    for i in range(parameters.size):
        bounds, mean = columns.bounds[parameters[i]], means[parameters[i]]
        for band in range(first, last):
            rows, values = (
                columns.rows[bounds[band] : bounds[band + 1]],
                columns.values[bounds[band] : bounds[band + 1]],
            )
            total = 0.0
            for entry in range(rows.size):
                total += values[entry] * state[rows[entry]]
            sums[i, band, 0] = total - mean * totals[band]
        samples += bounds[last] - bounds[first]
    return samples


@reordered_kernel
def dense_sums(columns, parameters, first, last, state, means, totals, sums):
    """See `column_sums`."""
    bounds = columns.bounds
    for i in range(parameters.size):
        for band in range(first, last):
            values = columns.values[parameters[i], bounds[band] : bounds[band + 1]]
            mine = state[bounds[band] : bounds[band + 1]]
            total = 0.0
            for row in range(values.size):
                total += values[row] * mine[row]
            sums[i, band, 0] = total - means[parameters[i]] * totals[band]
    return parameters.size * (bounds[last] - bounds[first])


@reordered_kernel
def add_sparse(columns, parameters, first, last, changes, state, totals):
    """See `add_columns`."""
    for i in range(parameters.size):
        change, bounds = changes[i], columns.bounds[parameters[i]]
        for band in range(first, last if change != 0 else first):
            rows, values = (
                columns.rows[bounds[band] : bounds[band + 1]],
                columns.values[bounds[band] : bounds[band + 1]],
            )
            total = 0.0
            for entry in range(rows.size):
                state[rows[entry]] += change * values[entry]
                total += values[entry]
            totals[band] += change * total


@reordered_kernel
def add_dense(columns, parameters, first, last, changes, state, totals):
    """See `add_columns`."""
    bounds = columns.bounds
    for i in range(parameters.size):
        change = changes[i]
        for band in range(first, last if change != 0 else first):
            values = columns.values[parameters[i], bounds[band] : bounds[band + 1]]
            mine = state[bounds[band] : bounds[band + 1]]
            total = 0.0
            for row in range(values.size):
                mine[row] += change * values[row]
                total += values[row]
            totals[band] += change * total
