"""Matrices made from arrays are those that are made from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from blocks import RequestError, write_matrix
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.matrix_writer import Entries
from blocks.ratings.request import RatingsRequest
from blocks.stored_dataset import check_file


def drawn(entries: int, rows: int, columns: int) -> Entries:
    """Every row and column has an entry; some cells have several."""
    random = np.random.default_rng(0)
    places = [
        np.concatenate((random.permutation(n), random.integers(0, n, entries - n))).astype(np.uint32)
        for n in (rows, columns)
    ]
    return Entries(*places, random.integers(1, 6, entries).astype(np.float32))


@pytest.mark.parametrize("grid", [None, 3])
def test_the_bytes_are_those_of_an_ingestion(tmp_path: Path, grid: int | None) -> None:
    entries = drawn(2_000, 70, 50)
    lines = [f"{row}\t{column}\t{value:g}\n" for row, column, value in zip(*entries, strict=True)]
    (tmp_path / "ratings.tsv").write_text("".join(lines))
    request = RatingsRequest([str(tmp_path / "ratings.tsv")], str(tmp_path / "ingested"), seed=5, grid=grid)
    ingested = ingest_ratings(request, workers=1)
    names = [str(row) for row in range(70)], [str(column) for column in range(50)]
    written = write_matrix(tmp_path / "written", entries, *names, seed=5, grid=grid)
    assert written.identity == ingested.identity
    assert written.manifest["slices"] == ingested.manifest["slices"]
    assert written.manifest["made"]["duplicates"] == ingested.manifest["made"]["duplicates"] > 0
    assert all(check_file(path, entry) is None for path, entry in written.files())


def test_rows_and_columns_may_have_no_entries(tmp_path: Path) -> None:
    entries = Entries(np.array([2, 0], np.uint32), np.array([1, 3], np.uint32), np.ones(2, np.float32))
    matrix = write_matrix(tmp_path / "matrix", entries, list("abc"), list("uvwxy"))
    assert (matrix.rows, matrix.columns, matrix.entries) == (2, 5, 2)
    assert matrix.row_names() == list("abc")
    assert sorted(matrix.index.column_entries.tolist()) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("row", [3, None])
def test_what_does_not_fit_is_refused(tmp_path: Path, row: int | None) -> None:
    rows = np.array([] if row is None else [row], np.uint32)
    entries = Entries(rows, np.zeros_like(rows), rows.astype(np.float32))
    with pytest.raises(
        RequestError, match="rows must be 1 indices from 0 to 2, one for each value" if row else "there are no ratings"
    ):
        write_matrix(tmp_path / "matrix", entries, list("abc"), list("uv"))
    assert not any(tmp_path.iterdir())
