"""Declared shared variables and the shared-memory arrays that hold them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from ooc.program import Arrays
from ooc.stochastic.operators import FIXED_KINDS, KINDS, SOLE_KINDS
from ooc.stochastic.variables import STATE, PlainVariable, Queue, WorkerVariable, storage
from ooc.stochastic.worker_combination import GatheredVariable, VariableSlots
from ooc.workers.shared_arrays import ArraySpec

_TYPES = ("float64", "float32")


class Shared(NamedTuple):
    """Declaration of a shared variable.

    shape: shape of up to two dimensions, () for a number.
    delayed: whether to allow delayed additions.
    averaged: whether to keep the mean of all iterates.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    delayed: bool = False
    averaged: bool = False


def check_variable(name: str, declared: Shared) -> None:
    """Raise RequestError if a declaration is invalid."""
    if declared.dtype not in _TYPES:
        raise RequestError(f"{name}: the dtype {declared.dtype} is not supported", f"Use one of: {', '.join(_TYPES)}.")
    if len(declared.shape) >= len(KINDS) or min(declared.shape, default=1) < 1:
        raise RequestError(f"{name}: expected a shape of 1 or 2 dimensions, each at least 1, got {declared.shape}")


def committed_specs(name: str, declared: Shared) -> dict[str, ArraySpec]:
    """Return the specs of a variable's arrays in a generation: rows, sum of iterates, sum of weights."""
    rows = storage(declared.shape)
    specs = {name: ArraySpec(rows, declared.dtype)}
    if declared.averaged:
        specs |= {f"{name}.mean": ArraySpec(rows, "float64"), f"{name}.weights": ArraySpec((1,), "float64")}
    return specs


def spare_name(name: str) -> str:
    """Return the name of a variable's spare array, which holds its value from before a pass, or the result of a group
    in a trial."""
    return f"{name}.spare"


def slot_specs(name: str, declared: Shared, slots: int) -> dict[str, ArraySpec]:
    """Return the specs of a variable's arrays for workers in slots, and of its sums over workers."""
    rows, width = storage(declared.shape)
    many = {"values": rows, "late": rows if declared.delayed else 0, "past": rows if declared.averaged else 0}
    return {
        **{f"{name}.{field}": ArraySpec((slots, size, width), declared.dtype) for field, size in many.items()},
        f"{name}.stamps": ArraySpec((slots, rows), "uint8"),
        f"{name}.epochs": ArraySpec((slots, 1), "int64"),
        f"{name}.states": ArraySpec((slots, STATE), "float64"),
        f"{name}.sums": ArraySpec((rows, width), "float64"),
        f"{name}.rests": ArraySpec((rows, 2), "float64"),
        f"{name}.iterates": ArraySpec((many["past"], width), "float64"),
        f"{name}.weighed": ArraySpec((1,), "float64"),
    }


def variable_slots(name: str, arrays: Arrays, count: int, *, in_place: bool = False) -> VariableSlots:
    """Return the workers' copies of a variable in the first `count` slots.

    in_place: whether there is only one worker, which changes v itself.
    """
    slots = VariableSlots(*(arrays[f"{name}.{field}"][:count] for field in VariableSlots._fields))
    return slots._replace(values=arrays[name][None]) if in_place else slots


def gathered_variable(name: str, arrays: Arrays) -> GatheredVariable:
    """Return the arrays with the sums of a variable over workers."""
    return GatheredVariable(*(arrays[f"{name}.{field}"] for field in GatheredVariable._fields))


def slot_variable(
    name: str, declared: Shared, arrays: Arrays, number: int, slot: int, queue: Queue, *, in_place: bool = False
) -> Any:
    """Return a variable of the worker in a slot, as seen by `process`.

    in_place: whether this is the only worker, which changes v itself.
    """
    values, late, past, stamps, epochs, states = (arrays[f"{name}.{field}"][slot] for field in VariableSlots._fields)
    base, places = arrays[name], math.prod(declared.shape)
    values = base if in_place else values
    return KINDS[len(declared.shape)](
        WorkerVariable(number, places, values, late, past, stamps, epochs, states, base, queue)
    )


def unchanged_variable(declared: Shared, base: np.ndarray, number: int, queue: Queue) -> Any:
    """Return a read-only variable."""
    values = base.view()
    values.setflags(write=False)
    return FIXED_KINDS[len(declared.shape)](PlainVariable(number, math.prod(declared.shape), values, queue))


def sole_variable(declared: Shared, base: np.ndarray, number: int, queue: Queue) -> Any:
    """Return the variable of the only worker, which adds to v itself."""
    return SOLE_KINDS[len(declared.shape)](PlainVariable(number, math.prod(declared.shape), base, queue))


def make_queue(delays: int) -> Queue:
    """Return a queue for up to `delays` delayed additions of an element."""
    return Queue(np.zeros(1, np.int64), np.zeros((delays, 3), np.int64), np.zeros(delays), np.zeros(4, np.int64))
