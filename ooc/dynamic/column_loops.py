"""Generate the loops over the entries of columns that call the functions of a user's program, and compile them.

The types of `row`, `column` and `shared` depend on the fields that the program declares, see `ooc.user_modules`. Loops
process the rows band by band (`ooc.dynamic.held_columns`), so that results do not depend on the assignment of bands to
workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ooc.user_modules import defining_class, loops_module, types_module


class DeclaredMembers(NamedTuple):
    """Functions and fields that a program declares.

    functions: `update`, `aggregate`, and `priority` and `derive` if the program defines them.
    coefficients: name of the coefficient field.
    residual: name of the residual field.
    rows, columns, shared: names of all fields of each kind; shared includes constants.
    derived: names of the row fields that `derive` returns.
    group: number of columns per parameter.
    shape: shape of a column's coefficients.
    sums: number of sums per column.
    """

    functions: dict[str, Any]
    coefficients: str
    residual: str
    rows: Sequence[str]
    columns: Sequence[str]
    shared: Sequence[str]
    derived: Sequence[str]
    group: int
    shape: tuple[int, ...]
    sums: int


_HEAD = '''"""Rounds for {target}: made by ooc.dynamic.column_loops."""

import numpy as np

from blocks.compiled import (
    inlined,
    inlined_kernel,
    kernel,
    reordered_kernel,
    uncached_kernel,
    uncached_managed_kernel,
    uncached_reordered_kernel,
    unmanaged_kernel,
)
from {module} import {program} as Program
from ooc.dynamic.candidate_independence import independent_dense, independent_sparse
from ooc.dynamic.round_steps import count_update, enter_round, is_ready, parameters_in_flight, set_priorities
from ooc.dynamic.round_steps import wave_places
from ooc.dynamic.round_schedule import AGGREGATE, SCHEDULE, UPDATE
from ooc.workers.intrinsics import on_stack
from {types} import Column, Row, Shared

GROUP, SUMS = {group}, {sums}


def plain(function):
    return getattr(function, "py_func", function)


update = uncached_reordered_kernel(plain(Program.update))
aggregate = uncached_managed_kernel(plain(Program.aggregate))
{priority_kernel}

@inlined_kernel
def row_at(rows, row):
    return Row({row_at})


@inlined_kernel
def rows_between(rows, first, last):
    return Row({rows_between})


@inlined  # as part of a kernel that counts references
def column_at(columns, parameter):
    return Column({column_at})


@reordered_kernel
def sparse_sums(columns, parameters, first, last, rows, shared, sums):
    """Fill sums, float64 (c, B, GROUP, SUMS), for the bands from `first` on; returns the entries that were read.

    columns: HeldSparseColumns. parameters: int64 (c,). rows: Row of arrays (n, ...).
    """
    samples = 0
    for i in range(parameters.size):
        for member in range(GROUP):
            bounds = columns.bounds[GROUP * parameters[i] + member]
            for band in range(first, last):
                places = columns.rows[bounds[band] : bounds[band + 1]]
                values = columns.values[bounds[band] : bounds[band + 1]]
                found = on_stack({zeros})
                for entry in range(places.size):
                    update(np.float64(values[entry]), row_at(rows, places[entry]), found, shared)
                for number in range(SUMS):
                    sums[i, band, member, number] = found[number]
            samples += bounds[last] - bounds[first]
    return samples


@reordered_kernel
def dense_sums(columns, parameters, first, last, rows, shared, sums):
    """Like `sparse_sums`, for HeldDenseColumns."""
    bounds = columns.bounds
    for i in range(parameters.size):
        for member in range(GROUP):
            for band in range(first, last):
                values = columns.values[GROUP * parameters[i] + member, bounds[band] : bounds[band + 1]]
                mine = rows_between(rows, bounds[band], bounds[band + 1])
                found = on_stack({zeros})
                for row in range(values.size):
                    update(np.float64(values[row]), row_at(mine, row), found, shared)
                for number in range(SUMS):
                    sums[i, band, member, number] = found[number]
    return parameters.size * GROUP * (bounds[last] - bounds[first])


@inlined_kernel
def add_bands(sums, found):
    """Fill found, float64 (SUMS,), with the sums of all bands, float64 (B, SUMS), in their order."""
    for number in range(SUMS):
        found[number] = 0.0
        for band in range(len(sums)):
            found[number] += sums[band, number]


@inlined_kernel
def weighed_squares(weights, changes):
    total = 0.0
    for member in range(GROUP):
        for number in range(changes.shape[1]):
            total += weights[member] * changes[member, number] ** 2
    return total


@inlined_kernel
def is_changed(changes):
    for number in range(changes.size):
        if changes[number] != 0:
            return True
    return False


@kernel
def change_columns(parameters, sums, weights, columns, shared, changes, priorities):
    """Update some parameters, given what `update` came to.

    parameters: int64 (c,). sums: float64 (c, B, GROUP, SUMS). weights: float64 (m,), the squared norms of the columns:
    a parameter whose columns are 0 stays as it is. columns: Column of arrays (m, ...), changed. Filled: changes float64
    (c, GROUP, W), of the coefficients; priorities float64 (c,).
    """
{change}


'''

_CHANGE_NUMBER = """    found = np.empty(SUMS)
    for i in range(parameters.size):
        parameter = parameters[i]
        before = columns.{coefficients}[parameter]
        if weights[parameter] > 0:
            add_bands(sums[i, :, 0], found)
            columns.{coefficients}[parameter] = aggregate(found, column_at(columns, parameter), shared)
        changes[i, 0, 0] = columns.{coefficients}[parameter] - before
        priorities[i] = {priority}
"""
_CHANGE_SEVERAL = """    found = np.empty(sums.shape[2:])
    before = np.empty(changes.shape[1:])
    for i in range(parameters.size):
        parameter, first = parameters[i], GROUP * parameters[i]
        own = columns.{coefficients}[first : first + GROUP].reshape(changes.shape[1:])
        before[:] = own
        if weights[first : first + GROUP].sum() > 0:
            for member in range(GROUP):
                add_bands(sums[i, :, member], found[member])
            aggregate(found{member}, column_at(columns, parameter), shared)
        changes[i] = own
        changes[i] -= before
        priorities[i] = {priority}
"""

_ADD = '''@reordered_kernel
def add_sparse(columns, parameters, first, last, changes, residual):
    """Add each column times its change to the residual, float64 (n, ...)."""
    for i in range(parameters.size):
        for member in range(GROUP):
            change, bounds = {change}, columns.bounds[GROUP * parameters[i] + member]
            for band in range(first, last if is_changed(changes[i, member]) else first):
                places = columns.rows[bounds[band] : bounds[band + 1]]
                values = columns.values[bounds[band] : bounds[band + 1]]
                for entry in range(places.size):
                    {add_sparse}


@reordered_kernel
def add_dense(columns, parameters, first, last, changes, residual):
    """Like `add_sparse`, for HeldDenseColumns."""
    bounds = columns.bounds
    for i in range(parameters.size):
        for member in range(GROUP):
            change = {change}
            for band in range(first, last if is_changed(changes[i, member]) else first):
                values = columns.values[GROUP * parameters[i] + member, bounds[band] : bounds[band + 1]]
                mine = residual[bounds[band] : bounds[band + 1]]
                for row in range(values.size):
                    {add_dense}
'''
_NUMBER = {  # for programs with one coefficient per column
    "change": "changes[i, member, 0]",
    "add_sparse": "residual[places[entry]] += change * values[entry]",
    "add_dense": "mine[row] += change * values[row]",
}
_VECTOR = {
    "change": "changes[i, member]",
    "add_sparse": """for number in range(change.size):
                        residual[places[entry], number] += change[number] * values[entry]""",
    "add_dense": """for number in range(change.size):
                        mine[row, number] += change[number] * values[row]""",
}

_DERIVE = '''

derive = uncached_kernel(plain(Program.derive))


@unmanaged_kernel
def derive_rows(rows, first, last, shared):
    """Set what follows from the residual, of the rows from `first` on."""
    for row in range(first, last):
        {derived} = derive(row_at(rows, row), shared)


@unmanaged_kernel
def derive_entries(columns, parameters, first, last, changes, rows, shared):
    """Likewise, of the rows of some bands in which a column that changes has an entry."""
    for i in range(parameters.size):
        for member in range(GROUP):
            bounds = columns.bounds[GROUP * parameters[i] + member]
            for row in columns.rows[bounds[first] : bounds[last if is_changed(changes[i, member]) else first]]:
                {derived} = derive(row_at(rows, row), shared)
'''


_STEPS = '''

@kernel
def {form}_steps(
    steps, order, rounds, proposals, check, held, bands, sums, changes, rows, columns, shared, weights, residual
):
    """Take steps until the worker has to wait for another; returns the number of steps, and of values read.

    See `ooc.dynamic.round_program.WorkerSteps` and the kernels above for the arguments. bands: the worker's first band,
    the band after its last one, and the first rows of both.
    """
    samples, priorities = 0, np.empty(check.parallel)
    for place in range(len(steps)):
        what, number, wave = steps[place]
        if samples > {most} or not is_ready(what, number, wave, order, rounds.counters):
            return place, samples
        slot, first, last = wave_places(number, wave, order.slots, order.waves, rounds.counts)
        parameters, mine, found = rounds.parameters[slot, first:last], changes[slot, first:last], priorities[first:last]
        if what == SCHEDULE:
            together, taken = parameters_in_flight(number, order, rounds, proposals)
            enter_round(number, independent_{form}(held, together, taken, check), order, rounds)
        elif what == UPDATE:
            samples += {form}_sums(held, parameters, bands[0], bands[1], rows, shared, sums[slot, first:last])
            count_update(number, wave, order, rounds.counters)
        elif what == AGGREGATE:
            change_columns(parameters, sums[slot, first:last], weights, columns, shared, mine, found)
            set_priorities(number, wave, parameters, found, order, rounds)
        else:
            add_{form}(held, parameters, bands[0], bands[1], mine, residual)
            {derive}
    return len(steps), samples
'''
_DERIVES = {
    "sparse": "derive_entries(held, parameters, bands[0], bands[1], mine, rows, shared)",
    "dense": """if is_changed(mine.reshape(-1)):
                derive_rows(rows, bands[2], bands[3], shared)""",
}
_SAMPLES = 1 << 26  # number of values, about 50 ms of work, between checks that the coordinator still runs


def load(program: type, declared: DeclaredMembers) -> ModuleType:
    """Return the module with a program's loops: `Row`, `Column`, `Shared` and the kernels."""
    types = types_module({"Row": declared.rows, "Column": declared.columns, "Shared": declared.shared})
    return loops_module(source(defining_class(program, declared.functions), declared, types), declared.functions)


def source(program: type, declared: DeclaredMembers, types: str) -> str:
    """Return the source of the module.

    types: name of the module that defines `Row`, `Column` and `Shared`.
    """
    number = declared.group == 1 and not declared.shape
    name, own_priority = declared.coefficients, "priority" in declared.functions
    mine = "GROUP * parameter : GROUP * (parameter + 1)" if declared.group > 1 else "parameter"
    before = "before" if number else _shaped(declared)
    weights = "weights[parameter : parameter + 1]" if number else "weights[first : first + GROUP]"
    change = (_CHANGE_NUMBER if number else _CHANGE_SEVERAL).format(
        coefficients=name,
        member="" if declared.group > 1 else "[0]",
        priority=f"priority({before}, column_at(columns, parameter), shared)"
        if own_priority
        else f"weighed_squares({weights}, changes[i])",  # the squared change of the residual
    )
    text = _HEAD.format(
        target=f"{program.__module__}.{program.__name__}",
        module=program.__module__,
        program=program.__name__,
        types=types,
        group=declared.group,
        sums=declared.sums,
        row_at=", ".join(f"rows.{row}[row]" for row in declared.rows),
        rows_between=", ".join(f"rows.{row}[first:last]" for row in declared.rows),
        column_at=", ".join(f"columns.{column}[{mine}]" for column in declared.columns),
        zeros=f"({'0.0, ' * declared.sums})",
        change=change.rstrip(),
        priority_kernel="priority = uncached_managed_kernel(plain(Program.priority))\n" if own_priority else "",
    )
    text += _ADD.format(**(_VECTOR if declared.shape else _NUMBER))
    if "derive" in declared.functions:
        text += _DERIVE.format(derived=", ".join(f"rows.{row}[row]" for row in declared.derived))
    for form, derive in _DERIVES.items():
        text += _STEPS.format(form=form, most=_SAMPLES, derive=derive if declared.derived else "pass")
    return text


def _shaped(declared: DeclaredMembers) -> str:
    """Return the source of the expression for a parameter's previous coefficients, in the shape that `column` has."""
    shape = (*((declared.group,) if declared.group > 1 else ()), *declared.shape)
    return f"before.reshape({shape})"


def width(shape: tuple[int, ...]) -> int:
    """Return the number of coefficients of a column."""
    return math.prod(shape)
