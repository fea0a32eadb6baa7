"""Walker's alias method (Walker 1977; Vose 1991): O(K) setup, O(1) for each draw."""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel


@kernel
def alias_table(weights):
    """Return the alias table of weights, float64 (K,): `cut` float64 (K,) and `alias` uint32 (K,).

    To draw: let x be uniform in [0, K) and k = floor(x); the draw is k if x - k < cut[k], else alias[k].
    """
    size = weights.size
    cut = weights * (size / weights.sum())
    alias = np.arange(size).astype(np.uint32)
    small = np.empty(size, np.int64)
    large = np.empty(size, np.int64)
    smalls = larges = 0
    for k in range(size):
        if cut[k] < 1.0:
            small[smalls] = k
            smalls += 1
        else:
            large[larges] = k
            larges += 1
    while smalls and larges:
        smalls -= 1
        light, heavy = small[smalls], large[larges - 1]
        alias[light] = heavy
        cut[heavy] -= 1.0 - cut[light]
        if cut[heavy] < 1.0:
            larges -= 1
            small[smalls] = heavy
            smalls += 1
    for left in range(smalls):
        cut[small[left]] = 1.0
    for left in range(larges):
        cut[large[left]] = 1.0
    return cut, alias
