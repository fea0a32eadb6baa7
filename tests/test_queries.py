"""Rows of queries of a database, at the command line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from conftest import Ooc
from designs import read_back as design_back
from rating_files import read_back as ratings_back
from text_files import quoted_texts, write_csv

from blocks import Design
from blocks.ratings.matrix import Matrix


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Documents, numbers and ratings in one database."""
    with sqlite3.connect(tmp_path / "all.db") as made:
        made.execute("CREATE TABLE papers (id INTEGER, body TEXT, pdf BLOB)")
        made.executemany(
            "INSERT INTO papers VALUES (?, ?, ?)",
            [(n, text or None, b"%PDF") for n, text in enumerate(quoted_texts(900))],
        )
        made.execute("CREATE TABLE numbers (a REAL, b REAL, y REAL)")
        made.executemany("INSERT INTO numbers VALUES (?, ?, ?)", [(n / 4, n % 3, n / 2) for n in range(200)])
        made.execute(
            "CREATE VIEW liked AS SELECT 'u' || (id % 7) AS user, id AS item, 1 + id % 5 AS rating FROM papers"
        )
    made.close()
    return tmp_path / "all.db"


def test_rows_of_a_query(database: Path, tmp_path: Path, ooc: Ooc) -> None:
    before = database.read_bytes()
    papers = "SELECT body AS text, 'p' || id AS name FROM papers WHERE id < 500 ORDER BY id"
    done = ooc("ingest", "csv", "all.db", "papers", "--name-column", "name", "--query", papers)
    assert done.returncode == 0, done.stderr
    write_csv(pa.table({"text": quoted_texts(500), "name": [f"p{n}" for n in range(500)]}), tmp_path / "in.csv")
    assert ooc("ingest", "csv", "in.csv", "expected", "--name-column", "name").returncode == 0
    for file in ("vocabulary.txt", "documents.txt", "blocks/00000.h5"):
        assert (tmp_path / "papers" / file).read_bytes() == (tmp_path / "expected" / file).read_bytes()
    done = ooc("ingest", "csv", "all.db", "numbers", "--target", "y", "--query", "SELECT * FROM numbers")
    assert done.returncode == 0, done.stderr
    design = Design(tmp_path / "numbers")
    np.testing.assert_array_equal(design_back(design), [[n / 4, n % 3] for n in range(200)])
    np.testing.assert_array_equal(design.y, np.arange(200) / 2)
    done = ooc("ingest", "ratings", "all.db", "liked", "--query", "SELECT * FROM liked")
    assert done.returncode == 0, done.stderr
    assert ratings_back(Matrix(tmp_path / "liked")) == {(f"u{n % 7}", str(n)): 1 + n % 5 for n in range(900)}
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (None, "all.db is a SQLite database with the tables liked, numbers, papers"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT pdf, body AS text FROM papers", "--query: the column 'pdf' contains bytes; expected text or numbers"),
        ("DROP TABLE papers", "attempt to write a readonly database"),
        ("SELECT body FROM papers", "its columns are 'body'"),
    ],
)
def test_queries_that_give_no_rows_are_refused(
    query: str | None, said: str, database: Path, tmp_path: Path, ooc: Ooc
) -> None:
    done = ooc("ingest", "csv", "all.db", "out", *(("--query", query) if query else ()))
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "in.csv").write_text("text\nfig\n")
    plain = ooc("ingest", "csv", "in.csv", "out", "--query", "SELECT 1")
    assert (plain.returncode, "--query is only for SQLite databases, and in.csv is not one" in plain.stderr) == (
        2,
        True,
    )
