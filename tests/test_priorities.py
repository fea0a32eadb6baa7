"""The priority sampler against draws from the whole distribution."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ooc.dynamic.priority_sampling import (
    GROUP,
    change_priorities,
    clip_priorities,
    draw_parameters,
    empty_sums,
    sum_priorities,
)

SETTINGS = settings(deadline=None)
PRIORITIES = arrays.arrays(
    np.float64,
    st.integers(1, 5 * GROUP),
    elements=st.sampled_from([0.0, 1e-30, 0.25, 1.0, 3.0, 1e6]),
    fill=st.sampled_from([0.0, 0.5]),
)


def summed(priorities):
    sums = empty_sums(priorities.size)
    sum_priorities(priorities, sums)
    return sums


def reference(priorities, eta, uniforms):
    """Draw by cumulated probabilities; keep the first of each parameter."""
    cumulated = np.cumsum(priorities + eta)
    drawn = np.searchsorted(cumulated, uniforms * cumulated[-1], "right").tolist()
    return list(dict.fromkeys(drawn))


@SETTINGS
@given(st.data())
def test_draws_are_those_of_cumulated_probabilities(data):
    """Priorities and eta are whole, so that sums in any order are exact."""
    sizes = st.integers(1, 5 * GROUP)
    priorities = data.draw(arrays.arrays(np.float64, sizes, elements=st.integers(0, 1000), fill=st.just(0)))
    uniforms = data.draw(arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats(0, 1, exclude_max=True)))
    eta, sums, drawn = float(data.draw(st.integers(1, 9))), summed(priorities), np.zeros(uniforms.size, np.int64)
    count = draw_parameters(priorities, sums, eta, uniforms, drawn)
    assert drawn[:count].tolist() == reference(priorities, eta, uniforms)


@SETTINGS
@given(PRIORITIES, st.sampled_from([0.0, 1e-12, 0.1]), st.integers(0, 30), st.randoms(use_true_random=False))
def test_none_counts_twice_and_nothing_else_changes(priorities, eta, count, random):
    sums, before = summed(priorities), priorities.copy()
    kept = [array.copy() for array in sums]
    uniforms = np.array([random.random() for _ in range(count)])
    drawn = np.zeros(count, np.int64)
    found = draw_parameters(priorities, sums, eta, uniforms, drawn)
    assert min(count, 1) <= found <= min(count, priorities.size)
    assert len(set(drawn[:found].tolist())) == found
    assert priorities.tobytes() == before.tobytes()
    assert all(np.array_equal(array, old) for array, old in zip(sums, kept, strict=True))


@SETTINGS
@given(PRIORITIES, st.data())
def test_sums_depend_on_the_priorities_alone(priorities, data):
    sums = summed(priorities)
    places = data.draw(st.lists(st.integers(0, priorities.size - 1), max_size=9))
    values = np.array(data.draw(st.lists(st.floats(0, 1e9), min_size=len(places), max_size=len(places))))
    change_priorities(priorities, sums, np.array(places, np.int64), values)
    assert all(priorities[place] == values[len(places) - 1 - places[::-1].index(place)] for place in places)
    assert all(np.array_equal(array, new) for array, new in zip(sums, summed(priorities), strict=True))
    assert sums.parameters[1] == priorities.size


def test_parameters_are_drawn_as_often_as_priority_and_eta_say():
    random = np.random.default_rng(1)
    priorities = np.where(random.random(300) < 0.9, 0.0, random.random(300) ** 2)
    eta, times, sums = 0.01, 200_000, summed(priorities)
    drawn, counts = np.zeros(1, np.int64), np.zeros(300)
    for uniform in random.random(times):
        draw_parameters(priorities, sums, eta, np.array([uniform]), drawn)
        counts[drawn[0]] += 1
    expected = times * (priorities + eta) / (priorities + eta).sum()
    assert np.sum((counts - expected) ** 2 / expected) < 299 + 6 * np.sqrt(2 * 299)


def test_without_priorities_and_eta_one_is_drawn():
    drawn = np.zeros(3, np.int64)
    assert draw_parameters(np.zeros(2), summed(np.zeros(2)), 0.0, np.full(3, 0.5), drawn) == 1
    assert drawn[0] in (0, 1)


def test_few_with_priorities_are_drawn_and_hardly_any_others():
    priorities = np.zeros(10_000)
    priorities[[7, 4321, 9999]] = 1.0
    drawn = np.zeros(128, np.int64)
    count = draw_parameters(priorities, summed(priorities), 3e-5, np.random.default_rng(2).random(128), drawn)
    assert {7, 4321, 9999} <= set(drawn[:count].tolist())
    assert count < 3 + 4 * 128 / 11


def test_a_model_that_diverges_has_priorities_all_the_same():
    priorities = np.array([np.nan, -np.nan, np.inf, -0.0, -2.0, 1e308, 3.0])
    clip_priorities(priorities)
    assert priorities.tolist() == [0, 0, 1e200, 0, 2, 1e200, 3]
    assert not np.signbit(priorities).any()
    drawn = np.zeros(2, np.int64)
    assert draw_parameters(priorities, summed(priorities), 0.1, np.array([0.1, 0.9]), drawn) == 2
    assert drawn.tolist() == [2, 5]
