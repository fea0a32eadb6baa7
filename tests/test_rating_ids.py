"""Ids of users and items: the same written otherwise, unknown ones, and what is no id; in Python and in files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from commands import Ooc

from blocks.errors import RequestError
from samplers import MatrixFactorization

RANDOM = np.random.default_rng(3)
ROWS, COLUMNS = np.nonzero(RANDOM.random((60, 30)) < 0.5)
USERS, ITEMS = 3 * ROWS + 1000, 7 * COLUMNS
VALUES = RANDOM.normal(size=ROWS.size) + 3
MODEL = MatrixFactorization(2, method="ccd", max_iter=3, random_state=0, n_jobs=1)
WRITTEN: dict[str, Callable[[np.ndarray], Any]] = {
    "int32": lambda ids: ids.astype(np.int32),
    "uint64": lambda ids: ids.astype(np.uint64),
    "whole floats": lambda ids: ids.astype(float),
    "texts": lambda ids: ids.astype(str),
    "bytes": lambda ids: ids.astype(bytes),
    "a list of ints": lambda ids: ids.tolist(),
    "a list of texts": lambda ids: ids.astype(str).tolist(),
    "objects that are ints": lambda ids: ids.astype(object),
    "objects that are texts": lambda ids: ids.astype(str).astype(object),
    "pandas": pd.Series,
    "pandas, Int64": lambda ids: pd.Series(ids, dtype="Int64"),
    "pandas, string": lambda ids: pd.Series(ids).astype("string"),
    "pandas, category": lambda ids: pd.Series(ids).astype("category"),
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow, string": lambda ids: pa.chunked_array([ids.astype(str).tolist()]),
    "polars, String": lambda ids: pl.Series(ids).cast(pl.String),
}


@pytest.fixture(scope="module")
def fitted() -> MatrixFactorization:
    return pickle.loads(pickle.dumps(MODEL)).fit((USERS, ITEMS, VALUES))


def dense(model: MatrixFactorization) -> np.ndarray:
    """Predictions of all pairs that were fitted, from what was learnt, by place."""
    w, h = model.row_factors_.astype(float), model.components_.astype(float)
    table = model.mean_ + model.row_biases_[:, None].astype(float) + model.column_biases_ + w @ h
    return table[np.unique(USERS, return_inverse=True)[1], np.unique(ITEMS, return_inverse=True)[1]]


@pytest.mark.few(8)
@pytest.mark.parametrize("written", WRITTEN)
def test_ids_are_the_same_however_they_are_written(fitted: MatrixFactorization, written: str) -> None:
    """Fitted as ints and predicted otherwise, and the other way round."""
    users, items = map(WRITTEN[written], (USERS, ITEMS))
    expected = dense(fitted)
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(fitted.predict((users, items)), expected, rtol=1e-6)
    np.testing.assert_allclose(fitted.predict((USERS, items)), expected, rtol=1e-6)
    assert fitted.score((users, items, VALUES)) == pytest.approx(-np.sqrt(np.mean((expected - VALUES) ** 2)))
    again = pickle.loads(pickle.dumps(MODEL)).fit((users, items, VALUES))
    found = again.predict((USERS, ITEMS))
    np.testing.assert_allclose(found, again.predict((users, items)), rtol=1e-12)
    assert again.score((USERS, ITEMS, VALUES)) == pytest.approx(fitted.score((USERS, ITEMS, VALUES)), rel=0.05)
    assert len(again.rows_) == 60


def test_ids_are_known_after_pickling_and_of_a_run(tmp_path: Path, fitted: MatrixFactorization, ooc: Ooc) -> None:
    joblib.dump(fitted, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(again.predict((USERS.astype(str), ITEMS)), fitted.predict((USERS, ITEMS)))
    lines = (f"{u}\t{i}\t{v!r}\n" for u, i, v in zip(USERS, ITEMS, VALUES.tolist(), strict=True))
    (tmp_path / "ratings.tsv").write_text("".join(lines))
    assert ooc("ingest", "ratings", "ratings.tsv", "ratings", "--workers", 1).returncode == 0
    assert ooc("train", "mf", "ratings", "run", "--rank", 2, "--iterations", 3, "--workers", 1).returncode == 0
    assert ooc("predict", "run", "ratings.tsv", "predicted.csv").returncode == 0
    expected = pd.read_csv(tmp_path / "predicted.csv")["prediction"]
    of_run = MatrixFactorization.from_run(tmp_path / "run")
    for users, items in ((USERS, ITEMS), (USERS.astype(float), ITEMS.astype(object)), (USERS.astype(str), ITEMS)):
        np.testing.assert_allclose(of_run.predict((users, items)), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["1000", "x7"], "users: row 1 has 'x7', but fit had whole numbers"),
        (["1000", "01003"], "users: row 1 has '01003', but fit had whole numbers"),
        ([1000.0, 1003.5], "users: row 1 has 1003.5: got numbers"),
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), "got times, but fit had whole"),
        (np.array([1000, "1003"], object), "row 0 has 1000 of type int, row 1 has '1003' of type str"),
        ([1000.0, 2.0**60], "above 2\\*\\*53 are not exact"),
        (np.array([1000, 1 << 70], object), "do not fit into 64 bits"),
        ([1000, None], "users: row 1 .counted from 0. has None instead of an id, like"),
        ([1000, np.nan], "users: row 1 .counted from 0. has nan instead of an id, like"),
        (pd.Series([1000, None], dtype="Int64"), "users: row 1 .counted from 0. has"),
        (pd.Series(["1000", None]), "users: row 1 .counted from 0. has"),
        (pl.Series(["1000", None]), "users: row 1 .counted from 0. has None instead of an id, like"),
        (np.array([1000j, 1]), "must be whole numbers or strings, got dtype complex128"),
        ([1000, 1003, 1006], "must have the same length"),
    ],
)
def test_ids_that_are_unclear_are_refused(fitted: MatrixFactorization, given: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        fitted.predict((given, [0, 7]))


@pytest.mark.parametrize(
    ("users", "items", "said"),
    [
        (["a", None, "b"], [1, 2, 3], "users: row 1 .counted from 0. has None instead of an id, like"),
        (["a", "b", np.nan], [1, 2, 3], "users: row 2 .counted from 0. has nan instead of an id, like"),
        (
            [1, 2, 3],
            [1, np.nan, np.nan],
            r"items: row 1 .counted from 0. has nan instead of an id, like 2 of 3 rows",
        ),
        ([1, 2, 3], pd.Series([None, "x", "y"]), "items: row 0 .counted from 0. has"),
        (pd.to_datetime(["2020-01-01", None, "2021-01-01"]), [1, 2, 3], "users: row 1 .counted from 0. has"),
        (np.array([1, "1", 2], object), [1, 2, 3], "of type str"),
    ],
)
def test_what_is_no_id_is_refused_in_fit(users: Any, items: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        MatrixFactorization(2).fit((users, items, [1.0, 2.0, 3.0]))


def test_numbers_are_not_taken_for_texts_with_zeros_in_front() -> None:
    texts = np.char.zfill(ROWS.astype(str), 3)
    model = pickle.loads(pickle.dumps(MODEL)).fit((texts, ITEMS, VALUES))
    np.testing.assert_array_equal(model.predict((texts.astype(object), ITEMS)), model.predict((texts, ITEMS)))
    with pytest.raises(RequestError, match="users are numbers, but fit had strings such as '000'"):
        model.predict((ROWS, ITEMS))


def test_large_ids_are_not_rounded() -> None:
    """As float64 the two users would be one."""
    ids = np.array([(1 << 63) + 1, (1 << 63) + 2], np.uint64)
    model = MatrixFactorization(1, method="ccd", max_iter=9, random_state=0, n_jobs=1)
    model.fit((np.repeat(ids, 3), [0, 1, 2] * 2, [1.0, 1, 1, 5, 5, 5]))
    assert model.rows_.tolist() == ids.tolist()
    assert np.ptp(model.predict((ids, [0, 0]))) > 3
    assert np.ptp(model.predict((ids.astype(str), [0, 0]))) > 3
    with pytest.warns(UserWarning, match=r"X has 1 users \(in 1 of 1 rows\)"):
        model.predict((np.array([-1]), [0]))


def test_unknown_ids_are_counted(tmp_path: Path, fitted: MatrixFactorization, ooc: Ooc) -> None:
    """In a warning that stands at the caller's line; they are predicted by what is known."""
    with pytest.warns(UserWarning, match=r"2 users \(in 3 of 4 rows\) and 1 items \(in 1 of 4 rows\)") as warned:
        found = fitted.predict((["1000", "1", "2", "1"], [0, 7, 5, 0]))
    assert warned[0].filename == __file__
    places = np.unique(ITEMS).tolist().index(7), 0
    assert found[2] == pytest.approx(fitted.mean_)
    assert found[[1, 3]] == pytest.approx(fitted.mean_ + fitted.column_biases_[list(places)])
    assert fitted.predict(([1000], ["0"])) == pytest.approx(found[:1])
    (tmp_path / "ratings.csv").write_text("1,1,5\n1,2,3\n2,1,4\n")
    (tmp_path / "pairs.csv").write_text("1,1\n2,9\n8,2\n8,9\n")
    assert ooc("ingest", "ratings", "ratings.csv", "ratings").returncode == 0
    assert ooc("train", "mf", "ratings", "run", "--rank", 1, "--iterations", 1).returncode == 0
    done = ooc("predict", "run", "pairs.csv", "out.csv")
    assert done.returncode == 0
    said = "warning: 3 of 4 pairs have a user (2) or an item (2) that was not in the training data\n"
    assert done.stderr.endswith(said)
    done = ooc("recommend", "run", "--user", "8", "--user", "1")
    assert done.returncode == 1
    assert "'8' is not in run" in done.stderr
