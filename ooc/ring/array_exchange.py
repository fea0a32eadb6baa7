"""Exchange parts of an array among the ranks of a ring."""

from __future__ import annotations

from typing import Any

import numpy as np

from ooc.ring.ring import Ring

_WORD = 8  # bytes


def exchange_parts(ring: Ring, array: np.ndarray, own: Any) -> None:
    """Fill an array with the parts of all ranks, bit for bit.

    own: index of this rank's part; parts may not overlap.
    """
    words = np.zeros(-(-array.nbytes // _WORD), np.int64)  # zeros, to which the rank that owns the part adds its bytes
    whole = words.view(np.uint8)[: array.nbytes].view(array.dtype).reshape(array.shape)
    whole[own] = array[own]
    ring.all_reduce(words)
    array[...] = whole
