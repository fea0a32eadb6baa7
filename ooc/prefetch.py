"""Reading ahead: an instruction that asks for memory before it is needed, for kernels.

Reads at random places of a model wait for memory longer than a token takes to be sampled; a processor looks only a few
dozen instructions ahead by itself.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_BYTES = ir.IntType(8).as_pointer()
_INT = ir.IntType(32)
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


def _nothing(array: Any, index: int) -> None:
    pass


# prefetch(array, index): ask for an element of a one-dimensional contiguous array; index is not negative.
prefetch: Any = _nothing if numba.config.DISABLE_JIT else _prefetch  # type: ignore[attr-defined]
