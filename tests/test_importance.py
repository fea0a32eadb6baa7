"""Steps of samples that weigh more than one, against many small ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc.stochastic.importance import hinge_step, integrated_rate, logistic_step, squared_step

SLOPES = {  # of the losses, by p
    squared_step: lambda p, y: p - y,
    hinge_step: lambda p, y: -y if y * p < 1 else 0.0,
    logistic_step: lambda p, y: -y / (1 + math.exp(y * p)),
}


@pytest.mark.parametrize("step", SLOPES, ids=["squared", "hinge", "logistic"])
@settings(max_examples=20)
@given(
    p=st.floats(-4, 4),
    y=st.sampled_from([-1.0, 1.0]),
    square=st.floats(0.01, 3),
    rate=st.sampled_from([0.01, 0.3, 2.0]),
)
def test_a_heavy_sample_is_many_light_ones(step, p, y, square, rate):
    """The limit of ever more, ever smaller steps along the sample; p follows with each of them."""
    light, along, small = p, 0.0, rate / 1000
    for _ in range(1000):
        change = -small * SLOPES[step](light, y)
        along, light = along + change, light + change * square
    assert step(p, y, square, rate) == pytest.approx(along, rel=1e-2, abs=1e-2 * rate)


@given(st.floats(-30, 30), st.sampled_from([-1.0, 1.0]), st.floats(0.01, 100))
def test_no_weight_carries_it_past_the_optimum(p, y, square):
    assert p + square * squared_step(p, y, square, 1e9) == pytest.approx(y, abs=1e-6)
    if y * p < 1:
        assert p + square * hinge_step(p, y, square, 1e9) == pytest.approx(y)
    assert math.isfinite(logistic_step(p, y, square, 1e9))


def test_without_entries_there_is_no_step():
    assert [step(0.3, 1.0, 0.0, 1.0) for step in SLOPES] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_rates_are_added_up(power):
    exact = sum(0.7 / i**power for i in range(1001 - 30, 1001))
    assert integrated_rate(1000, 30, 0.7, power) == pytest.approx(exact, rel=1e-2)
