"""Texts and columns of documents that `ooc ingest --keep` keeps: the same as in the input, for every format."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from commands import Ooc

from blocks import Dataset, RequestError, WorkFailed
from blocks.documents.column_types import column_of_strings, column_of_values
from blocks.documents.expressions import DocumentExpression
from blocks.progress_bar import no_bar
from blocks.verify import verify_dataset

WORDS = ["apple", "pear", "plum", "goal", "team", "ball", "match", "fruit"]
OPTIONS = ("--stop-words", "none")


def records(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents with a column of every type, and missing values."""
    rng = random.Random(seed)
    return [
        {
            "id": f"doc {number}",
            "date": date(2000 + rng.randrange(20), rng.randrange(1, 13), 28) if rng.random() < 0.9 else None,
            "when": datetime(2020, 1, 1 + rng.randrange(28), 7, number % 60),
            "stars": rng.randrange(-5, 6) if rng.random() < 0.9 else None,
            "price": rng.randrange(1000) / 8 + 0.0625,
            "zip": f"{rng.randrange(10000):05}",
            "group": rng.choice(["a", 'b, "c"', "ü\n<b>", None]),
            "body": " ".join(rng.choices(WORDS, k=rng.randrange(1, 9))) + rng.choice(["", "\nnext line", " <i>"]),
        }
        for number in range(count)
    ]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def kept(path: Path, columns: list[str] | None = None) -> dict[str, list[Any]]:
    """The table of a dataset, read by pyarrow alone."""
    files = [entry["file"] for entry in Dataset(path).manifest["table"]["files"]]
    tables = [pyarrow.parquet.read_table(path / file) for file in files]
    return pyarrow.concat_tables(tables).select(columns or tables[0].column_names).to_pydict()


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_columns_are_those_of_the_input(form: str, tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """In the order of the input, with several workers and many chunks, of the types that they have; also appended."""
    ooc, rows = ooc_in(tmp_path), records(3000)
    {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}[form](tmp_path / f"first.{form}", rows[:2500])
    {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}[form](tmp_path / f"next.{form}", rows[2500:])
    names = ("--text-field", "body") if form == "jsonl" else ("--text-column", "body", "--name-column", "id")
    kind = "jsonl" if form == "jsonl" else "csv"
    succeed(ooc("ingest", kind, f"first.{form}", "out", *names, *OPTIONS, "--keep", "all", "--workers", 3))
    succeed(ooc("ingest", kind, f"next.{form}", "out", *names, "--append", "--workers", 1))
    assert kept(tmp_path / "out", list(rows[0])) == columns_of(rows)
    table = Dataset(tmp_path / "out").table()
    assert table is not None
    assert table.kinds == {
        "id": "text", "date": "date", "when": "time", "stars": "integer", "price": "number", "zip": "text",
        "group": "text", "body": "text",
    }  # fmt: skip
    some = [2999, 0, 2500, 17, 17]
    assert table.take(some, ["stars", "body"]) == columns_of(
        [{name: rows[number][name] for name in ("stars", "body")} for number in some]
    )
    told = json.loads(succeed(ooc("info", "out", "--json")))
    assert told["table"]["bytes"] == sum(file.stat().st_size for file in (tmp_path / "out" / "documents").iterdir())


def test_other_inputs_keep_their_texts(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Lines, files, a database and Python: with the same words in the blocks as without a table."""
    ooc = ooc_in(tmp_path)
    texts = ["plum and pear", "", "goal! <b>team</b>", "ball"]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "files").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "files" / f"{number}.txt").write_text(text)
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE t (body TEXT, year INTEGER)")
        shop.executemany("INSERT INTO t VALUES (?, ?)", [(text, 2000 + number) for number, text in enumerate(texts)])
    shop.close()
    succeed(ooc("ingest", "text", "lines.txt", "lines", "--lines", *OPTIONS, "--keep", "text"))
    succeed(ooc("ingest", "text", "files", "of-files", *OPTIONS, "--keep", "all"))
    query = ("--query", "SELECT body, year FROM t", "--text-column", "body")
    succeed(ooc("ingest", "csv", "shop.db", "of-shop", *query, *OPTIONS, "--keep", "year,text"))
    with Dataset.create(tmp_path / "given", stop_words="none", keep="all") as writer:
        writer.add(texts[:2], columns={"year": [2000, 2001]})
        writer.add(pd.DataFrame({"text": texts[2:], "year": np.array([2002.0, np.nan])}))
    assert kept(tmp_path / "lines") == kept(tmp_path / "of-files") == {"text": texts}
    assert kept(tmp_path / "of-shop") == {"year": [2000, 2001, 2002, 2003], "body": texts}
    assert kept(tmp_path / "given", ["text", "year"]) == {"text": texts, "year": [2000, 2001, 2002, None]}
    succeed(ooc("ingest", "text", "lines.txt", "without", "--lines", *OPTIONS))
    assert Dataset(tmp_path / "without").identity == Dataset(tmp_path / "lines").identity
    assert Dataset(tmp_path / "without").table() is None


@pytest.mark.long
def test_files_do_not_depend_on_workers(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Also with more than one file and row group, as 90 MB of text need."""
    rng = np.random.default_rng(3)
    noise = rng.integers(97, 123, (900, 100_000), np.uint8)
    with (tmp_path / "long_mark.jsonl").open("w") as file:
        for number, line in enumerate(noise):
            file.write(json.dumps({"text": f"word{number % 7} {line.tobytes().decode()}", "n": number}) + "\n")
    command = ("ingest", "jsonl", "long_mark.jsonl", "--keep", "n,text", "--max-vocab", 5)
    succeed(ooc_in(tmp_path)(*command, "one", "--workers", 1))
    succeed(ooc_in(tmp_path)(*command, "two", "--workers", 2))
    files = sorted(file.name for file in (tmp_path / "one" / "documents").iterdir())
    assert files == ["00000.parquet", "00001.parquet"]
    assert all(
        (tmp_path / "one" / "documents" / name).read_bytes() == (tmp_path / "two" / "documents" / name).read_bytes()
        for name in files
    )
    table = Dataset(tmp_path / "two").table()
    assert table is not None
    numbers = [899, 3, 700]
    found = table.take(numbers, ["text", "n"])
    assert found["n"] == numbers
    assert [text.split()[1] for text in found["text"]] == [noise[number].tobytes().decode() for number in numbers]


def test_requests_that_cannot_be_met_are_refused(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    ooc, rows = ooc_in(tmp_path), records(20)
    write_csv(tmp_path / "in.csv", rows)
    write_csv(tmp_path / "other.csv", [row | {"stars": "many"} for row in rows])
    (tmp_path / "lines.txt").write_text("plum pear\n")
    made = ("--text-column", "body", "--keep", "stars")
    succeed(ooc("ingest", "csv", "in.csv", "out", *made))
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    for command, said in (
        ("csv in.csv new --text-column body --keep year", "in.csv has no column 'year'; its columns are 'id'"),
        ("text lines.txt new --lines --keep year", "year cannot be kept: text files only have the text"),
        ("csv in.csv new --text-column body --keep stars --shards 2", "--keep and --shards are mutually exclusive"),
        (
            "csv other.csv out --text-column body --append",
            "column 'stars' has the type integer in the dataset, but text in",
        ),
        (
            "csv other.csv out --text-column body --append --keep zip",
            "appending cannot change the columns that out keeps",
        ),
    ):
        done = ooc("ingest", *command.split())
        assert done.returncode == 2, command
        assert said in done.stderr, done.stderr
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    assert sorted(file.name for file in (tmp_path / "out" / "documents").iterdir()) == ["00000.parquet"]
    assert not (tmp_path / "new").exists()
    with (
        pytest.raises(RequestError, match=r"document 1 .* has no value"),
        Dataset.create(tmp_path / "new", keep="year") as writer,
    ):
        writer.add(["a plum", "a pear"], columns={"year": [1]})


def test_damage_is_found(tmp_path: Path) -> None:
    """A changed byte by `verify`; a file of other documents when it is read."""
    with Dataset.create(tmp_path / "data", keep="all") as writer:
        writer.add(["plum pear"] * 50, columns={"n": range(50)})
    assert not verify_dataset(Dataset(tmp_path / "data"), no_bar).problems
    file = tmp_path / "data" / "documents" / "00000.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert verify_dataset(Dataset(tmp_path / "data"), no_bar).damaged == ["documents/00000.parquet"]
    file.write_bytes(content[:-9])
    table = Dataset(tmp_path / "data").table()
    assert table is not None
    with pytest.raises(WorkFailed, match=r"00000\.parquet is damaged"):
        table.take([3], ["n"])


@pytest.mark.long
def test_a_killed_append_leaves_the_table_as_it_was(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    rows = records(400)
    write_csv(tmp_path / "in.csv", rows)
    write_csv(tmp_path / "next.csv", records(30_000, 1))
    made = ("--text-column", "body", *OPTIONS)
    succeed(ooc_in(tmp_path)("ingest", "csv", "in.csv", "out", *made, "--keep", "all"))
    started = subprocess.Popen(
        [sys.executable, "-m", "ooc", "ingest", "csv", "next.csv", "out", "--append", "--text-column", "body"],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    files = tmp_path / "out" / "documents"
    while len(list(files.iterdir())) == 1 and started.poll() is None:
        time.sleep(0.001)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    found = kept(tmp_path / "out", list(rows[0]))
    assert len(found["id"]) in (400, 30_400)
    assert {name: values[:400] for name, values in found.items()} == columns_of(rows)
    succeed(ooc_in(tmp_path)("ingest", "csv", "in.csv", "out", "--append", "--skip-known", "--text-column", "body"))
    named = {entry["file"] for entry in Dataset(tmp_path / "out").manifest["table"]["files"]}
    assert {f"documents/{file.name}" for file in files.glob("[!.]*")} == named  # what was unlocked stays a minute


def test_types_of_columns() -> None:
    for values, kind in (
        (["1", "-2", "", "NA"], "integer"),
        (["1", "2.50", ".5", "1e-3"], "number"),
        (["007", "1"], "text"),
        (["1", "x"], "text"),
        (["2015-02-28", "NA"], "date"),
        (["2015-02-30"], "text"),
        (["2015-02-28", "2015-02-28T10:00:00Z"], "time"),
        (["1234567890123456789012"], "text"),
        (["", None], "missing"),
    ):
        assert column_of_strings(values).kind == kind, values
    for values, kind in (
        ([1, 2.0, float("nan"), None], "integer"),
        ([1, 2.5], "number"),
        (["1", "2"], "text"),
        ([True, None], "boolean"),
        ([True, 1], "text"),
        ([np.float32(0.5), pd.NA, pd.NaT], "number"),
        ([pd.Timestamp("2015-01-01"), date(2015, 1, 2)], "time"),
        ([{"a": 1}, [1]], "text"),
        ([1 << 70], "text"),
    ):
        assert column_of_values(values).kind == kind, values


KINDS = {
    "year": "integer",
    "on": "date",
    "at": "time",
    "group": "text",
    "open": "boolean",
    "price": "number",
    "a b": "text",
}
ROWS = pd.DataFrame(
    {
        "year": [2014, 2015, 2016, None],
        "on": [date(2014, 5, 1), date(2015, 12, 31), None, date(2016, 1, 1)],
        "at": [datetime(2014, 5, 1, 12), datetime(2015, 12, 31), None, datetime(2016, 1, 1)],
        "group": ["cs.LG", "stat", None, "CS"],
        "open": [True, False, None, True],
        "price": [0.5, 2.0, 3.0, None],
        "a b": ["x", "y", "z", None],
    }
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("year > 2014", [1, 2]),
        ("year > 2014 and group == 'stat' or open", [0, 1, 3]),
        ("not year > 2014", [0]),
        ("2014 < year <= 2015.5", [1]),
        ("year(on) == 2015", [1]),
        ("month(at) in (5, 12)", [0, 1]),
        ("decade(on) == 2010", [0, 1, 3]),
        ("on >= '2015-12-31'", [1, 3]),
        ("'2015-12-31' > at", [0]),
        ("on == at", [1, 3]),
        ("group in ('stat', 'CS')", [1, 3]),
        ("group not in ['stat', 'CS']", [0]),
        ("'s' in lower(group)", [0, 1, 3]),
        ("group is None", [2]),
        ("group is not None and price != -2", [0, 1]),
        ("column('a b') == 'y'", [1]),
    ],
)
def test_conditions(condition: str, expected: list[int]) -> None:
    table = pyarrow.Table.from_pandas(ROWS).combine_chunks()
    arrays = {name: table[name].chunk(0) for name in KINDS} | {"year": pyarrow.array([2014, 2015, 2016, None])}
    arrays["at"] = arrays["at"].cast(pyarrow.timestamp("us"))
    found = DocumentExpression(condition, "--where", KINDS, is_condition=True)
    assert np.flatnonzero(found.mask({name: arrays[name] for name in found.columns})).tolist() == expected


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("yeer > 2014", "there is no column 'yeer'"),
        ("year > '2014'", "year and '2014' have different types, integer and text"),
        ("year", "year is not a condition"),
        ("year = 2014", "--where 'year = 2014'"),
        ("__import__('os').system('touch x')", "cannot be used here"),
        ("year.__class__ == 1", "cannot be used here"),
        ("[year for year in (1,)] == 1", "cannot be used here"),
        ("group == f'{year}'", "cannot be used here"),
        ("year(group) == 1", "group has the type text, not date"),
        ("on > '2015'", "'2015' is not a date"),
        ("1 == 1", "the expression uses no column"),
        ("(" * 3000 + "year" + ")" * 3000, "--where"),
        ("year + 1 == 2", "cannot be used here"),
        ("year in ()", "is not a list of values"),
    ],
)
def test_other_expressions_are_refused(condition: str, said: str) -> None:
    with pytest.raises(RequestError) as error:
        DocumentExpression(condition, "--where", KINDS, is_condition=True)
    assert said in error.value.what


def test_held_out_documents_depend_on_their_text_alone(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """In any order and beside any others; they have the words of the rest, and copies are on one side."""
    ooc, rows = ooc_in(tmp_path), records(600)
    write_jsonl(tmp_path / "in.jsonl", rows + rows[:50])
    write_jsonl(tmp_path / "other.jsonl", rows[::-2])
    command = ("--text-field", "body", *OPTIONS, "--keep", "id,text", "--hold-out", "20%")
    succeed(ooc("ingest", "jsonl", "in.jsonl", "data", *command, "--min-df", 2))
    succeed(ooc("ingest", "jsonl", "other.jsonl", "less", *command, "--workers", 2))
    rest, held = (set(kept(tmp_path / name)["id"]) for name in ("data", "data-held-out"))
    assert rest.isdisjoint(held)
    assert rest | held == {row["id"] for row in rows}
    texts, of_held = (set(kept(tmp_path / name)["body"]) for name in ("data", "data-held-out"))
    assert texts.isdisjoint(of_held)
    assert 0.1 < len(of_held) / len(texts | of_held) < 0.3
    assert set(kept(tmp_path / "less-held-out")["id"]) == {row["id"] for row in rows[::-2]} & held
    datasets = Dataset(tmp_path / "data"), Dataset(tmp_path / "data-held-out")
    assert datasets[0].vocabulary() == datasets[1].vocabulary()
    done = ooc("ingest", "jsonl", "-", "no", *command, input="")
    assert (done.returncode, "can be read only once" in done.stderr) == (2, True)
