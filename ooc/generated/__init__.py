"""Modules written by `ooc.user_modules`; they lie in the directory of compiled kernels."""

from blocks.kernel_cache import CACHE, Compiler, additions

_PLACES = {CACHE, additions()} if Compiler.is_here else {CACHE}  # a compiler gets names of modules of either
__path__ = [str(place) for place in _PLACES if place]
