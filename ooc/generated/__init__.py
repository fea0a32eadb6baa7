"""Modules written by `ooc.user_modules`; they are stored in the directory of compiled kernels."""

from blocks.kernel_cache import CACHE, KernelCompiler, added_kernels_directory

_PLACES = (
    {CACHE, added_kernels_directory()} if KernelCompiler.is_here else {CACHE}
)  # a compiler is asked for modules of both
__path__ = [str(place) for place in _PLACES if place]
