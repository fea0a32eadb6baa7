"""Alias tables: the probabilities that a table gives are the weights."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blocks.alias_table import alias_table


def probabilities(cut: np.ndarray, alias: np.ndarray) -> np.ndarray:
    """What a draw from the table gives: slot k keeps cut[k] of its 1/K and gives the rest to alias[k]."""
    given_away = np.zeros(cut.size)
    np.add.at(given_away, alias, 1.0 - cut)
    return (cut + given_away) / cut.size


@given(st.lists(st.floats(1e-6, 1e6) | st.sampled_from([1.0, 1e-300, 2.0]), min_size=1, max_size=200))
def test_a_table_has_the_mass_of_its_weights(weights):
    """To 1e-12 for each topic, with weights that are equal, tiny or of very different size."""
    array = np.array(weights)
    cut, alias = alias_table(array)
    assert np.array_equal(array, weights)  # not changed
    assert (cut >= 0).all()
    assert (cut <= 1 + 1e-12).all()
    assert (alias < array.size).all()
    assert np.abs(probabilities(cut, alias) - array / array.sum()).max() < 1e-12


def test_equal_weights_need_no_alias():
    cut, _ = alias_table(np.full(7, 0.3))
    assert np.allclose(cut, 1.0, rtol=0, atol=1e-15)


def test_a_weight_of_zero_is_never_drawn():
    cut, alias = alias_table(np.array([0.0, 1.0, 3.0, 0.0]))
    assert probabilities(cut, alias)[[0, 3]].tolist() == [0, 0]
