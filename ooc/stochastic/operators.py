"""Shared variables as the functions of a program see them: the operators (Splash, 4.2) are methods.

`Scalar`, `Vector` and `Table` are what `process` has; functions that only read have `FixedScalar` and so on. The
methods are compiled where compiled functions call them, and work without the compiler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import overload_method

from blocks.compiled import inlined_kernel
from ooc.stochastic.variables import (
    CHUNK,
    INVERSE,
    SCALE,
    Unchanged,
    WorkerVariable,
    add,
    add_late,
    add_row,
    delay,
    is_outside,
    multiply,
    prefetch_row,
    read,
    read_row,
    touch,
    weigh,
)

_SHIFT, _PLACE = 4, CHUNK - 1


class Scalar(NamedTuple):
    """A shared number, as `process` sees it."""

    store: WorkerVariable

    def get(self) -> float:
        """The present value."""
        return read(self.store, 0, 0)

    def add(self, delta: float) -> None:
        """v <- v + delta."""
        add(self.store, 0, 0, delta)

    def delayed_add(self, delta: float) -> None:
        """The same, before this element is processed the next time."""
        delay(self.store, 0, 0, delta)

    def late_add(self, delta: float) -> None:
        """A delayed addition whose time has come, for who keeps it in a local variable."""
        add_late(self.store, 0, 0, delta)

    def multiply(self, factor: float) -> None:
        """v <- factor * v, all of it at once."""
        multiply(self.store, factor)

    def average(self, weight: float) -> None:
        """Have the present value count in the mean over all iterates, with a weight (Splash, theorem 1)."""
        weigh(self.store, weight)


class Vector(NamedTuple):
    """A shared array of one dimension, as `process` sees it."""

    store: WorkerVariable

    def get(self, place: int) -> float:
        """The present value at a place."""
        return read(self.store, place >> _SHIFT, place & _PLACE)

    def add(self, place: int, delta: float) -> None:
        """v[place] <- v[place] + delta."""
        add(self.store, place >> _SHIFT, place & _PLACE, delta)

    def delayed_add(self, place: int, delta: float) -> None:
        """The same, before this element is processed the next time."""
        delay(self.store, place >> _SHIFT, place & _PLACE, delta)

    def late_add(self, place: int, delta: float) -> None:
        """A delayed addition whose time has come, for who keeps it in a local variable."""
        add_late(self.store, place >> _SHIFT, place & _PLACE, delta)

    def multiply(self, factor: float) -> None:
        """v <- factor * v, all of it at once."""
        multiply(self.store, factor)

    def average(self, weight: float) -> None:
        """Have the present value count in the mean over all iterates, with a weight (Splash, theorem 1)."""
        weigh(self.store, weight)


class Table(NamedTuple):
    """A shared array of two dimensions, as `process` sees it."""

    store: WorkerVariable

    def get(self, row: int, column: int) -> float:
        """The present value at a place."""
        return read(self.store, row, column)

    def get_row(self, row: int, into: np.ndarray) -> None:
        """Copy the present values of a row, as many as `into`, (n,), has room for."""
        read_row(self.store, row, into)

    def row_view(self, row: int) -> TableRow:
        """A row, to be read and added to; valid until the table is multiplied, or the element is done."""
        store = self.store
        if is_outside(store, row, 0):
            row = 0
        touch(store, row)
        values, state = store.values[row], store.state
        return TableRow(values, values.dtype.type(state[SCALE]), values.dtype.type(state[INVERSE]))

    def prefetch(self, row: int) -> None:
        """Ask for the memory of a row that will soon be read or added to: it comes while others are worked on."""
        prefetch_row(self.store, row)

    def add(self, row: int, column: int, delta: float) -> None:
        """v[row, column] <- v[row, column] + delta."""
        add(self.store, row, column, delta)

    def add_row(self, row: int, deltas: np.ndarray) -> None:
        """v[row, :n] <- v[row, :n] + deltas, (n,)."""
        add_row(self.store, row, deltas)

    def delayed_add(self, row: int, column: int, delta: float) -> None:
        """The same as `add`, before this element is processed the next time."""
        delay(self.store, row, column, delta)

    def late_add(self, row: int, column: int, delta: float) -> None:
        """A delayed addition whose time has come, for who keeps it in a local variable."""
        add_late(self.store, row, column, delta)

    def multiply(self, factor: float) -> None:
        """v <- factor * v, all of it at once."""
        multiply(self.store, factor)

    def average(self, weight: float) -> None:
        """Have the present value count in the mean over all iterates, with a weight (Splash, theorem 1)."""
        weigh(self.store, weight)


class TableRow(NamedTuple):
    """A row of a shared table: its places cost no more than those of an array. They are not checked.

    values: (n,), x. scale, inverse: of the table, when the row was asked for.
    """

    values: np.ndarray
    scale: float
    inverse: float

    def get(self, column: int) -> float:
        """The present value at a place."""
        return self.scale * self.values[column]

    def add(self, column: int, delta: float) -> None:
        """v[column] <- v[column] + delta."""
        self.values[column] += delta * self.inverse


class FixedScalar(NamedTuple):
    """A shared number that is only read."""

    store: Unchanged

    def get(self) -> float:
        """The value."""
        return self.store.values[0, 0]


class FixedVector(NamedTuple):
    """A shared array of one dimension that is only read."""

    store: Unchanged

    def get(self, place: int) -> float:
        """The value at a place; 0 where there is none."""
        row, column = place >> _SHIFT, place & _PLACE
        return 0.0 if is_outside(self.store, row, column) else self.store.values[row, column]


class FixedTable(NamedTuple):
    """A shared array of two dimensions that is only read."""

    store: Unchanged

    def get(self, row: int, column: int) -> float:
        """The value at a place; 0 where there is none."""
        return 0.0 if is_outside(self.store, row, column) else self.store.values[row, column]

    def get_row(self, row: int, into: np.ndarray) -> None:
        """Copy the values of a row, as many as `into`, (n,), has room for."""
        if not is_outside(self.store, row, into.size - 1):
            for column in range(into.size):
                into[column] = self.store.values[row, column]

    def row_view(self, row: int) -> FixedRow:
        """A row; the first one where there is none."""
        return FixedRow(self.store.values[0 if is_outside(self.store, row, 0) else row])

    def prefetch(self, row: int) -> None:
        """Ask for the memory of a row that will soon be read."""
        prefetch_row(self.store, row)


class FixedRow(NamedTuple):
    """A row of a shared table that is only read."""

    values: np.ndarray

    def get(self, column: int) -> float:
        """The value at a place."""
        return self.values[column]


KINDS: tuple[Any, ...] = (Scalar, Vector, Table)  # by the number of dimensions
FIXED_KINDS: tuple[Any, ...] = (FixedScalar, FixedVector, FixedTable)
OPERATORS = (
    "get",
    "get_row",
    "row_view",
    "prefetch",
    "add",
    "add_row",
    "delayed_add",
    "late_add",
    "multiply",
    "average",
)


def _let_compiled_functions_call(name: str) -> None:
    """A method of all that has it; numba inlines it, or a call would take as long as some twenty additions."""
    everything = (*KINDS, *FIXED_KINDS, TableRow, FixedRow)
    bodies = {kind: inlined_kernel(getattr(kind, name)) for kind in everything if hasattr(kind, name)}

    options = {"forceinline": True, "_nrt": False, "error_model": "numpy"}

    @overload_method(types.BaseNamedTuple, name, jit_options=options)  # type: ignore[call-arg]
    def _(variable, *arguments):  # without types, as what it returns has to be alike
        body = bodies.get(variable.instance_class)
        if body is None:
            return None
        return lambda variable, *arguments: body(variable, *arguments)  # noqa: PLW0108, as the signatures have to match


for _operator in OPERATORS:
    _let_compiled_functions_call(_operator)
