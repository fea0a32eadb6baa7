"""The decorators of kernels: import them from nowhere else. What they compile is kept, see `blocks.kernel_cache`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocks.kernel_cache import CACHE, KernelCache  # which imports numba as it has to be

import numba  # isort: skip


def _cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `numba.njit` with that cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(**options)(function)
        if CACHE and not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            compiled._cache = KernelCache(function, CACHE)
        return compiled

    return decorate


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
# Likewise, of which nothing is kept: it is part of what calls it.
uncached_kernel: Any = numba.njit(forceinline=True, **_unmanaged)
# Both: inlined, and reordered.
reordered_inlined_kernel = _cached(forceinline=True, fastmath=True, **_unmanaged)
inlined: Any = numba.njit(inline="always", error_model="numpy")
