"""Shared variables as the functions of a program see them, with the operators of Splash (section 4.2) as methods.

`process` gets `Scalar`, `Vector` and `Table`, or `SoleScalar` etc. if there is only one worker and the program only
adds to its variables; read-only functions get `FixedScalar` etc. The methods are compiled where compiled functions call
them, and also work without the compiler.
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
    PlainVariable,
    WorkerVariable,
    add,
    add_late,
    add_row,
    delay,
    is_beyond,
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
    """A shared number in `process`."""

    store: WorkerVariable

    def get(self) -> float:
        """Return the current value."""
        return read(self.store, 0, 0)

    def add(self, delta: float) -> None:
        """Add: v <- v + delta."""
        add(self.store, 0, 0, delta)

    def delayed_add(self, delta: float) -> None:
        """Add delta before this element is processed the next time."""
        delay(self.store, 0, 0, delta)

    def late_add(self, delta: float) -> None:
        """Add delta now, as a delayed addition that was stored in a local variable."""
        add_late(self.store, 0, 0, delta)

    def multiply(self, factor: float) -> None:
        """Multiply: v <- factor * v."""
        multiply(self.store, factor)

    def average(self, weight: float) -> None:
        """Add the current value to the mean over all iterates, with a weight (Splash, theorem 1)."""
        weigh(self.store, weight)


class Vector(NamedTuple):
    """A shared one-dimensional array in `process`."""

    store: WorkerVariable

    def get(self, place: int) -> float:
        """Return the current value at an index."""
        return read(self.store, place >> _SHIFT, place & _PLACE)

    def add(self, place: int, delta: float) -> None:
        """Add: v[place] <- v[place] + delta."""
        add(self.store, place >> _SHIFT, place & _PLACE, delta)

    def delayed_add(self, place: int, delta: float) -> None:
        """Add delta before this element is processed the next time."""
        delay(self.store, place >> _SHIFT, place & _PLACE, delta)

    def late_add(self, place: int, delta: float) -> None:
        """Add delta now, as a delayed addition that was stored in a local variable."""
        add_late(self.store, place >> _SHIFT, place & _PLACE, delta)

    def multiply(self, factor: float) -> None:
        """Multiply the whole array: v <- factor * v."""
        multiply(self.store, factor)

    def average(self, weight: float) -> None:
        """Add the current value to the mean over all iterates, with a weight (Splash, theorem 1)."""
        weigh(self.store, weight)


class Table(NamedTuple):
    """A shared two-dimensional array in `process`."""

    store: WorkerVariable

    def get(self, row: int, column: int) -> float:
        """Return the current value at a row and a column."""
        return read(self.store, row, column)

    def get_row(self, row: int, into: np.ndarray) -> None:
        """Copy the first n current values of a row into `into`, (n,)."""
        read_row(self.store, row, into)

    def row_view(self, row: int) -> ParameterTableRow:
        """Return a row for reading and adding; valid until the table is multiplied or the element is done."""
        store = self.store
        if is_outside(store, row, 0):
            row = 0
        touch(store, row)
        values, state = store.values[row], store.state
        return ParameterTableRow(values, values.dtype.type(state[SCALE]), values.dtype.type(state[INVERSE]))

    def prefetch(self, row: int) -> None:
        """Prefetch a row that will soon be read or added to."""
        prefetch_row(self.store, row)

    def add(self, row: int, column: int, delta: float) -> None:
        """Add: v[row, column] <- v[row, column] + delta."""
        add(self.store, row, column, delta)

    def add_row(self, row: int, deltas: np.ndarray) -> None:
        """Add: v[row, :n] <- v[row, :n] + deltas, (n,)."""
        add_row(self.store, row, deltas)

    def delayed_add(self, row: int, column: int, delta: float) -> None:
        """Add delta before this element is processed the next time."""
        delay(self.store, row, column, delta)

    def late_add(self, row: int, column: int, delta: float) -> None:
        """Add delta now, as a delayed addition that was stored in a local variable."""
        add_late(self.store, row, column, delta)

    def multiply(self, factor: float) -> None:
        """Multiply the whole table: v <- factor * v."""
        multiply(self.store, factor)

    def average(self, weight: float) -> None:
        """Add the current value to the mean over all iterates, with a weight (Splash, theorem 1)."""
        weigh(self.store, weight)


class ParameterTableRow(NamedTuple):
    """A row of a shared table, as fast as an array; indices are not checked.

    values: (n,), x.
    scale, inverse: scale of the table when the row was requested, and its inverse.
    """

    values: np.ndarray
    scale: float
    inverse: float

    def get(self, column: int) -> float:
        """Return the current value at a column."""
        return self.scale * self.values[column]

    def add(self, column: int, delta: float) -> None:
        """Add: v[column] <- v[column] + delta."""
        self.values[column] += delta * self.inverse


class FixedScalar(NamedTuple):
    """A read-only shared number."""

    store: PlainVariable

    def get(self) -> float:
        """Return the value."""
        return self.store.values[0, 0]


class FixedVector(NamedTuple):
    """A read-only shared one-dimensional array."""

    store: PlainVariable

    def get(self, place: int) -> float:
        """Return the value at an index; 0 if the index is out of bounds."""
        row, column = place >> _SHIFT, place & _PLACE
        return 0.0 if is_outside(self.store, row, column) else self.store.values[row, column]


class FixedTable(NamedTuple):
    """A read-only shared two-dimensional array."""

    store: PlainVariable

    def get(self, row: int, column: int) -> float:
        """Return the value at a row and a column; 0 if they are out of bounds."""
        return 0.0 if is_outside(self.store, row, column) else self.store.values[row, column]

    def get_row(self, row: int, into: np.ndarray) -> None:
        """Copy the first n values of a row into `into`, (n,)."""
        if not is_outside(self.store, row, into.size - 1):
            for column in range(into.size):
                into[column] = self.store.values[row, column]

    def row_view(self, row: int) -> FixedRow:
        """Return a row; the first row if the index is out of bounds."""
        return FixedRow(self.store.values[0 if is_outside(self.store, row, 0) else row])

    def prefetch(self, row: int) -> None:
        """Prefetch a row that will soon be read."""
        prefetch_row(self.store, row)


class FixedRow(NamedTuple):
    """A read-only row of a shared table."""

    values: np.ndarray

    def get(self, column: int) -> float:
        """Return the value at a column."""
        return self.values[column]


class SoleScalar(NamedTuple):
    """A shared number of the only worker."""

    store: PlainVariable

    def get(self) -> float:
        """Return the current value."""
        return np.float64(self.store.values[0, 0])

    def add(self, delta: float) -> None:
        """Add: v <- v + delta."""
        self.store.values[0, 0] += delta


class SoleVector(NamedTuple):
    """A shared one-dimensional array of the only worker."""

    store: PlainVariable

    def get(self, place: int) -> float:
        """Return the current value at an index; 0 if the index is out of bounds."""
        row, column = place >> _SHIFT, place & _PLACE
        return (
            0.0
            if is_beyond(self.store, place, self.store.places, row, column)
            else np.float64(self.store.values[row, column])
        )

    def add(self, place: int, delta: float) -> None:
        """Add: v[place] <- v[place] + delta."""
        row, column = place >> _SHIFT, place & _PLACE
        if not is_beyond(self.store, place, self.store.places, row, column):
            self.store.values[row, column] += delta


class SoleTable(NamedTuple):
    """A shared two-dimensional array of the only worker."""

    store: PlainVariable

    def get(self, row: int, column: int) -> float:
        """Return the current value at a row and a column; 0 if they are out of bounds."""
        return 0.0 if is_outside(self.store, row, column) else np.float64(self.store.values[row, column])

    def get_row(self, row: int, into: np.ndarray) -> None:
        """Copy the first n current values of a row into `into`, (n,)."""
        if not is_outside(self.store, row, into.size - 1):
            for column in range(into.size):
                into[column] = self.store.values[row, column]

    def row_view(self, row: int) -> SoleRow:
        """Return a row for reading and adding; the first row if the index is out of bounds."""
        values = self.store.values
        return SoleRow(values[0 if is_beyond(self.store, row, len(values), row, 0) else row])

    def prefetch(self, row: int) -> None:
        """Prefetch a row that will soon be read or added to."""
        prefetch_row(self.store, row)

    def add(self, row: int, column: int, delta: float) -> None:
        """Add: v[row, column] <- v[row, column] + delta."""
        if not is_outside(self.store, row, column):
            self.store.values[row, column] += delta

    def add_row(self, row: int, deltas: np.ndarray) -> None:
        """Add: v[row, :n] <- v[row, :n] + deltas, (n,)."""
        if not is_outside(self.store, row, deltas.size - 1):
            for column in range(deltas.size):
                self.store.values[row, column] += deltas[column]


class SoleRow(NamedTuple):
    """A row of a shared table of the only worker; indices are not checked."""

    values: np.ndarray

    def get(self, column: int) -> float:
        """Return the current value at a column."""
        return self.values[column]

    def add(self, column: int, delta: float) -> None:
        """Add: v[column] <- v[column] + delta."""
        self.values[column] += delta


KINDS: tuple[Any, ...] = (Scalar, Vector, Table)  # indexed by number of dimensions
FIXED_KINDS: tuple[Any, ...] = (FixedScalar, FixedVector, FixedTable)
SOLE_KINDS: tuple[Any, ...] = (SoleScalar, SoleVector, SoleTable)
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
    """Make a method callable from compiled functions for all classes that have it. numba inlines the method, because a
    call would take as long as twenty additions."""
    everything = (*KINDS, *FIXED_KINDS, *SOLE_KINDS, ParameterTableRow, FixedRow, SoleRow)
    bodies = {kind: inlined_kernel(getattr(kind, name)) for kind in everything if hasattr(kind, name)}

    options = {"forceinline": True, "_nrt": False, "error_model": "numpy"}

    @overload_method(types.BaseNamedTuple, name, jit_options=options)  # type: ignore[call-arg]
    def _(variable, *arguments):  # without type annotations, as numba requires matching signatures
        body = bodies.get(variable.instance_class)
        if body is None:
            return None
        return lambda variable, *arguments: body(variable, *arguments)  # noqa: PLW0108, as the signatures have to match


for _operator in OPERATORS:
    _let_compiled_functions_call(_operator)
