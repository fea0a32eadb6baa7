"""Decorators of all kernels. Compiled code is cached, see `blocks.kernel_cache`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blocks.kernel_cache import CACHE, KernelCache  # which imports numba as it has to be

import numba  # isort: skip
from numba.core import types  # isort: skip

# What makes a function callable from C, which nothing here needs, and from Python, which only some kernels are.
_CALLED_FROM_PYTHON: Any = {"no_cfunc_wrapper": True}
_CALLED_FROM_KERNELS: Any = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}


def _cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator `numba.njit` with the kernel cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(**options, **_CALLED_FROM_PYTHON)(function)
        if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            bare: Any = numba.njit(**options, **_CALLED_FROM_KERNELS)(function)
            _let_kernels_call(compiled, bare)
            if CACHE:
                compiled._cache, bare._cache = KernelCache(function, CACHE), KernelCache(function, CACHE, ".bare")
        return compiled

    return decorate


def _let_kernels_call(compiled: Any, bare: Any) -> None:
    """Have other kernels call `bare` instead.

    Numba would compile a kernel for Python whoever calls it, and anew for each constant that it is called with. That
    would not be faster, as constants are known where the call is inlined, and compiling would take half as long again.
    """

    def get_call_template(args: Sequence[types.Type], kws: Mapping[str, types.Type]) -> Any:
        by_name = {name: types.unliteral(type_) for name, type_ in kws.items()}
        return bare.get_call_template(tuple(map(types.unliteral, args)), by_name)

    compiled.get_call_template, compiled.get_overload = get_call_template, bare.get_overload


# An index that may be negative for all that numba knows is tested for that, which keeps loops from vectorising, too: in
# innermost loops indices are unsigned, or count from 0 on in a slice.
kernel = _cached(nogil=True, error_model="numpy")
# For loops over tokens: numba counts no references to arrays, which took half of a sampler's time. Nothing may be
# allocated in them.
_unmanaged: Any = {"nogil": True, "error_model": "numpy", "_nrt": False}
unmanaged_kernel = _cached(**_unmanaged)
# Where sums may be reordered, too (always in the same way by the same build): loops over float32 then vectorise.
reordered_kernel = _cached(fastmath=True, **_unmanaged)
# For the body of a hot loop that the compiler would rather call.
inlined_kernel = _cached(forceinline=True, **_unmanaged)
# Likewise, for functions of users, which no file need be known of.
uncached_kernel: Any = numba.njit(forceinline=True, **_unmanaged, **_CALLED_FROM_KERNELS)
uncached_reordered_kernel: Any = numba.njit(forceinline=True, fastmath=True, **_unmanaged, **_CALLED_FROM_KERNELS)
uncached_managed_kernel: Any = numba.njit(nogil=True, error_model="numpy", **_CALLED_FROM_KERNELS)
# Both: inlined, and reordered.
reordered_inlined_kernel = _cached(forceinline=True, fastmath=True, **_unmanaged)
inlined: Any = numba.njit(inline="always", error_model="numpy")
