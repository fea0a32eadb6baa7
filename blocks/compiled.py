"""Decorators of all kernels. Compiled code is cached; see `blocks.kernel_cache`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blocks.kernel_cache import CACHE, KernelCache  # must precede numba: sets how it is imported

import numba  # isort: skip
from numba.core import types  # isort: skip

# Wrappers that make a function callable from C, which is never needed here, and from Python, which some kernels need.
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
    """Make other kernels call `bare` instead.

    Numba would compile a kernel with its Python wrapper for every caller, and again for each constant argument. The
    code would not be faster, as constants are known where the call is inlined, and compilation would take 1.5 times as
    long.
    """

    def get_call_template(args: Sequence[types.Type], kws: Mapping[str, types.Type]) -> Any:
        by_name = {name: types.unliteral(type_) for name, type_ in kws.items()}
        return bare.get_call_template(tuple(map(types.unliteral, args)), by_name)

    compiled.get_call_template, compiled.get_overload = get_call_template, bare.get_overload


# Numba adds a test to each index that could be negative, which also prevents vectorization. Therefore indices in
# innermost loops are unsigned, or count from 0 in a slice.
kernel = _cached(nogil=True, error_model="numpy")
# For loops over tokens: no reference counting of arrays, which took half of a sampler's time. Such kernels must not
# allocate anything.
_unmanaged: Any = {"nogil": True, "error_model": "numpy", "_nrt": False}
unmanaged_kernel = _cached(**_unmanaged)
# Also allows sums to be reordered (always in the same way by the same build), so that loops over float32 vectorize.
reordered_kernel = _cached(fastmath=True, **_unmanaged)
# For the body of a hot loop that the compiler would not inline by itself.
inlined_kernel = _cached(forceinline=True, **_unmanaged)
# Also inlined, for users' functions, whose file need not be known.
uncached_kernel: Any = numba.njit(forceinline=True, **_unmanaged, **_CALLED_FROM_KERNELS)
uncached_reordered_kernel: Any = numba.njit(forceinline=True, fastmath=True, **_unmanaged, **_CALLED_FROM_KERNELS)
uncached_managed_kernel: Any = numba.njit(nogil=True, error_model="numpy", **_CALLED_FROM_KERNELS)
# Inlined, with sums that may be reordered.
reordered_inlined_kernel = _cached(forceinline=True, fastmath=True, **_unmanaged)
inlined: Any = numba.njit(inline="always", error_model="numpy")
