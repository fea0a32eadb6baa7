"""What a caller gives in place of arrays: lists are taken, all else is told of by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from blocks import RequestError, Samples, ingest_documents, write_corpus, write_matrix, write_samples
from blocks.ratings.matrix_writer import Entries

ARRAYS: dict[str, Any] = {"offsets": [0, 2, 4], "columns": [0, 3, 1, 2], "values": [1.0, 2, 3, 4], "labels": [0, 1.5]}
ROWS = sparse.coo_array(([1.0, 2.0], ([0, 1], [1, 0])))


def samples(path: Path, **given: Any) -> Samples:
    return write_samples(path / "samples", **{**ARRAYS, **given})


def contents(found: Samples) -> list[Any]:
    block = found.block(0)
    return [np.asarray(each).tolist() for each in (block.labels, block.offsets, block.columns, block.values)]


def test_lists_are_arrays(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    arrays = {name: np.array(value) for name, value in ARRAYS.items()}
    assert contents(samples(tmp_path / "lists")) == contents(samples(tmp_path, **arrays))
    corpus = write_corpus(tmp_path / "corpus", [0, 2, 3], [0, 1, 1], ["a", "b"])  # type: ignore[arg-type]
    assert (corpus.documents, corpus.tokens) == (2, 3)
    entries: Any = Entries([0, 1], [1, 0], [1.0, 2.0])  # type: ignore[arg-type]
    assert write_matrix(tmp_path / "matrix", entries, ["a", "b"], ["c", "d"]).entries == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"columns": [3, 0, 1, 2]}, "columns must ascend within each row; in row 0, 0 follows 3"),
        ({"columns": [0, 3, 2, 2]}, "columns must ascend within each row; in row 1, 2 follows 2"),
        ({"columns": [0, 3, 1, -1]}, "columns must be at least 0, got -1 at index 3"),
        ({"columns": [0.0, 3, 1, 2]}, "columns must be integers, got dtype float64"),
        ({"values": [1, 2, np.nan, 3]}, "values must be finite, got nan at index 2"),
        ({"values": [[1, 2], [3, 4]]}, "values must be one-dimensional, got shape (2, 2)"),
        ({"values": [[1, 2], [3]]}, "values must be one-dimensional"),
        ({"labels": ["a", "b"]}, "labels must be numbers, got dtype <U1"),
        ({"labels": [0, np.inf]}, "labels must be finite, got inf at index 1"),
        ({"offsets": ROWS}, "offsets must be an array of numbers, got a coo_array"),
        ({"offsets": []}, "offsets must ascend from 0 to 4"),
    ],
)
def test_samples_of_something_else_are_refused(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as refused:
        samples(tmp_path, **given)
    assert told in refused.value.what
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda out: ingest_documents("a b", out), "documents must be a list, got one str, 'a b'"),
        (lambda out: ingest_documents([["a"], None], out), "document 1 (counted from 0) is None, neither a string"),
        (
            lambda out: ingest_documents([["a", 3]], out),
            "document 0 (counted from 0) contains 3, which is not a string",
        ),
        (lambda out: write_corpus(out, [0, 1], [0], "ab"), "vocabulary must be a list of words, got the string 'ab'"),
        (lambda out: write_corpus(out, [0, 1], [-1], ["a"]), "words must be at least 0, got -1 at index 0"),
        (lambda out: write_corpus(out, [0, 1], [0.5], ["a"]), "words must be integers, got dtype float64"),
        (
            lambda out: write_matrix(out, ROWS, ["a", "b"], ["c", "d"]),
            "entries must be an Entries of three arrays, got a coo_array",
        ),
        (lambda out: write_matrix(out, Entries([0], [0], [np.nan]), ["a"], ["b"]), "values must be finite"),
    ],
)
def test_documents_and_entries_that_are_something_else_are_refused(
    tmp_path: Path, write: Callable[[Path], object], told: str
) -> None:
    with pytest.raises(RequestError) as refused:
        write(tmp_path / "out")
    assert told in refused.value.what
    assert not list(tmp_path.iterdir())
