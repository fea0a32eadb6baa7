"""The modules that `ooc.stochastic.element_loops` writes: they lie in the directory of the compiled kernels."""

from blocks.kernel_cache import CACHE

__path__ = [str(CACHE)] if CACHE else []
