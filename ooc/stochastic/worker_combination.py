"""Combine the values of a shared variable from several workers (Splash, equation 9).

`ooc.stochastic.variables` describes the variable of a single worker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, unmanaged_kernel
from ooc.stochastic.variables import KEPT, SCALE, SETTLED, WEIGHT


class VariableSlots(NamedTuple):
    """A variable of several workers, in slots: the stacked arrays of `WorkerVariable`.

    epochs: int64 (slots, 1).
    states: float64 (slots, STATE).
    """

    values: np.ndarray
    late: np.ndarray
    past: np.ndarray
    stamps: np.ndarray
    epochs: np.ndarray
    states: np.ndarray


class GatheredVariable(NamedTuple):
    """A variable summed over several workers, in float64.

    sums: (rows, width), sums over the workers that touched a row, with m times T.
    rests: (rows, 2), number of times that v is counted in sums and in iterates for the workers that did not touch the
        row.
    iterates: (rows, width), weighted sums of the iterates of the workers that touched a row; (0, width) without a mean.
    """

    sums: np.ndarray
    rests: np.ndarray
    iterates: np.ndarray


@unmanaged_kernel
def gather(slots, rows, late_times, gathered):
    """Add the rows from first to last (exclusive) of the workers in slots.

    late_times: additional weight of delayed additions.
    """
    for row in range(*rows):
        gather_row(slots, row, late_times, gathered, row)


@inlined_kernel
def clear_row(gathered, place):
    """Set the gathered sums of a row to 0."""
    for column in range(gathered.sums.shape[1]):
        gathered.sums[place, column] = 0.0
        if gathered.iterates.size:
            gathered.iterates[place, column] = 0.0
    gathered.rests[place, 0] = gathered.rests[place, 1] = 0.0


@inlined_kernel
def gather_row(slots, row, late_times, gathered, place):
    """Add the row of each worker to the gathered sums."""
    rest, weight = 0.0, 0.0
    for slot in range(slots.stamps.shape[0]):
        if slots.stamps[slot, row] == slots.epochs[slot, 0]:
            add_worker(slots, slot, row, late_times, gathered, place)
        else:
            rest += slots.states[slot, SCALE] * slots.states[slot, KEPT]
            weight += slots.states[slot, KEPT] * slots.states[slot, WEIGHT] + slots.states[slot, SETTLED]
    gathered.rests[place, 0] += rest
    gathered.rests[place, 1] += weight


@inlined_kernel
def add_worker(slots, slot, row, late_times, gathered, place):
    """Add a row that a worker has touched: s * (x + late_times * late), and the sum of its iterates."""
    scale, values, sums = slots.states[slot, SCALE], slots.values[slot, row], gathered.sums[place]
    for column in range(sums.size):
        sums[column] += scale * values[column]
    if slots.late.size:
        for column in range(sums.size):
            sums[column] += late_times * (scale * slots.late[slot, row, column])
    if gathered.iterates.size:
        for column in range(sums.size):
            past = slots.past[slot, row, column]
            gathered.iterates[place, column] += slots.states[slot, WEIGHT] * values[column] - past


@unmanaged_kernel
def combine(gathered, base, rows, degree, accumulate, into, mean):
    """Set rows to the combined values of all workers (Splash, equation 9):

        v <- 1/m * sum_i (Gamma_i * v + Delta_i) + sum_i T_i
           = 1/m * (sum_i (Gamma_i * v + Delta_i + T_i) + (m - 1) * sum_i T_i)

    accumulate: whether to add up the changes of all workers instead (equation 5).
    base: (rows, width), v.
    into: (rows, width), output, may be `base`.
    mean: float64 (rows, width), sum of all iterates, which is added to; (0, width) without a mean.
    """
    for row in range(*rows):
        combine_row(gathered, row, base, row, degree, accumulate, into, mean)


@inlined_kernel
def any_of(numbers):
    """Return whether any number in an array is nonzero."""
    for number in numbers:  # noqa: SIM110
        if number != 0.0:
            return True
    return False


@inlined_kernel
def combine_row(gathered, place, base, row, degree, accumulate, into, mean):
    """Set a row to its combined value, computed from the gathered sums."""
    sums, rest, weight = gathered.sums[place], gathered.rests[place, 0], gathered.rests[place, 1]
    if mean.size:
        for column in range(sums.size):
            mean[row, column] += gathered.iterates[place, column] + weight * base[row, column]
    if rest == degree and not any_of(sums):
        for column in range(sums.size):
            into[row, column] = base[row, column]
        return
    if accumulate:
        for column in range(sums.size):
            into[row, column] = sums[column] + (rest - (degree - 1)) * base[row, column]
        return
    share = 1.0 / degree
    for column in range(sums.size):
        into[row, column] = share * (sums[column] + rest * base[row, column])


@unmanaged_kernel
def gather_and_combine(slots, rows, late_times, gathered, base, degree, accumulate, into, mean):
    """Gather and combine row by row, if all workers are in slots.

    gathered: work array of one row. The values of a single worker may be v itself. See `gather` and `combine` for the
        other arguments.
    """
    for row in range(*rows):
        clear_row(gathered, 0)
        gather_row(slots, row, late_times, gathered, 0)
        combine_row(gathered, 0, base, row, degree, accumulate, into, mean)
