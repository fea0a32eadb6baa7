"""The factorization's estimator: every form of known values is the same data; missing values are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from blocks import RequestError
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.request import RatingsRequest
from samplers import MatrixFactorization
from samplers.estimators.known_values import read_known

RANDOM = np.random.default_rng(1)
FULL = (RANDOM.normal(size=(70, 2)) @ RANDOM.normal(size=(2, 30))).astype(np.float32)
KNOWN = RANDOM.random(FULL.shape) < 0.6
ROWS, COLUMNS = np.nonzero(KNOWN)
VALUES = FULL[KNOWN]
GAPS = np.where(KNOWN, FULL, np.nan)
USERS = [f"u{row:02}" for row in range(70)]
FORMS: dict[str, Callable[[], Any]] = {
    "an array with gaps": lambda: GAPS,
    "a data frame (pandas)": lambda: pd.DataFrame(GAPS),
    "a data frame (polars)": lambda: pl.DataFrame(GAPS),
    "a table (pyarrow)": lambda: pa.Table.from_pandas(pd.DataFrame(GAPS)),  # which has nulls
    "csr": lambda: sparse.csr_array((VALUES, (ROWS, COLUMNS)), FULL.shape),
    "columns of numbers": lambda: (ROWS, COLUMNS, VALUES),
    "columns of names": lambda: (pd.Series(USERS)[ROWS], pl.Series(COLUMNS), VALUES.tolist()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_values_is_the_same_data(form: str) -> None:
    found = read_known(FORMS[form](), counts=False)
    order = np.lexsort((found.entries.columns, found.entries.rows))
    for array, expected in zip(found.entries, (ROWS, COLUMNS, VALUES), strict=True):
        np.testing.assert_array_equal(array[order], expected)
    assert found.rows.tolist() == (USERS if form == "columns of names" else list(range(70)))
    assert found.columns.tolist() == list(range(30))


def test_zeros_are_values_but_no_counts() -> None:
    table = np.array([[0.0, 2.0], [np.nan, 1.0]])
    assert read_known(table, counts=False).entries.values.tolist() == [0, 2, 1]
    assert read_known(table, counts=True).entries.values.tolist() == [2, 1]
    stored = sparse.csr_array(([0.0, 3.0], ([0, 1], [0, 1])))
    assert read_known(stored, counts=False).entries.values.tolist() == [0, 3]
    assert read_known((["a", "b"], ["x", "x"]), counts=True).entries.values.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((ROWS, COLUMNS[1:], VALUES), "must have the same length"),
        ((ROWS, COLUMNS, np.full(VALUES.size, np.nan)), "NaN"),
        (np.full((3, 3), np.nan), "there are no ratings"),
        (np.full((3, 3), np.inf), "inf"),
    ],
)
def test_what_is_no_matrix_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        MatrixFactorization(2).fit(wrong)
    with pytest.raises(RequestError, match="Negative values"):
        MatrixFactorization(2, implicit=True).fit(-np.abs(FULL))


@pytest.fixture(scope="module")
def fitted() -> MatrixFactorization:
    estimator = MatrixFactorization(
        2, method="ccd", biases=False, center=False, regularization=1e-4, max_iter=40, random_state=0
    )
    return estimator.fit((np.array(USERS)[ROWS], COLUMNS, VALUES))


def test_missing_values_are_found(fitted: MatrixFactorization) -> None:
    rows, columns = np.nonzero(~KNOWN)
    wanted = FULL[~KNOWN]
    of_pairs = fitted.predict((np.array(USERS)[rows], columns))
    np.testing.assert_allclose(of_pairs, wanted, atol=0.1)
    np.testing.assert_allclose(fitted.predict(GAPS)[~KNOWN], wanted, atol=0.1)
    np.testing.assert_allclose(fitted.transform(GAPS), fitted.row_factors_, atol=0.02)
    np.testing.assert_allclose(fitted.row_factors_ @ fitted.components_, FULL, atol=0.1)
    expected = -np.sqrt(np.mean((of_pairs - wanted) ** 2))
    assert fitted.score((np.array(USERS)[rows], columns, wanted)) == pytest.approx(expected)
    assert fitted.score(GAPS) > -0.05
    with pytest.warns(UserWarning, match="that are not in the training data"):
        assert fitted.predict((["u01", "stranger"], [99, 3])).tolist() == [0.0, 0.0]  # without mean and biases


def test_the_best_of_what_is_not_known_comes_first(fitted: MatrixFactorization) -> None:
    for row, chosen in zip(range(5), fitted.recommend(GAPS[:5], top=3), strict=True):
        missing = np.flatnonzero(~KNOWN[row])
        predicted = fitted.predict(GAPS[:5])[row]
        assert chosen.tolist() == missing[np.argsort(-predicted[missing])][:3].tolist()


def test_the_model_is_that_of_the_command_line(tmp_path: Path, fitted: MatrixFactorization) -> None:
    """Of the same ratings in a file, ingested."""
    lines = [f"{row}\t{column}\t{value!r}\n" for row, column, value in zip(ROWS, COLUMNS, VALUES.tolist(), strict=True)]
    (tmp_path / "ratings.tsv").write_text("".join(lines))
    ingest_ratings(RatingsRequest([str(tmp_path / "ratings.tsv")], str(tmp_path / "ratings")), workers=1)
    parameters = fitted.get_params() | {"n_jobs": 1}
    again = MatrixFactorization(**parameters).fit(tmp_path / "ratings")
    np.testing.assert_array_equal(again.row_factors_, fitted.row_factors_)
    np.testing.assert_array_equal(again.components_, fitted.components_)
    assert again.rows_.tolist() == [str(row) for row in range(70)]
    assert again.predict(([3], ["4"])) == fitted.predict((["u03"], [4]))
