"""Mistakes in calls of the writers of datasets: named with the row, and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blocks import Dataset, Design, Matrix, RequestError, Samples

X = np.ones((2, 3))
ROWS = ([1.0, 2, 3], [0, 2, 1], [0, 2, 3])
MISTAKES: list[tuple[Any, tuple[Any, ...], str]] = [
    (Dataset, ("a text",), "documents must be a list, got one str, 'a text'"),
    (Dataset, (["a text", None],), "document 1 (counted from 0) is None, neither a string nor a list of words"),
    (Dataset, ([["a", 3]],), "document 0 (counted from 0) contains 3, which is not a string"),
    (Dataset, ([["a", "b\nc"]],), "document 0 (counted from 0) has a token that is empty or contains a line break"),
    (Dataset, (["a", "b"], ["name"]), "names has 1 elements, but there are more documents"),
    (Dataset, (["a"], ["name", "other"]), "names has 2 elements, but there are 1 documents"),
    (Dataset, (X,), "a count matrix has no words, and no vocabulary was given"),
    (Dataset, (pd.DataFrame({"body": ["a"]}),), "the table has no column 'text'; its columns are 'body'"),
    (Matrix, ([1, 2], ["a"], [1, 2]), "there are 2 users, 1 items, 2 ratings"),
    (Matrix, ([1, 2], ["a", "b"], [1, np.nan]), "row 1 (counted from 0): the rating nan is not a finite number"),
    (Matrix, ([1, None], ["a", "b"]), "row 1 (counted from 0): the user is None, expected a whole number"),
    (Matrix, (pd.DataFrame({"user": [1, pd.NA], "item": [1, 2]}),), "row 1 (counted from 0): the user is <NA>"),
    (Matrix, ([1, 2], ["a", " "]), "row 1 (counted from 0): the item is ' ', expected a whole number"),
    (Matrix, (X,), "ratings cannot be read from array("),
    (Matrix, ([(1, 2)], None, [5.0]), "ratings were given, but items were not"),
    (Matrix, ([1, 2], [1, 2], np.ma.array([1, 2], mask=[0, 1])), "ratings has masked values"),
    (Matrix, ("ratings.csv",), "ratings cannot be read from 'ratings.csv'"),
    (Matrix, ([(1, 2, 3), (1, 2)],), "row 1 (counted from 0) is (1, 2), expected 3 values: user, item, rating"),
    (
        Matrix,
        (pd.DataFrame({"x": [1], "y": [2]}),),
        "the table: cannot tell user, item and rating from the names 'x', 'y'",
    ),
    (Design, (X, [1.0]), "y has 1 value, but X has 2 rows"),
    (Design, (X, ["a", "b"]), "y must have a number for each row"),
    (Design, (X, [0, np.inf]), "y, row 1 (counted from 0): inf is not a finite number"),
    (Design, (X * [[1], [np.nan]],), "X, row 1, column 0 (counted from 0): nan is not a finite float32 number"),
    (Design, (pd.DataFrame({"a": [1, np.nan]}),), "X, row 1, column 'a' (counted from 0): nan is not a finite"),
    (Design, (pd.DataFrame({"a": ["x"]}),), "X, column 'a' is not a table of numbers: could not convert string"),
    (Design, ([[1, 2], [3]],), "X is not a table of numbers"),
    (Design, (iter([[1, 2], [3]]), iter([1, 2])), "X is not a table of numbers"),
    (Design, (np.array([[1, np.inf]], np.float16),), "X, row 0, column 1 (counted from 0): inf is not a finite"),
    (Design, (np.ma.array(X, mask=X > 0),), "X has masked values"),
    (Design, (X, np.ma.array([1, 2], mask=[0, 1])), "y has masked values"),
    (Design, (X, 1), "y must have a number for each row"),
    (Design, (iter(X), iter([1, 2, 3])), "y has 1 value more than X has rows"),
    (Design, ([1, 2],), "X must be two-dimensional, got shape (2,)"),
    (Design, ("x.npz",), "X must be a table of numbers, got 'x.npz'"),
    (Samples, (X,), "y is missing: each sample must have a label"),
    (Samples, (ROWS, [0.0]), "y has 1 value, but X has 2 rows"),
    (
        Samples,
        ((ROWS[0], [2, 0, 1], ROWS[2]), [0, 1]),
        "indices must ascend within each row; in row 0, 0 follows 2",
    ),
    (Samples, ((ROWS[0], [2, 2, 1], ROWS[2]), [0, 1]), "in row 0, 2 follows 2"),
    (Samples, ((ROWS[0], ROWS[1], [0, 2]), [0]), "indptr must ascend from 0 to 3, the number of indices"),
    (Samples, ((ROWS[0][:2], *ROWS[1:]), [0, 1]), "data has 2 elements, but there are 3 indices"),
    (Samples, (([1, np.nan, 1], *ROWS[1:]), [0, 1]), "X, row 0, column 2 (counted from 0): nan is not a finite"),
]
KILLED = """
import sys, time
from blocks import Dataset

with Dataset.create(sys.argv[1]) as writer:
    writer.add(["a few words"] * 1000)
    print("added", flush=True)
    time.sleep(60)
"""


def test_targets_may_come_after_no_rows(tmp_path: Path) -> None:
    for name, labels in (("with", [0.5, 2.0]), ("without", None)):
        with Design.create(tmp_path / name) as writer:
            writer.add(X[:0], [])
            writer.add(X, labels)
        y = Design(tmp_path / name).y
        assert (y is None) if labels is None else (y is not None and y.tolist() == labels)


@pytest.mark.parametrize(("kind", "given", "told"), MISTAKES)
def test_mistakes_are_told_and_nothing_is_left(tmp_path: Path, kind: Any, given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(RequestError) as refused, kind.create(tmp_path / "out") as writer:
        writer.add(*given)
    assert told in refused.value.what
    assert not list(tmp_path.iterdir())


def test_rows_that_do_not_go_with_those_before_are_told(tmp_path: Path) -> None:
    for kind, more, told in (
        (Design, (np.ones((1, 4)), [1]), "X has 4 columns, expected 3"),
        (Design, (X,), "rows 0 to 1 have y"),
        (Design, (pd.DataFrame({"a": [1.0, np.nan], "b": 1, "c": 2}), [0, 0]), "X, row 3, column 'a'"),
        (Design, (([1.0], [7], [0, 1]), [0]), "indices of X go up to 7, but there are 3 columns"),
        (Samples, (X * np.inf, [1, 2]), "X, row 2, column 0"),
    ):
        with pytest.raises(RequestError) as refused, kind.create(tmp_path / "out") as writer:
            writer.add(X, [0, 1])
            writer.add(*more)
        assert told in refused.value.what
    assert not list(tmp_path.iterdir())


def test_rows_narrower_than_indices_before_are_told(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="indices of X go up to 7, but"), Design.create(tmp_path / "out") as writer:
        writer.add(([1.0], [7], [0, 1]))
        writer.add(X)


@pytest.mark.parametrize("kind", [Design, Samples])
def test_targets_that_are_given_twice_are_told(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(RequestError, match="y is given twice"), kind.create(tmp_path / "out", target="y") as writer:
        writer.add(pd.DataFrame({"a": [1.0, 2.0], "y": [1.0, 2.0]}), [3.0, 4.0])


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (Dataset, (["a", None],), (["b"],)),
        (Matrix, ([1, 2], [1, 2], [1, np.nan]), ([1], [1])),
        (Design, (X * [[1], [np.nan]], [5, 6]), (X, [7, 8])),
        (Samples, (X * [[1], [np.nan]], [5, 6]), (X, [7, 8])),
    ],
)
def test_a_mistake_that_is_caught_leaves_no_dataset_with_a_part_of_it(
    tmp_path: Path, kind: Any, wrong: tuple[Any, ...], right: tuple[Any, ...], goes_on: bool
) -> None:
    with pytest.raises(RequestError, match="an earlier add"), kind.create(tmp_path / "out") as writer:
        with suppress(RequestError):
            writer.add(*wrong)
        if goes_on:
            writer.add(*right)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [Dataset, Matrix, Design, Samples])
def test_a_block_that_adds_nothing_or_raises_leaves_nothing(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(RequestError, match="were added"), kind.create(tmp_path / "out"):
        pass
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"), kind.create(tmp_path / "out"):  # as it is
        (tmp_path / "missing.txt").read_text()
    with pytest.raises(KeyboardInterrupt), kind.create(tmp_path / "out"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="already exists"), kind.create(tmp_path / "out"):
        raise AssertionError


def test_options_are_told_as_parameters(tmp_path: Path) -> None:
    for options, told in (
        ({"memory": "50MB"}, "memory 47MiB is too small for 1 worker: it must be at least"),
        ({"vocabulary": ["a"], "min_df": 2}, "min_df, max_df, max_vocab and min_npmi cannot be used when"),
        ({"vocabulary": ["a", "a"]}, "the vocabulary has the word 'a' twice"),
        ({"stop_words": "klingon"}, "klingon"),
    ):
        with pytest.raises(RequestError) as refused, Dataset.create(tmp_path / "out", **options):
            raise AssertionError
        assert told in refused.value.what
        assert "--" not in str(refused.value)
    with pytest.raises(RequestError) as refused, Matrix.create(tmp_path / "out") as writer:
        writer.add(pd.DataFrame({"x": [1], "y": [2]}))
    assert "with user_column, item_column and rating_column" in refused.value.remedy
    assert not list(tmp_path.iterdir())


def test_what_is_added_too_late_is_told(tmp_path: Path) -> None:
    with Dataset.create(tmp_path / "out") as writer:
        writer.add([["a"]])
    with pytest.raises(RequestError, match="nothing can be added"):
        writer.add([["b"]])


def test_what_a_kill_leaves_is_gone_with_the_next(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "out")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "added\n"
        process.send_signal(signal.SIGKILL)
    assert [path.name.startswith(".out.") for path in tmp_path.iterdir()] == [True]
    with Dataset.create(tmp_path / "out") as writer:
        writer.add([["a"]])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
