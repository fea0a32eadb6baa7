"""Rows to use, weights and folds; and the moments of columns under them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from blocks.design.dense_spill import complete_block, sparse_entries
from blocks.design.design import DenseDesignBlock, SparseDesignBlock
from blocks.design.moments import block_moments
from blocks.design.row_files import draw_folds, read_rows, read_weights
from blocks.design.weighted_moments import row_weightings, weighted_moments
from blocks.errors import RequestError


def expected(x, w, known):
    """Means, norms and deviations of the columns of x, of which some values are not known."""
    mass = (w[:, None] * known).sum(axis=0)
    means = (w[:, None] * known * x).sum(axis=0) / np.where(mass > 0, mass, 1)
    filled = np.where(known, x, means)
    deviations = np.sqrt(w @ (filled - means) ** 2 / w.sum())
    return np.array([means, np.sqrt(w @ filled**2), deviations])


@settings(deadline=None)
@given(st.data())
def test_moments_under_several_weights(data):
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 5)))
    x = data.draw(arrays.arrays(np.float32, shape, elements=st.integers(-5, 5), fill=st.just(0)))
    number = st.sampled_from([0.0, 0.0, 1.0, 0.25, 3.5])
    w = data.draw(arrays.arrays(np.float64, (len(x), 3), elements=number))
    w[data.draw(st.integers(0, len(x) - 1))] += 1.0
    kind = data.draw(st.sampled_from(["sparse", "ones", "float32", "int8"]))
    known = np.ones(shape, bool)
    block: SparseDesignBlock | DenseDesignBlock
    if kind in ("sparse", "ones"):
        x = (x != 0).astype(np.float32) if kind == "ones" else x
        block = sparse_entries(np.ascontiguousarray(x.T))
        block = block._replace(values=block.values[: 0 if kind == "ones" else None])
    elif kind == "float32":
        block = complete_block(np.ascontiguousarray(x.T))
    else:
        known = data.draw(arrays.arrays(bool, shape, elements=st.booleans()))
        columns, rows = np.nonzero(~known.T)
        offsets = np.searchsorted(columns, np.arange(shape[1] + 1))
        block = DenseDesignBlock(np.ascontiguousarray((x * known).T.astype(np.int8)), offsets, rows.astype(np.uint32))
    found = weighted_moments(block, row_weightings(w))
    for number, weights in enumerate(w.T):
        assert np.allclose(found[:, number], expected(x, weights, known), rtol=1e-9, atol=1e-9)
        of_weight = [np.unique(x[(weights > 0) & known[:, column], column]) for column in range(shape[1])]
        assert (found[2, number] == 0).tolist() == [values.size <= 1 for values in of_weight]
    same = weighted_moments(block, row_weightings(np.ones((len(x), 1))))[:, 0]
    assert np.allclose(same, np.array(block_moments(block, len(x))), rtol=1e-12, atol=1e-12)


def test_rows_are_numbers_or_true_and_false(tmp_path):
    (tmp_path / "rows.txt").write_text("3\n1\n\n")
    np.save(tmp_path / "rows.npy", np.array([2, 0]))
    np.save(tmp_path / "mask.npy", np.array([True, False, True, False]))
    for name in ("rows.txt", "rows.npy", "mask.npy"):
        assert read_rows(str(tmp_path / name), 4).tolist() == [True, False, True, False]
    (tmp_path / "weights.txt").write_text("0\n0.5\n2\n1e3\n")
    assert read_weights(str(tmp_path / "weights.txt"), 4).tolist() == [0, 0.5, 2, 1000]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("5\n", "entry 1: expected a row number from 1 to 4, got 5"),
        ("1\n0\n", "entry 2: expected a row number from 1 to 4, got 0"),
        ("1.5\n", "entry 1: expected a row number from 1 to 4, got 1.5"),
        ("nan\n", "line 1: expected a number, got 'nan'"),
        ("2\n2\n", "lists row 2 twice"),
        ("1\nx\n", "line 2: expected a number, got 'x'"),
        ("1\n1_0\n", "line 2: expected a number, got '1_0'"),
        ("1\n\nnan\n", "line 3: expected a number, got 'nan'"),
        ("", "contains no row numbers"),
        (np.array([4]), "entry 1: expected a row number from 0 to 3, got 4"),
        (np.array([1, 1]), "lists row 1 twice"),
        (np.array([True, False]), "has 2 values, but the dataset has 4 rows"),
        (np.zeros(4, bool), "contains no row numbers"),
        (np.ones((2, 2)), "got dtype float64"),
    ],
)
def test_rows_that_are_wrong_are_told(tmp_path, content, told):
    path = tmp_path / ("rows.txt" if isinstance(content, str) else "rows.npy")
    if isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    with pytest.raises(RequestError, match=f"{path.name}.*{told}"):
        read_rows(str(path), 4)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1\n1\n", "has 2 values, but the dataset has 3 rows"),
        ("1\n-1\n1\n", "row 2: a weight must be 0 or more, got -1"),
        ("1\n1\ninf\n", "line 3: expected a number, got 'inf'"),
        ("0\n0\n0\n", "all weights are 0"),
    ],
)
def test_weights_that_are_wrong_are_told(tmp_path, content, told):
    (tmp_path / "weights.txt").write_text(content)
    with pytest.raises(RequestError, match=told):
        read_weights(str(tmp_path / "weights.txt"), 3)


@given(st.integers(2, 50), st.integers(2, 10), st.integers(1, 4), st.integers(0, 9))
def test_folds_have_their_share_of_rows_and_classes(rows, folds, kinds, seed):
    classes = np.arange(rows) % kinds * 1.5
    if folds > rows:
        with pytest.raises(RequestError, match=f"must be from 2 to {rows}, the number of rows; got {folds}"):
            draw_folds(rows, folds, seed)
        return
    for given_classes in (None, classes):
        drawn = draw_folds(rows, folds, seed, given_classes)
        assert np.ptp(np.bincount(drawn, minlength=folds)) <= 1
        assert np.array_equal(drawn, draw_folds(rows, folds, seed, given_classes))
    for kind in np.unique(classes):
        assert np.ptp(np.bincount(drawn[classes == kind], minlength=folds)) <= 1
