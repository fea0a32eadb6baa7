"""Modules written by `ooc.user_modules`; they are stored in the directory of compiled kernels."""

from blocks.kernel_cache import CACHE, Compiler, additions

_PLACES = {CACHE, additions()} if Compiler.is_here else {CACHE}  # a compiler is asked for modules of both
__path__ = [str(place) for place in _PLACES if place]
