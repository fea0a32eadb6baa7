"""Combination of what several workers made of a shared variable (Splash, equation 9).

`ooc.stochastic.variables` describes the variable of one worker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, unmanaged_kernel
from ooc.stochastic.variables import KEPT, SCALE, SETTLED, WEIGHT


class Slots(NamedTuple):
    """One variable of several workers, in slots: the arrays of `WorkerVariable`, stacked.

    epochs: int64 (slots, 1). states: float64 (slots, STATE).
    """

    values: np.ndarray
    late: np.ndarray
    past: np.ndarray
    stamps: np.ndarray
    epochs: np.ndarray
    states: np.ndarray


class Gathered(NamedTuple):
    """A variable summed over several workers. All float64.

    sums: (rows, width), over workers that touched a row, with m times T. rests: (rows, 2), for the other workers, how
    often v counts in sums and in iterates. iterates: (rows, width), or (0, width): weighted sum of the iterates of
    workers that touched a row.
    """

    sums: np.ndarray
    rests: np.ndarray
    iterates: np.ndarray


@unmanaged_kernel
def gather(slots, rows, late_times, gathered):
    """Add the rows from first to last (exclusive) of workers in slots. late_times: additional weight of delayed
    additions."""
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
    """Add a row of all workers to the gathered sums."""
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
    """Add a row that a worker has touched: s * (x + late_times * late), and its iterates."""
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
    """Set some rows to the combined values of all workers (Splash, equation 9):

        v <- 1/m * sum_i (Gamma_i * v + Delta_i) + sum_i T_i
           = 1/m * (sum_i (Gamma_i * v + Delta_i + T_i) + (m - 1) * sum_i T_i)

    accumulate: add up the changes of all workers instead (equation 5). base: (rows, width), v. into: (rows, width),
    which may be `base`. mean: float64 (rows, width), or (0, width): the sum of all iterates, to be added to.
    """
    for row in range(*rows):
        combine_row(gathered, row, base, row, degree, accumulate, into, mean)


@inlined_kernel
def any_of(numbers):
    """Return whether a number is not 0."""
    for number in numbers:  # noqa: SIM110
        if number != 0.0:
            return True
    return False


@inlined_kernel
def combine_row(gathered, place, base, row, degree, accumulate, into, mean):
    """Set a row to the combination of the gathered sums."""
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

    gathered: one row, work; see `gather` and `combine`. The values of a single worker may be v itself.
    """
    for row in range(*rows):
        clear_row(gathered, 0)
        gather_row(slots, row, late_times, gathered, 0)
        combine_row(gathered, 0, base, row, degree, accumulate, into, mean)
