"""SIMD vectors of sixteen floats, a cache line, for kernels on rows of factors.

The compiler splits a loop that writes two rows into a vectorized part, used only if the rows do not overlap, and a
scalar remainder, which is most of the loop for short rows.

    load(array, index)            sixteen elements of a one-dimensional contiguous float32 array: a lane
    store(array, index, lane)     write a lane to an array
    spread(value)                 a lane with the value in all places
    times(one, other)             one * other
    fused(one, other, added)      one * other + added
    total(lane)                   the sum of the elements of a lane
    replaced(lane, place, value)  the lane with another value in one place

and four at a time, two of an array beside two of another:

    load_pairs(one, other)        the first two elements of each array: a quad
    store_pairs(one, other, quad) write a quad to both arrays
    quad(value)                   a quad with the value in all places
    swapped(quad)                 the quad with its two pairs exchanged
    place(quad, index)            the value in a place
    totals(a, b, c, d)            the sums of four lanes
    over_roots(value, quad)       the value divided by the root of each element
    spread_place(quad, place)     a lane with the value of one place in all places

Without the compiler, lanes and quads are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

LANE = 16  # number of floats; rows of factors start at a cache line
_INT = ir.IntType(32)


class _VectorType(types.Type):
    def __init__(self, floats: int) -> None:
        super().__init__(f"Vector({floats})")
        self.floats, self.vector = floats, ir.VectorType(ir.FloatType(), floats)


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)


_PAIR, _QUAD, _WHOLE = (_VectorType(floats) for floats in (2, 4, LANE))


def _operation(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiler intrinsic, or the equivalent NumPy function if kernels are not compiled."""
    return lambda typed: plain if numba.config.DISABLE_JIT else intrinsic(typed)  # type: ignore[attr-defined]


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _chosen(builder: Any, one: Any, other: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(_INT, len(places)), places))


def _broadcast(builder: Any, value: Any, kind: Any) -> Any:
    undefined = ir.Constant(kind.vector, ir.Undefined)
    first = builder.insert_element(undefined, value, _INT(0))
    return _chosen(builder, first, undefined, [0] * kind.floats)


def _folded(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector's two halves."""
    half = vector.type.count // 2
    parts = (_chosen(builder, vector, vector, list(range(first, first + half))) for first in (0, half))
    return builder.fadd(*parts)


@_operation(lambda array, index: array[index : index + LANE].copy())
def load(_: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, array, arguments[0], arguments[1], _WHOLE.vector), align=4)

    return _WHOLE(array, types.intp), generate


@_operation(lambda array, index, lane: np.copyto(array[index : index + LANE], lane))
def store(_: Any, array: Any, index: Any, lane: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(
            arguments[2], _address(context, builder, array, arguments[0], arguments[1], _WHOLE.vector), align=4
        )
        return context.get_dummy_value()

    return types.void(array, types.intp, lane), generate


@_operation(lambda value: np.full(LANE, value, np.float32))
def spread(_: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, arguments[0], _WHOLE)

    return _WHOLE(types.float32), generate


@_operation(np.multiply)
def times(_: Any, one: Any, other: Any) -> Any:
    return one(one, one), lambda context, builder, signature, arguments: builder.fmul(*arguments)


@_operation(lambda one, other, added: one * other + added)
def fused(_: Any, one: Any, other: Any, added: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(one.vector, [one.vector] * 3)
        name = f"llvm.fmuladd.v{one.floats}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return one(one, one, one), generate


@_operation(np.sum)
def total(_: Any, lane: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pair = arguments[0]
        while pair.type.count > 2:
            pair = _folded(builder, pair)
        return builder.fadd(*(builder.extract_element(pair, _INT(place)) for place in (0, 1)))

    return types.float32(_WHOLE), generate


@_operation(lambda lane, place, value: np.where(np.arange(LANE) == place, value, lane))
def replaced(_: Any, lane: Any, place: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.insert_element(arguments[0], arguments[2], arguments[1])

    return lane(lane, types.intp, types.float32), generate


@_operation(lambda one, other: np.concatenate([one[:2], other[:2]]))
def load_pairs(_: Any, one: Any, other: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = context.get_constant(types.intp, 0)
        pairs = [
            builder.load(_address(context, builder, kind, array, zero, _PAIR.vector), align=4)
            for kind, array in zip((one, other), arguments, strict=True)
        ]
        return _chosen(builder, pairs[0], pairs[1], [0, 1, 2, 3])

    return _QUAD(one, other), generate


@_operation(lambda value: np.full(4, value, np.float32))
def quad(_: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, arguments[0], _QUAD)

    return _QUAD(types.float32), generate


@_operation(lambda quad: np.roll(quad, 2))
def swapped(_: Any, quad: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _chosen(builder, arguments[0], arguments[0], [2, 3, 0, 1])

    return quad(quad), generate


@_operation(lambda quad, index: quad[index])
def place(_: Any, quad: Any, index: Any) -> Any:
    return types.float32(quad, types.intp), lambda context, builder, signature, arguments: builder.extract_element(
        *arguments
    )


def _store_pairs(one: np.ndarray, other: np.ndarray, quad: np.ndarray) -> None:
    one[:2], other[:2] = quad[:2], quad[2:]


@_operation(_store_pairs)
def store_pairs(_: Any, one: Any, other: Any, quad: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = context.get_constant(types.intp, 0)
        for kind, array, places in zip((one, other), arguments[:2], ([0, 1], [2, 3]), strict=True):
            pair = _chosen(builder, arguments[2], arguments[2], places)
            builder.store(pair, _address(context, builder, kind, array, zero, _PAIR.vector), align=4)
        return context.get_dummy_value()

    return types.void(one, other, quad), generate


@_operation(lambda *lanes: np.array([lane.sum() for lane in lanes]))
def totals(_: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        quads = [_folded(builder, _folded(builder, lane)) for lane in arguments]
        first, second = [
            builder.fadd(_chosen(builder, one, other, [0, 4, 1, 5]), _chosen(builder, one, other, [2, 6, 3, 7]))
            for one, other in (quads[:2], quads[2:])
        ]
        return builder.fadd(*(_chosen(builder, first, second, places) for places in ([0, 1, 4, 5], [2, 3, 6, 7])))

    return _QUAD(a, b, c, d), generate


@_operation(lambda value, quad: value / np.sqrt(quad))
def over_roots(_: Any, value: Any, quad: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(quad.vector, [quad.vector])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{quad.floats}f32")
        return builder.fdiv(_broadcast(builder, arguments[0], quad), builder.call(function, arguments[1:]))

    return quad(types.float32, quad), generate


@_operation(lambda quad, place: np.full(LANE, quad[place]))
def spread_place(_: Any, quad: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, builder.extract_element(*arguments), _WHOLE)

    return _WHOLE(quad, types.intp), generate
