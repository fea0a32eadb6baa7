"""Prefetching and other compiler intrinsics that do not change results.

A random read of a model waits for memory longer than it takes to sample a token, and a processor looks only a few dozen
instructions ahead, so memory is prefetched. Rarely executed code in loops is compiled out of line, so that the
remaining code keeps its values in registers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_BYTES = ir.IntType(8).as_pointer()
_INT, _BIT = ir.IntType(32), ir.IntType(1)
_DOUBLE = 8  # bytes
_READ, _KEEP, _DATA = (ir.Constant(_INT, value) for value in (0, 3, 1))


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTES)
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, _INT, _INT, _INT])
        instruction = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(instruction, [place, _READ, _KEEP, _DATA])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def _unlikely(typing_context: Any, condition: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_BIT, [_BIT, _BIT])
        expect = cgutils.get_or_insert_function(builder.module, kind, "llvm.expect.i1")
        return builder.call(expect, [*arguments, ir.Constant(_BIT, 0)])

    return types.boolean(types.boolean), generate


@intrinsic
def _on_stack(typing_context: Any, numbers: Any) -> Any:
    array, word = types.Array(types.float64, 1, "C"), ir.DoubleType()

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(word, numbers.count))
        for number in range(numbers.count):
            value = builder.extract_value(arguments[0], number)
            builder.store(value, cgutils.gep_inbounds(builder, place, 0, number))
        size, count = (context.get_constant(types.intp, value) for value in (_DOUBLE, numbers.count))
        made = context.make_array(array)(context, builder)
        context.populate_array(
            made,
            data=builder.bitcast(place, word.as_pointer()),
            shape=cgutils.pack_array(builder, [count]),
            strides=cgutils.pack_array(builder, [size]),
            itemsize=size,
            meminfo=None,
        )
        return made._getvalue()

    return array(numbers), generate


def _nothing(array: Any, index: int) -> None:
    pass


_COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
# prefetch(array, index): prefetch an element of a one-dimensional contiguous array. index must not be negative.
prefetch: Any = _prefetch if _COMPILED else _nothing
# unlikely(condition): return the condition, and tell the compiler that it is usually false.
unlikely: Any = _unlikely if _COMPILED else bool
# on_stack(numbers): return a tuple of floats as an array on the stack, valid until the calling function returns.
# Elements with constant indices are kept in registers.
on_stack: Any = _on_stack if _COMPILED else np.array
