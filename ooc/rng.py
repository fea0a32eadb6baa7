"""Counter-based random numbers: the n-th draw of a stream is a pure function of (key, n).

The key of a stream depends on the purpose of the draws (seed, iteration, phase, unit, part), never on the worker.
Generator: SplitMix64 (Steele, Lea and Flood 2014), addressed by counter.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


@inlined
def random_bits(key, n):
    """Return the n-th group of 64 random bits of the stream `key` (both uint64)."""
    x = key + n * _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@inlined
def uniform(key, n):
    """Return the n-th uniform number of the stream `key`, in [0, 1)."""
    return (random_bits(key, n) >> np.uint64(11)) * _UNIT


def stream_key(*numbers: int) -> np.uint64:
    """Return the key of the stream for a tuple of integers, such as (seed, iteration, phase, unit, part)."""
    state = 0
    for number in numbers:
        state = _mix((state ^ number) & _MASK)
    return np.uint64(state)


_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x = (x + int(_GOLDEN)) & _MASK
    x = ((x ^ (x >> 30)) * int(_FIRST)) & _MASK
    x = ((x ^ (x >> 27)) * int(_SECOND)) & _MASK
    return x ^ (x >> 31)
