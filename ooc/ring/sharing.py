"""Exchange the parts of an array that the ranks of a ring have."""

from __future__ import annotations

from typing import Any

import numpy as np

from ooc.ring.ring import Ring

_WORD = 8  # bytes


def share(ring: Ring, array: np.ndarray, own: Any) -> None:
    """Fill an array with the parts of all ranks, bit for bit. own: index of the part of this rank, and of no other."""
    words = np.zeros(-(-array.nbytes // _WORD), np.int64)  # zeros, to which whoever has the bytes adds them
    whole = words.view(np.uint8)[: array.nbytes].view(array.dtype).reshape(array.shape)
    whole[own] = array[own]
    ring.all_reduce(words)
    array[...] = whole
