"""Ratings, one in each row of a table, are not taken for a table with a column for each item."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from blocks.errors import RequestError
from samplers import MatrixFactorization

RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"user": RANDOM.integers(0, 50, 400), "item": RANDOM.integers(0, 30, 400), "rating": RANDOM.integers(1, 6, 400)}
)
BY_NAME, BY_PLACE = "(X['user'], X['item'], X['rating'])", "(X[:, 0], X[:, 1], X[:, 2])"
TRIPLES: dict[str, tuple[Callable[[], Any], str]] = {
    "a frame": (lambda: FRAME, BY_NAME),
    "a frame of few rows": (lambda: FRAME[:4], BY_NAME),
    "a frame with times": (lambda: FRAME.assign(timestamp=0), BY_NAME),
    "polars": (lambda: pl.DataFrame(FRAME), BY_NAME),
    "pyarrow": (lambda: pa.Table.from_pandas(FRAME), BY_NAME),
    "other names": (lambda: FRAME.set_axis(list("abc"), axis=1), "(X['a'], X['b'], X['c'])"),
    "names of MovieLens": (
        lambda: FRAME.set_axis(["userId", "movieId", "stars"], axis=1),
        "(X['userId'], X['movieId'], X['stars'])",
    ),
    "texts": (lambda: FRAME.set_axis(list("abc"), axis=1).astype({"b": str}), "(X['a'], X['b'], X['c'])"),
    "ints": (FRAME.to_numpy, BY_PLACE),
    "floats": (lambda: FRAME.to_numpy(float), BY_PLACE),
    "objects": (lambda: FRAME.astype({"user": str}).to_numpy(object), BY_PLACE),
    "a list": (lambda: FRAME.to_numpy().tolist(), BY_PLACE),
}


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("form", TRIPLES)
def test_ratings_in_rows_are_refused_with_the_right_call(form: str, implicit: bool) -> None:
    make, call = TRIPLES[form]
    with pytest.raises(RequestError, match="X looks like rows of user and item") as refused:
        MatrixFactorization(2, implicit=implicit).fit(make())
    assert f"fit({call})" in str(refused.value)


@pytest.mark.few(3)
@pytest.mark.parametrize("form", ["a frame", "pyarrow", "names of MovieLens", "ints", "floats", "objects"])
def test_the_right_call_is_right(form: str) -> None:
    """What the message says fits, with the users and items as they are."""
    make, call = TRIPLES[form]
    X = make()
    assert re.fullmatch(r"[\w\[\]():', ]+", call)
    model = MatrixFactorization(2, max_iter=1, n_jobs=1).fit(eval(call, {"X": X}))
    assert (model.rows_.size, model.columns_.size) == (FRAME.user.nunique(), FRAME.item.nunique())


def test_ratings_in_y_are_refused() -> None:
    with pytest.raises(RequestError, match=r"fit\(\(X\['user'\], X\['item'\], y\)\)"):
        MatrixFactorization(2).fit(FRAME[["user", "item"]], FRAME["rating"])
    with pytest.raises(RequestError, match=r"fit\(\(X\[:, 0\], X\[:, 1\], y\)\)"):
        MatrixFactorization(2).fit(FRAME[["user", "item"]].to_numpy(), FRAME["rating"])


def test_pairs_in_rows_are_refused_by_predict_and_score() -> None:
    model = MatrixFactorization(2, max_iter=1, n_jobs=1).fit((FRAME.user, FRAME.item, FRAME.rating))
    with pytest.raises(RequestError, match=r"predict\(\(X\['user'\], X\['item'\]\)\)"):
        model.predict(FRAME[["user", "item"]])
    with pytest.raises(RequestError, match=r"predict\(\(X\[:, 0\], X\[:, 1\]\)\)"):
        model.predict(FRAME[["user", "item"]].to_numpy())
    with pytest.raises(RequestError, match=r"score\(\(X\['user'\], X\['item'\], X\['rating'\]\)\)"):
        model.score(FRAME)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "table",
    [
        RANDOM.integers(1, 6, (400, 3)),
        RANDOM.normal(size=(400, 3)),
        np.where(RANDOM.random((400, 3)) < 0.3, np.nan, RANDOM.integers(1, 100, (400, 3))),
        RANDOM.integers(1, 100, (400, 2)),
        RANDOM.integers(1, 100, (400, 4)),
        sparse.csr_array(FRAME.to_numpy()),
        pd.DataFrame(RANDOM.integers(1, 6, (400, 3)), columns=["film a", "film b", "film c"]),
    ],
    ids=["a scale", "numbers", "gaps", "two items", "four items", "sparse", "named items"],
)
def test_tables_of_few_items_are_tables(table: Any) -> None:
    model = MatrixFactorization(1, max_iter=1, n_jobs=1).fit(table)
    assert model.n_features_in_ == table.shape[1]
    assert model.predict(table).shape == table.shape
