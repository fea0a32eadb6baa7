"""Values of kept columns that are easily changed or lost: large integers, times, nested values, and their files."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from commands import Ooc

from blocks.corpus.dataset import Dataset
from blocks.documents.document_table import DocumentTable
from blocks.documents.expressions import DocumentExpression
from blocks.errors import RequestError, WorkFailed

TEXTS = ["plum pear", "apple plum"]


def made(path: Path, documents: Any, **columns: Any) -> dict[str, list[Any]]:
    """The table of a dataset of some documents."""
    with Dataset.create(path, keep="all", overwrite=True) as writer:
        writer.add(documents, columns=columns or None)
    table = Dataset(path).table()
    assert table is not None
    return table.take(range(table.rows), list(table.kinds))


def test_python_values_are_kept_as_they_are(tmp_path: Path) -> None:
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    for given, expected in (
        (np.array(["2015-01-01T10:00", "NaT"], "datetime64[ns]"), [datetime(2015, 1, 1, 10), None]),
        (np.array(["2015-01-01", "NaT"], "datetime64[D]"), [date(2015, 1, 1), None]),
        ([np.array([1, 2]), np.array([3])], ["[1,2]", "[3]"]),
        ([{"a": np.float64(1)}, {1: "\ud800"}], ['{"a":1.0}', '{"1": "?"}']),
        ([Decimal("1234567890123456789"), Decimal(1)], [1234567890123456789, 1]),
        ([early, None], ["0001-01-01T00:00:00+05:00", None]),
        ([b"\xc3\xa9", b"y"], ["é", "y"]),
    ):
        assert made(tmp_path / "data", TEXTS, x=given)["x"] == expected
    table = pd.DataFrame({"text": [np.array(["a", "b"]), np.array(["c"])], 2015: [1, 2]})
    assert made(tmp_path / "data", table) == {"text": ["a b", "c"], "2015": [1, 2]}


def test_columns_that_do_not_fit_the_documents_are_refused(tmp_path: Path) -> None:
    """And texts alone are kept whatever columns are given; a matrix of counts has none."""
    twice = pd.DataFrame([["plum", 1, 2]], columns=["text", "a", "a"])
    counts = np.array([[1, 2], [3, 0]])
    for documents, columns, said in (
        (twice, None, "the table has 2 columns named 'a'"),
        (TEXTS, {"a": [1, 2, 3], "b": [1, 2]}, "more values than documents"),
        (counts, {"a": [1, 2, 3]}, "more values than documents"),
    ):
        vocabulary = ["x", "y"] if documents is counts else None
        with (
            pytest.raises(RequestError, match=said),
            Dataset.create(tmp_path / "data", keep="all", vocabulary=vocabulary) as writer,
        ):
            writer.add(documents, columns=columns)
    with Dataset.create(tmp_path / "texts", keep="text") as writer:
        writer.add(TEXTS, columns={"year": [1, 2]})
    table = Dataset(tmp_path / "texts").table()
    assert table is not None
    assert table.take([1], ["text"]) == {"text": TEXTS[1:]}
    with Dataset.create(tmp_path / "counts", keep="all", vocabulary=["x", "y"]) as writer:
        writer.add(counts)
    assert Dataset(tmp_path / "counts").table() is None


def test_large_integers_and_absent_fields(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Of JSON, whose parser rounds integers of more than 64 bits, and of CSV."""
    ooc = ooc_in(tmp_path)
    large, tweet = 12345678901234567890123, 1234567890123456789
    rows = [{"text": "plum pear", "id": large, "tweet": tweet}, {"text": "plum", "id": 2, "tweet": 3}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    for kind, column in (("jsonl", ()), ("csv", ("--text-column", "text"))):
        assert ooc("ingest", kind, f"in.{kind}", kind, *column, "--keep", "id,tweet").returncode == 0
        table = Dataset(tmp_path / kind).table()
        assert table is not None
        assert table.take([0, 1], ["id", "tweet"]) == {"id": [str(large), "2"], "tweet": [tweet, 3]}
    for names, said in (("id,yaer", "no document has the field 'yaer'"), (",", "--keep names no column")):
        done = ooc("ingest", "jsonl", "in.jsonl", "new", "--keep", names)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "new").exists()


def test_numbers_of_any_size_can_be_compared() -> None:
    large = (1 << 60) + 1
    arrays = {"year": pyarrow.array([2014, large, None]), "price": pyarrow.array([0.5, 2.0, None])}
    for condition, expected in (
        ("year > 1.5", [0, 1]),
        ("year > price", [0, 1]),
        (f"year > {10**30}", []),
        (f"year < {10**400}", [0, 1]),
        (f"price < {10**30}", [0, 1]),
        (f"year == {large}", [1]),
        ("column('café') == 1", [0]),
        ("café == 1", [0]),
    ):
        named = arrays | {"cafe\u0301": pyarrow.array([1, 2, None]), "café": pyarrow.array([1, 2, None])}
        kinds = {"year": "integer", "price": "number", "café" if "column" in condition else "cafe\u0301": "integer"}
        found = DocumentExpression(condition, "--where", kinds, is_condition=True)
        assert np.flatnonzero(found.mask({name: named[name] for name in found.columns})).tolist() == expected
    for deep in ("not " * 900 + "year > 1", "year" + ".a" * 1900 + " > 1", "-" * 3900 + "1 > year"):
        with pytest.raises(RequestError) as error:
            DocumentExpression(deep, "--where", {"year": "integer"}, is_condition=True)
        assert len(error.value.what) < 500


def test_files_whose_number_of_rows_lies_are_damaged(tmp_path: Path) -> None:
    """A file with other row counts than the manifest says is not read as that of other documents."""
    made(tmp_path / "data", ["plum pear"] * 50, n=range(50))
    dataset = Dataset(tmp_path / "data")
    entry = dataset.manifest["table"]
    file = tmp_path / "data" / entry["files"][0]["file"]
    table = pyarrow.parquet.read_table(file)
    pyarrow.parquet.write_table(table.slice(0, 40), file)
    entry["files"][0]["bytes"] = file.stat().st_size
    with pytest.raises(WorkFailed, match="its rows or columns do not match the manifest"):
        DocumentTable(tmp_path / "data", entry, 50).take([3], ["n"])
    content = file.read_bytes()  # its metadata alone says 50: a varint of its rows before its list of row groups
    assert content.count(b"\x16\x50\x19\x1c") == 1
    file.write_bytes(content.replace(b"\x16\x50\x19\x1c", b"\x16\x64\x19\x1c"))
    assert pyarrow.parquet.ParquetFile(file).metadata.num_rows == 50
    with pytest.raises(WorkFailed, match="its rows or columns do not match the manifest"):
        DocumentTable(tmp_path / "data", entry, 50).take([45], ["n"])
    entry["files"][0]["documents"] = 40
    with pytest.raises(WorkFailed, match="has 40 rows, expected 50"):
        DocumentTable(tmp_path / "data", entry, 50)


def test_an_interrupted_hold_out_can_be_run_again(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Killed between its two datasets, it leaves the held-out documents; others are not replaced."""
    ooc = ooc_in(tmp_path)
    lines = [f"plum pear w{number % 7} d{number}" for number in range(200)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    command = ("ingest", "text", "in.txt", "data", "--lines", "--hold-out")
    assert ooc(*command, "20%").returncode == 0
    before = Dataset(tmp_path / "data").identity, Dataset(tmp_path / "data-held-out").identity
    shutil.rmtree(tmp_path / "data")
    done = ooc(*command, "10%")
    assert (done.returncode, "data-held-out already exists" in done.stderr) == (2, True)
    assert ooc(*command, "20%").returncode == 0
    assert (Dataset(tmp_path / "data").identity, Dataset(tmp_path / "data-held-out").identity) == before
    done = ooc("ingest", "text", "in.txt", "data", "--lines", "--overwrite")
    assert done.returncode == 0
    done = ooc("sweep", "data", "sweep", "--topics", 2)
    assert (done.returncode, "data-held-out was not split off from data, so" in done.stderr) == (2, True)
