"""Random streams: reproducible, distinct, and as even as chance."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ooc.rng import random_bits, stream_key, uniform

ALARM = 1e-6  # chance that one test fails though the numbers are as even as chance
KEYS = [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (2**63 - 1, 999, 3, 12_345, 77)]


def draws(key: np.uint64, count: int) -> np.ndarray:
    return np.array([uniform(key, np.uint64(n)) for n in range(count)])


def test_the_generator_is_splitmix64():
    """The first outputs of SplitMix64 from seed 1234567, as its reference implementation (Vigna) gives them.

    That generator adds the golden gamma before each output, so its n-th is number n + 1 of the stream here.
    """
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [int(random_bits(np.uint64(1234567), np.uint64(n + 1))) for n in range(4)] == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_uniform_number_lies_in_0_to_1(key, n):
    assert 0 <= uniform(np.uint64(key), np.uint64(n)) < 1


@pytest.mark.parametrize("numbers", KEYS, ids=str)
def test_a_stream_is_uniform_and_its_neighbours_independent(numbers):
    """Chi-square of 20,000 draws in 64 bins, and of pairs of successive draws in 16 x 16; false alarm 2e-6 a stream."""
    sample = draws(stream_key(*numbers), 20_000)
    assert stats.chisquare(np.bincount((sample * 64).astype(int), minlength=64)).pvalue > ALARM
    pairs = (sample[:-1] * 16).astype(int) * 16 + (sample[1:] * 16).astype(int)
    assert stats.chisquare(np.bincount(pairs[::2], minlength=256)).pvalue > ALARM


@pytest.mark.parametrize("place", range(5))
def test_streams_of_neighbouring_parts_are_independent(place):
    """The n-th draws of streams whose tuples differ by one in one number: chi-square of pairs; false alarm 1e-6."""

    def key(number):
        return stream_key(*(number if at == place else 3 for at in range(5)))

    n = np.uint64(5)
    sample = np.array([uniform(key(number), n) for number in range(10_001)])
    pairs = (sample[:-1] * 8).astype(int) * 8 + (sample[1:] * 8).astype(int)
    assert stats.chisquare(np.bincount(pairs[::2], minlength=64)).pvalue > ALARM


def test_neighbouring_tuples_have_keys_of_their_own():
    """All 6^5 tuples of small numbers, tuples of other lengths, and the same numbers in another order."""
    tuples = [*product(range(6), repeat=5), *product(range(6), repeat=3), (7, 1), (1, 7), (7,), ()]
    assert len({int(stream_key(*numbers)) for numbers in tuples}) == len(tuples)


def test_streams_do_not_run_into_one_another():
    """1,000 draws of each of 200 neighbouring streams: no 64-bit number occurs twice (by chance: 1e-9)."""
    found = {
        int(random_bits(stream_key(1, iteration, 1, 0, part), np.uint64(n)))
        for iteration, part in product(range(20), range(10))
        for n in range(1000)
    }
    assert len(found) == 200_000
