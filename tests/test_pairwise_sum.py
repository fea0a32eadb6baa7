"""Sums of parts that threads have made: the same bits for any number of them."""

from __future__ import annotations

import numpy as np
import pytest

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy
from samplers.regression.linear_algebra.pairwise_sum import add_up, add_up_own, own_parts
from samplers.regression.threads.thread_pool import ThreadPool, own_numbers, thread_barrier


@reordered_kernel
def make_and_add(member, made, parts, sums, found):
    first, last = own_parts(member, len(parts))
    for part in range(first, last):
        copy(made[part], parts[part])
    add_up_own(member, parts, found.size)
    thread_barrier(member)
    add_up(member, parts, sums, *own_numbers(member, found.size), found)


@pytest.mark.parametrize("members", [1, 2, 3, 4, 5, 6, 7, 8, 11])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_parts_are_added_up_in_pairs(count, members):
    """Of numbers of such different sizes that another order would be seen; nothing is left of what was there before."""
    random = np.random.default_rng(count)
    made = random.standard_normal((count, 1000)) * 10.0 ** random.integers(-8, 8, (count, 1000))
    expected = made[:, :999]
    while len(expected) > 1:
        expected = expected[::2] + expected[1::2]
    parts, sums = np.full((2, count, 1000), np.nan)
    found = np.full(999, np.nan)
    for _ in range(2):
        ThreadPool(members).run(make_and_add, made, parts, sums, found)
        assert np.array_equal(found, expected[0])
