"""Parquet and Arrow files, through the command line: the same dataset as of the CSV file that they would be."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from conftest import Ooc
from designs import read_back as design_back
from long_mark import long_but
from rating_files import read_back as ratings_back
from text_files import quoted_texts, write_csv

from blocks import Dataset, Design, DesignRequest, RequestError, arrow_tables, ingest_design
from blocks.arrow_tables import ArrowTable, column_numbers, column_texts, distinct_texts
from blocks.ratings.matrix import Matrix

RANDOM = np.random.default_rng(5)
TEXTS = quoted_texts(900)
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


@pytest.mark.few(2)
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


@pytest.mark.few(2)
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


NAMES = [f" u{number} " for number in range(126)]  # with the missing one, as many as int8 can number
INTEGERS = [np.iinfo(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
ENDS = {  # whole numbers at an end of what a type holds, and at both ends
    f"{kind.dtype} {end}": ([first, first + step, first, first + 3 * step], kind)
    for kind in INTEGERS
    for end, first, step in (("low", kind.min, 1), ("high", kind.max, -1))
} | {f"{kind.dtype} both": ([kind.min, kind.max, kind.min + 1, kind.max], kind) for kind in INTEGERS}
IDS: dict[str, tuple[pa.Array, list[str]]] = {
    "dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([*range(127), 0], pa.int8()), ["u3", *NAMES]),
        ["u3", *map(str.strip, NAMES), "u3"],
    ),
    "view": (pa.array(["a", "ü", "a"], pa.string_view()), ["a", "ü", "a"]),
    "half": (pa.array(np.array([1, 2.5, 1], np.float16)), ["1", "2.5", "1"]),
    "bool": (pa.array([True, False, True]), ["true", "false", "true"]),
    **{
        name: (pa.array(np.array(ids, kind.dtype)), list(map(str, map(int, ids)))) for name, (ids, kind) in ENDS.items()
    },
    "date": (pa.array([0, 31], pa.date32()), ["1970-01-01", "1970-02-01"]),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", long_but(["in.parquet"], ["in.parquet", "in.feather"]))
@pytest.mark.parametrize("kind", IDS)
def test_users_and_items_may_be_of_any_type(kind: str, name: str, tmp_path: Path, ooc: Ooc) -> None:
    ids, expected = IDS[kind]
    numbers = list(range(len(ids)))
    if (kind, name) == ("view", "in.feather"):  # feather has none
        name = "in.arrow"
    WRITERS[name](pa.table({"user": ids, "item": numbers}), tmp_path / name)
    done = ooc("ingest", "ratings", name, "out", "--workers", 1)
    assert done.returncode == 0, done.stderr
    found = ratings_back(Matrix(tmp_path / "out"))
    assert found == {(user, str(number)): 1.0 for user, number in zip(expected, numbers, strict=True)}


@pytest.mark.parametrize("name", ["in.parquet", "in.feather"])
def test_a_name_that_is_missing_is_told(name: str, tmp_path: Path, ooc: Ooc) -> None:
    """In the dictionary or by no number; or that has a line break, where others are one a line."""
    users = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 3], pa.int8()), ["a", None, "b\nc", "d"])
    if name == "in.parquet":  # which has no dictionary with a missing value
        users = users.dictionary_decode().dictionary_encode()
    WRITERS[name](pa.table({"user": users, "item": [1, 2, 3, 4, 5]}), tmp_path / name)
    done = ooc("ingest", "ratings", name, "out", "--workers", 1, "--on-error", "skip")
    assert "skipped 3 bad records, the first: " in done.stderr and "row 2: the user is missing" in done.stderr
    assert ratings_back(Matrix(tmp_path / "out")) == {("a", "1"): 1.0, ("d", "5"): 1.0}


def test_values_that_are_no_ratings_are_refused_or_left_out(tmp_path: Path, ooc: Ooc) -> None:
    """Row for row as for CSV; users and items of rows that are left out do not become users and items."""
    good = {("ann lee", "7"): 3.0, ("bo", "8"): 4.5, ("1", "9"): 1.0}
    table = pa.table({
        "user": [" ann lee\t", "bo", "cy", "dot", "", None, "e\nf", "1"],
        "item": [7, 8, 8, None, 9, 9, 9, 9],
        "rating": pa.array(["3", " 4.5 ", "NA", "2", "2", "2", "2", "1e0"]).dictionary_encode(),
    })  # fmt: skip
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    refused = ooc("ingest", "ratings", "in.parquet", "out", "--workers", 1)
    assert (refused.returncode, "in.parquet, row 3: the rating is missing" in refused.stderr) == (2, True)
    done = ooc("ingest", "ratings", "in.parquet", "out", "--workers", 1, "--on-error", "skip")
    assert done.returncode == 0, done.stderr
    assert "skipped 5 bad records, the first: in.parquet, row 3: the rating is missing" in done.stderr
    assert ratings_back(Matrix(tmp_path / "out")) == good
    assert set(Matrix(tmp_path / "out").row_names()) == {user for user, _ in good}
    high = ooc("ingest", "ratings", "in.parquet", "no", "--on-error", "skip", "--highest", 4)
    assert high.returncode == 0, high.stderr
    assert ratings_back(Matrix(tmp_path / "no")) == {pair: rating for pair, rating in good.items() if rating <= 4}


def test_pairs_of_a_table_are_predicted_as_those_of_csv(tmp_path: Path, ooc: Ooc) -> None:
    users, items = RANDOM.integers(0, 30, 2000), RANDOM.integers(0, 20, 2000)
    table = pa.table({"user": users, "item": items, "rating": RANDOM.normal(size=2000)})
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    write_csv(table, tmp_path / "in.csv")
    assert ooc("ingest", "ratings", "in.parquet", "data").returncode == 0
    assert ooc("train", "mf", "data", "run", "--rank", 2, "--iterations", 2).returncode == 0
    for name in ("in.parquet", "in.csv"):
        done = ooc("predict", "run", name, f"{name}.out.csv")
        assert done.returncode == 0, done.stderr
    found, expected = ((tmp_path / f"{name}.out.csv").read_text() for name in ("in.parquet", "in.csv"))
    assert found == expected
    assert len(found.splitlines()) == 2001
    sections = "".join(f"{item}:\n{user},2005-12-31\n" for user, item in zip(users, items, strict=True))  # Netflix
    (tmp_path / "qualifying.txt").write_text(sections)
    assert ooc("predict", "run", "qualifying.txt", "sections.csv").returncode == 0
    assert (tmp_path / "sections.csv").read_text() == expected


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["in.parquet", "in.feather", "in.arrow"])
def test_wide_tables_are_read_some_columns_after_the_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two files, whose columns may be cut in other places."""
    x = RANDOM.normal(size=(5000, 600)).astype(np.float32)
    names = [f"c{number:03}" for number in range(600)]
    tables = [pa.table(dict(zip(names, part.T, strict=True)) | {"y": part[:, 0]}) for part in (x[:4000], x[4000:])]
    for number, table in enumerate(tables):
        WRITERS[name](table.append_column("text", [["no"] * len(table)]), tmp_path / f"{number}{name}")
    monkeypatch.setattr(arrow_tables, "_ROOM", 1 << 19)
    bounds = [ArrowTable(str(tmp_path / f"{number}{name}")).together(names) for number in range(2)]
    assert min(map(len, bounds)) > 3
    request = DesignRequest(
        "csv",
        [str(tmp_path / f"{number}{name}") for number in range(2)],
        str(tmp_path / "out"),
        target="y",
        drop=["text"],
        block_bytes=1 << 20,
    )
    design = ingest_design(request, workers=2)
    np.testing.assert_array_equal(design_back(design), x)
    np.testing.assert_array_equal(design.y, x[:, 0])
    assert design.column_names() == names


def test_columns_of_every_kind_become_numbers(tmp_path: Path, ooc: Ooc) -> None:
    """The columns of the second file stand in its own types."""
    columns = {
        "yes": [True, False, True],
        "half": pa.array(np.array([0.5, 1.5, -2], np.float16)),
        "price": [Decimal("1.25"), Decimal("-3.5"), Decimal("0.75")],
        "text": ["1", " 2.5", "-3e2"],
        "coded": pa.array([4.0, 5.0, 4.0]).dictionary_encode(),
        "large": [1 << 40, 3, 1],
        "y": [1, 2, 3],
    }
    day = pa.array([0, 1, 2], pa.date32())
    pa.parquet.write_table(pa.table(columns | {"day": day}), tmp_path / "one.parquet")
    other = pa.table({name: np.arange(3) for name in [*columns, "day"]})
    pa.feather.write_feather(other, str(tmp_path / "two.feather"))
    refused = ooc("ingest", "csv", "one.parquet", "two.feather", "out", "--target", "y")
    assert refused.returncode == 2
    assert "the column 'day' holds date32[day], not numbers" in " ".join(refused.stderr.split())
    done = ooc("ingest", "csv", "one.parquet", "two.feather", "out", "--target", "y", "--drop", "day")
    assert done.returncode == 0, done.stderr
    first = [[1, 0.5, 1.25, 1, 4, 1 << 40], [0, 1.5, -3.5, 2.5, 5, 3], [1, -2, 0.75, -300, 4, 1]]
    design = Design(tmp_path / "out")
    np.testing.assert_array_equal(design_back(design), first + [[n] * 6 for n in range(3)])
    np.testing.assert_array_equal(design.y, [1, 2, 3, 0, 1, 2])


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path, ooc: Ooc) -> None:
    pa.parquet.write_table(DOCUMENTS, tmp_path / "in.parquet")
    data = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty").mkdir()
    as_hugging_face(DOCUMENTS, tmp_path / "saved")
    (tmp_path / "saved" / "data-00001-of-00002.arrow").unlink()
    as_hugging_face(DOCUMENTS, tmp_path / "odd")
    (tmp_path / "odd" / "state.json").write_text('{"_data_files": [{"filename": 3}]}')
    pa.parquet.write_table(pa.table({"y": [1.0, 2.0], "x": [None, 1.5]}), tmp_path / "missing.parquet")
    pa.parquet.write_table(pa.table({"y": [1.0, 2.0]}), tmp_path / "alone.parquet")
    for arguments, said in (
        (["alone.parquet", "--target", "y"], "2 rows and 0 columns"),
        (["cut.parquet"], "cut.parquet is truncated or damaged"),
        (["empty"], "empty is a directory without .parquet, .arrow or .feather files"),
        (["saved"], "data-00001-of-00002.arrow is missing"),
        (["odd"], "odd/state.json does not list the files of a dataset"),
        (
            ["in.parquet", "--text-column", "tags"],
            "in.parquet has no column 'tags'; its columns are 'id', 'text', 'topic'",
        ),
        (["missing.parquet", "--target", "y"], "missing.parquet, row 1, column 'x': nan is not a finite"),
        (["in.parquet", "--memory", "250MB"], "is too small"),
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
        try:
            table = ArrowTable(str(tmp_path / "changed"))
            for batch in table.batches(table.columns):
                for column in batch.columns:
                    assert len(column_texts(column)) == len(distinct_texts(column)[1]) == len(column_numbers(column))
        except RequestError as error:
            assert "changed" in str(error)
            refused += 1
    assert refused


def test_the_file_in_a_zip_archive_is_read(tmp_path: Path, ooc: Ooc) -> None:
    """Also what is compressed in it; but for what macOS adds it has to be the only one."""
    with zipfile.ZipFile(tmp_path / "in.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/in.csv.gz", gzip.compress(b"id,text\n1,fig pear\n2,plum\n"))
        archive.writestr("data/", "")
        archive.writestr("__MACOSX/data/._in.csv.gz", b"\0\0")
    done = ooc("ingest", "csv", "in.zip", "out")
    assert done.returncode == 0, done.stderr
    assert Dataset(tmp_path / "out").vocabulary() == ["fig", "pear", "plum"]
    with zipfile.ZipFile(tmp_path / "in.zip", "a") as archive:
        archive.writestr("more.csv", "id,text\n3,lime\n")
    refused = ooc("ingest", "csv", "in.zip", "no")
    assert (refused.returncode, "in.zip is a zip archive of 2 files" in refused.stderr) == (2, True)
    data = bytearray((tmp_path / "in.zip").read_bytes())
    data[data.index(b"data/in.csv.gz") + 20] ^= 64
    (tmp_path / "bad.zip").write_bytes(data[: data.index(b"more.csv")])
    refused = ooc("ingest", "csv", "bad.zip", "no")
    assert (refused.returncode, "bad.zip is truncated or damaged" in refused.stderr) == (2, True), refused.stderr


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
    assert (refused.returncode, "line 1: no field 'body.words'" in refused.stderr) == (2, True)
