"""Parquet and Arrow files, through the command line: the same dataset as of the CSV file that they would be."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from conftest import Ooc
from designs import read_back as design_back
from test_ratings import read_back as ratings_back

from blocks import Dataset, Design, RequestError
from blocks.ratings.matrix import Matrix
from blocks.tables import kind_of_table, rows_as_csv

RANDOM = np.random.default_rng(5)
WORDS = np.array([f"word{number}" for number in range(300)])
TEXTS = [" ".join(RANDOM.choice(WORDS, 20)) + (', "so"\nthey said' if number % 7 == 0 else "") for number in range(900)]
TEXTS[3] = ""
DOCUMENTS = pa.table({
    "id": [f"d{number}" for number in range(900)],
    "text": pa.array(TEXTS, pa.large_string()),
    "topic": pa.array(["a", "b", None] * 300).dictionary_encode(),
    "tags": [["x", "y"]] * 900,
})  # fmt: skip
NUMBERS = pa.table({
    "wide": RANDOM.normal(size=500) * 10.0 ** RANDOM.integers(-30, 30, 500),
    "narrow": RANDOM.normal(size=500).astype(np.float32),
    "whole": RANDOM.integers(-(1 << 40), 1 << 40, 500),
    "small": RANDOM.integers(0, 200, 500).astype(np.uint8),
    "y": RANDOM.normal(size=500),
})  # fmt: skip


def as_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=170)


def as_hugging_face(table: pa.Table, path: Path) -> None:
    """A directory as `datasets` saves one, with a file beside it that is not of the dataset."""
    path.mkdir()
    names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
    half = len(table) // 2
    for name, part in zip(names, (table[:half], table[half:]), strict=True):
        as_stream(part, path / name)
    as_stream(table, path / "cache-17.arrow")
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def as_directory(table: pa.Table, path: Path) -> None:
    (path / "year=2020").mkdir(parents=True)
    pa.parquet.write_table(table[:400], path / "year=2020" / "a.parquet")
    pa.parquet.write_table(table[400:], path / "year=2020" / "b.parquet", compression="zstd")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "in.parquet": lambda table, path: pa.parquet.write_table(table, path, row_group_size=130),
    "in.feather": lambda table, path: pa.feather.write_feather(table, str(path), compression="lz4"),
    "in.arrow": as_stream,
    "saved": as_hugging_face,
    "partitioned": as_directory,
}


def write_csv(table: pa.Table, path: Path) -> None:
    """By Python's csv and repr."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("name", WRITERS)
def test_documents_are_those_of_csv(name: str, tmp_path: Path, ooc: Ooc) -> None:
    write_csv(DOCUMENTS.drop_columns(["tags"]), tmp_path / "in.csv")
    WRITERS[name](DOCUMENTS, tmp_path / name)
    for source, out in (("in.csv", "expected"), (name, "found")):
        done = ooc("ingest", "csv", source, out, "--name-column", "id", "--workers", 2, "--memory", "500MB")
        assert done.returncode == 0, done.stderr
    expected, found = Dataset(tmp_path / "expected"), Dataset(tmp_path / "found")
    assert found.documents == 900
    assert found.document_names() == expected.document_names() == DOCUMENTS["id"].to_pylist()
    for file in ("vocabulary.txt", "index.h5", "blocks/00000.h5"):
        assert (tmp_path / "found" / file).read_bytes() == (tmp_path / "expected" / file).read_bytes()


@pytest.mark.parametrize("name", WRITERS)
def test_numbers_are_those_of_the_table(name: str, tmp_path: Path, ooc: Ooc) -> None:
    WRITERS[name](NUMBERS, tmp_path / name)
    done = ooc("ingest", "csv", name, "out", "--target", "y", "--workers", 1)
    assert done.returncode == 0, done.stderr
    design = Design(tmp_path / "out")
    expected = np.column_stack([NUMBERS[column].to_numpy().astype(np.float32) for column in NUMBERS.column_names[:4]])
    np.testing.assert_array_equal(design_back(design), expected)
    np.testing.assert_allclose(design.y, NUMBERS["y"].to_numpy(), rtol=1e-15)


@pytest.mark.parametrize("name", ["in.parquet", "in.feather"])
def test_ratings_are_those_of_the_table(name: str, tmp_path: Path, ooc: Ooc) -> None:
    users, items = [f"u,{number % 30}" for number in range(300)], [number * 7 % 50 for number in range(300)]
    scores = RANDOM.integers(1, 11, 300) / 2
    table = pa.table({"movieId": items, "stars": scores, "userId": users})
    WRITERS[name](table, tmp_path / name)
    done = ooc("ingest", "ratings", name, "out", "--delimiter", ";")  # which is not for tables
    assert done.returncode == 0, done.stderr
    expected = {(user, str(item)): score for user, item, score in zip(users, items, scores, strict=True)}
    assert ratings_back(Matrix(tmp_path / "out")) == expected


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path, ooc: Ooc) -> None:
    pa.parquet.write_table(DOCUMENTS, tmp_path / "in.parquet")
    data = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty").mkdir()
    pa.parquet.write_table(pa.table({"y": [1.0, 2.0], "x": [None, 1.5]}), tmp_path / "missing.parquet")
    for arguments, said in (
        (["cut.parquet"], "cut.parquet is truncated or damaged"),
        (["empty"], "empty is a directory without .parquet, .arrow or .feather files"),
        (["in.parquet", "--text-column", "tags"], "in.parquet has no column 'tags'; there are 'id', 'text', 'topic'"),
        (["missing.parquet", "--target", "y"], "missing.parquet, line 2"),
        (["in.parquet", "--memory", "250MB"], "is too little"),
    ):
        done = ooc("ingest", "csv", *arguments, "out", "--workers", 1)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["in.parquet", "in.feather", "in.arrow"])
def test_damaged_tables_are_refused_or_read(name: str, tmp_path: Path) -> None:
    """Whatever bytes are others: in a line, or as other rows, of which nothing can tell without checksums."""
    WRITERS[name](DOCUMENTS[:50], tmp_path / name)
    data = np.frombuffer((tmp_path / name).read_bytes(), np.uint8)
    refused = 0
    for _ in range(300):
        changed = data.copy()
        changed[RANDOM.integers(6, data.size, 3)] = RANDOM.integers(0, 256, 3)
        (tmp_path / "changed").write_bytes(changed.tobytes())
        kind = kind_of_table(str(tmp_path / "changed"))
        assert kind
        try:
            for rows in rows_as_csv(str(tmp_path / "changed"), kind, lambda size: None):
                list(csv.reader(io.StringIO(rows.decode("utf-8", "replace"))))
        except RequestError as error:
            assert "changed" in str(error)
            refused += 1
    assert refused


def test_fields_of_objects_in_objects(tmp_path: Path, ooc: Ooc) -> None:
    records = [
        {"body": {"text": "apple pear"}, "meta": {"key": {"id": 9007199254740993}}},
        {"body.text": "plum", "body": {"text": "no"}, "meta": {"key": {"id": "b"}}},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    done = ooc("ingest", "jsonl", "in.jsonl", "out", "--text-field", "body.text", "--name-field", "meta.key.id")
    assert done.returncode == 0, done.stderr
    dataset = Dataset(tmp_path / "out")
    assert dataset.vocabulary() == ["apple", "pear", "plum"]
    assert dataset.document_names() == ["9007199254740993", "b"]
    refused = ooc("ingest", "jsonl", "in.jsonl", "no", "--text-field", "body.words")
    assert (refused.returncode, "line 1: there is no field 'body.words'" in refused.stderr) == (2, True)
