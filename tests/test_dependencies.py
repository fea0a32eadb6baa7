"""The dependency checker against correlations by numpy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ooc.dynamic.candidate_independence import NOBODY, independent_columns, independent_vectors, unit_vectors


def dependence(x, centred):
    """|x_j' x_k| for all pairs of columns, scaled as the checker scales them."""
    x = x - x.mean(axis=0) if centred else x
    norms = np.linalg.norm(x, axis=0)
    norms[norms < 1e-6] = np.inf
    return np.abs(x.T @ x) / np.outer(norms, norms)


def reference(x, order, taken, rho, most, centred, group=1):
    products, chosen = dependence(x, centred), []
    groups = order.reshape(-1, group)
    for place, columns in enumerate(groups):
        mine = products[np.ix_(columns, groups[np.array(chosen, np.int64)].reshape(-1))]
        independent = place < taken or ((mine < rho).all() and (np.sum(mine**2, axis=1) < rho).all())
        if len(chosen) < most and independent:
            chosen.append(place)
    return chosen


def of_dense(x, order, taken, rows, rho, most, centred, group=1):
    vectors, chosen = np.empty((order.size, rows.size), np.float32), np.empty(most, np.int64)
    unit_vectors(np.ascontiguousarray(x.T, np.float32), order, rows, centred, vectors)
    return chosen[: independent_vectors(vectors, group, taken, rho, chosen)].tolist()


def of_sparse(x, order, taken, rows, rho, most, centred, group=1):
    matrix = scipy.sparse.csc_array(x.astype(np.float32))
    sampled, last, chosen = np.zeros(len(x), bool), np.full(len(x), NOBODY), np.empty(most, np.int64)
    sampled[rows] = True
    offsets, held = matrix.indptr.astype(np.int64), (matrix.indices.astype(np.uint32), matrix.data)
    how = group, taken, sampled, centred, rho, last
    count = independent_columns(offsets[:-1], offsets[1:], *held, order, *how, chosen)
    assert (last == NOBODY).all()
    return chosen[:count].tolist()


@pytest.mark.parametrize("checker", [of_dense, of_sparse])
@settings(deadline=None)
@given(st.data())
def test_the_same_are_chosen_as_by_the_matrix_of_correlations(checker, data):
    shape = data.draw(st.tuples(st.integers(2, 12), st.integers(1, 9)))
    x = data.draw(arrays.arrays(np.float64, shape, elements=st.integers(-3, 3), fill=st.just(0)))
    rows = np.flatnonzero(data.draw(arrays.arrays(bool, len(x), elements=st.booleans(), fill=st.just(True))))
    if rows.size == 0:
        rows = np.arange(1)
    order = np.array(data.draw(st.permutations(range(x.shape[1]))))
    # Correlations of small whole numbers do not come so near to these that rounding could decide.
    rho, centred = data.draw(st.sampled_from([0.0501, 0.301, 0.7011, 0.999])), data.draw(st.booleans())
    most, taken = data.draw(st.integers(1, 10)), data.draw(st.integers(0, 3))
    group = data.draw(st.sampled_from([group for group in (1, 2, 3) if order.size % group == 0]))
    expected = reference(x[rows], order, taken, rho, most, centred, group)
    assert checker(x, order, taken, rows, rho, most, centred, group) == expected


def test_copies_depend_and_constant_columns_do_not():
    x = np.array([[1.0, 2, 5, 0, 1], [2, 4, 5, 0, 0], [4, 8, 5, 0, 0]])
    for checker in (of_dense, of_sparse):
        assert checker(x, np.arange(5), 0, np.arange(3), 0.99, 5, True) == [0, 2, 3, 4]
        assert checker(x, np.array([1, 0]), 0, np.arange(3), 0.99, 5, True) == [0]
        assert checker(x, np.array([1, 0, 2]), 2, np.arange(3), 0.99, 5, True) == [0, 1, 2]
        assert checker(x, np.array([1, 4]), 1, np.arange(3), 0.99, 5, True) == [0, 1]  # 0.76
        assert checker(x, np.array([1, 0, 4]), 2, np.arange(3), 0.99, 5, True) == [0, 1]  # 2 * 0.76^2 is more than 0.99


@pytest.mark.parametrize("checker", [of_dense, of_sparse])
def test_updates_at_once_of_what_is_chosen_do_not_diverge(checker):
    """Columns that have nothing to do with each other are too many if there are as many as rows."""
    x = np.random.default_rng(1).normal(size=(400, 400))
    chosen = checker(x, np.arange(400), 0, np.arange(400), 0.25, 400, True)
    products = np.corrcoef(x[:, chosen].T)
    assert 50 < len(chosen) < 200
    assert np.linalg.eigvalsh(products)[-1] < 2.5
    assert np.linalg.eigvalsh(np.corrcoef(x.T))[-1] > 3.5


def test_a_sample_finds_most_of_what_all_rows_tell():
    random = np.random.default_rng(2)
    x = random.normal(size=(20_000, 40))
    x[:, 1::2] = 0.8 * x[:, ::2] + 0.6 * x[:, 1::2]
    rows = np.sort(random.permutation(20_000)[:500])
    assert of_dense(x, np.arange(40), 0, rows, 0.5, 40, True) == list(range(0, 40, 2))
