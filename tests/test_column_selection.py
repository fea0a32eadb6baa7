"""Columns that are picked of many: the largest, whoever looks for them, and those of two sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samplers.regression.solver import column_selection
from samplers.regression.threads import thread_pool

_THREE = thread_pool.ThreadPool(3)


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0.0, 1e-9, 0.5, 0.5, 1.0, 1.00001, 3e38]), max_size=30), st.integers(0, 30))
def test_the_largest_gains_are_chosen(gains, size):
    array, chosen = np.array(gains, np.float32), np.arange(len(gains)) * 3
    found = column_selection.largest_gains(array, chosen, size)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thread_pool, "_FEW", 0)
        np.testing.assert_array_equal(column_selection.largest_gains(array, chosen, size, _THREE), found)
    assert len(found) == min(size, np.count_nonzero(array))
    assert (np.diff(found) > 0).all()
    left_out = np.setdiff1d(chosen, found) // 3
    if len(found) and left_out.size:
        assert array[found // 3].min() >= array[left_out].max()


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_gains_are_chosen_also_where_a_sample_misleads(seed):
    """All that are large lie where none are looked at beforehand, or only there."""
    random = np.random.default_rng(seed)
    gains = random.random(100_000).astype(np.float32)
    gains[seed % 2 :: 6] += 1
    for size in (1, 1000, 30_000, 99_999):
        found = column_selection.largest_gains(gains, np.arange(gains.size), size)
        assert len(found) == size
        np.testing.assert_array_equal(found, np.sort(np.argsort(-gains, kind="stable")[:size]))


@given(one=st.sets(st.integers(0, 30)), other=st.sets(st.integers(0, 30)))
def test_a_union_has_each_number_once(one, other):
    found = column_selection.sorted_union(*(np.array(sorted(some), np.int64) for some in (one, other)))
    assert found.tolist() == sorted(one | other)
