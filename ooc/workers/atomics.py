"""Atomic counters in shared memory, with which processes wait for each other without messages.

Each counter is written by one process, which only increases it. A process that has read a value sees everything that
the writer wrote before that value (release and acquire). Processes wait in short spins, between which the caller can
check whether to continue.
"""

from __future__ import annotations

import platform
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from blocks.compiled import unmanaged_kernel
from ooc.workers.shared_arrays import ArraySpec

_LINE = 8  # int64 numbers in a cache line: two counters in one line would slow each other down (false sharing)
_WORD = 8  # bytes
_ON_X86 = platform.machine().lower() in ("x86_64", "amd64")


def counters_spec(count: int) -> ArraySpec:
    """Return the spec of an array with `count` counters in its first column."""
    return ArraySpec((count, _LINE), "int64")


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.gep(data, [builder.mul(arguments[1], ir.Constant(arguments[1].type, _LINE))])


@intrinsic
def _acquire(typing_context: Any, counters: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, arguments), "acquire", _WORD)

    return types.int64(counters, types.intp), generate


@intrinsic
def _release(typing_context: Any, counters: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _place(context, builder, signature, arguments), "release", _WORD)
        return context.get_dummy_value()

    return types.void(counters, types.intp, types.int64), generate


@intrinsic
def _pause(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _ON_X86:  # the pause instruction takes some tens of nanoseconds; other processors poll without a pause
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


def _read(counters: np.ndarray, index: int) -> int:
    return int(counters[index, 0])


def _write(counters: np.ndarray, index: int, value: int) -> None:
    counters[index, 0] = value


_compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
_value: Any = _acquire if _compiled else _read
_set: Any = _release if _compiled else _write
# Until the next poll, leave the core to its other hardware thread, which may be the one waited for.
_relax: Any = _pause if _compiled else lambda: None


@unmanaged_kernel
def raise_to(counters, index, value):
    """Increase one of the counters, int64 (c, _LINE), to a value, after all earlier writes."""
    _set(counters, index, value)


@unmanaged_kernel
def have_reached(counters, first, last, value, looks):
    """Return whether all counters from `first` to `last` (exclusive) reach a value within `looks` spins."""
    for index in range(first, last):
        while _value(counters, index) < value:
            looks -= 1
            if looks <= 0:
                return False
            _relax()
    return True
