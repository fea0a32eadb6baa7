"""Appending again and again, as scheduled jobs do: what a dataset has already is refused, or passed over."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from commands import Ooc
from corpora import tree
from long_mark import long_but
from text_files import words_of, write_day

from blocks import Dataset
from blocks.json_files import write_json

REMEDY = "Remove the document, or use --skip-known to skip documents that the dataset already has."


def succeed(ooc: Ooc, command: str, **options: object) -> subprocess.CompletedProcess[str]:
    done = ooc(*command.split(), **options)
    assert done.returncode == 0, (command, done.stderr)
    return done


def refused(ooc: Ooc, command: str) -> list[str]:
    done = ooc(*command.split())
    assert (done.returncode, done.stdout) == (2, ""), (command, done.stderr)
    return done.stderr.splitlines()


@pytest.fixture
def days(tmp_path: Path) -> Path:
    write_day(tmp_path / "1.jsonl", *(f"doc{number}" for number in range(20)))
    write_day(tmp_path / "2.jsonl", *(f"doc{number}" for number in range(15, 32)))
    write_day(tmp_path / "all.jsonl", *(f"doc{number}" for number in range(20)), "", "last")
    return tmp_path


def test_an_append_to_nothing_makes_the_dataset_that_ingest_makes(days: Path, ooc: Ooc) -> None:
    succeed(ooc, "ingest jsonl 1.jsonl plain --min-df 2")
    succeed(ooc, "ingest jsonl 1.jsonl new --min-df 2 --append --skip-known")
    (days / "empty").mkdir()
    succeed(ooc, "ingest jsonl 1.jsonl empty --min-df 2 --append")
    assert tree(days / "plain") == tree(days / "new") == tree(days / "empty")


def test_a_file_is_appended_once_whatever_its_name(days: Path, ooc: Ooc) -> None:
    succeed(ooc, "ingest jsonl 1.jsonl corpus")
    succeed(ooc, "train lda corpus run --topics 2 --iterations 2 --workers 1")
    before = tree(days / "corpus")
    (days / "copy.jsonl").write_bytes((days / "1.jsonl").read_bytes())
    assert refused(ooc, "ingest jsonl 1.jsonl corpus --append") == [
        "ooc: 1.jsonl was ingested before: its documents would appear twice in corpus",
        REMEDY,
    ]
    assert refused(ooc, "ingest jsonl copy.jsonl corpus --append") == [
        "ooc: copy.jsonl has the same content as 1.jsonl: its documents would appear twice in corpus",
        REMEDY,
    ]
    done = succeed(ooc, "ingest jsonl copy.jsonl 1.jsonl corpus --append --skip-known")
    assert done.stderr == "nothing was added: corpus already has all documents\n"
    assert "20 documents, 120 tokens, vocabulary of 8 words; 0 new documents" in done.stdout
    assert json.loads(succeed(ooc, "ingest jsonl 1.jsonl corpus --append --skip-known --json").stdout)["added"] == 0
    assert tree(days / "corpus") == before
    for empty in ("none.jsonl", "nothing.jsonl"):
        (days / empty).touch()
    succeed(ooc, "ingest jsonl 2.jsonl none.jsonl corpus --append --skip-known")
    assert refused(ooc, "ingest jsonl 2.jsonl corpus --append")[0].startswith("ooc: 2.jsonl was ingested before")
    write_day(days / "3.jsonl", "new")
    succeed(ooc, "ingest jsonl 3.jsonl nothing.jsonl corpus --append")


def test_documents_are_appended_once_by_their_names(days: Path, ooc: Ooc, bags) -> None:
    succeed(ooc, "ingest jsonl 1.jsonl corpus")
    before = tree(days / "corpus")
    assert refused(ooc, "ingest jsonl 2.jsonl corpus --append") == [
        "ooc: 2.jsonl: the dataset already has a document named 'doc15'",
        REMEDY,
    ]
    assert tree(days / "corpus") == before
    for command in ("ingest jsonl 2.jsonl corpus --append", "ingest jsonl 2.jsonl all.jsonl beside --append"):
        succeed(ooc, "ingest jsonl 1.jsonl beside --overwrite")
        done = succeed(ooc, f"{command} --skip-known --workers 2")
    assert "left out 25 documents that the dataset already has" in done.stderr
    assert "left out, which the dataset already had" in succeed(ooc, "info corpus").stdout
    corpus, beside = Dataset(days / "corpus"), Dataset(days / "beside")
    assert corpus.document_names() == [f"doc{number}" for number in range(32)]
    assert bags(corpus) == [Counter(words_of(f"doc{number}")) for number in range(32)]
    assert beside.document_names() == [*(f"doc{number}" for number in range(32)), "", "last"]
    succeed(ooc, "verify corpus")


@pytest.mark.parametrize("rounds", [5, pytest.param(8, marks=pytest.mark.long)])
def test_what_comes_again_in_any_order_is_there_once(days: Path, ooc: Ooc, bags, rounds: int) -> None:
    """Files that overlap, as a window of the last days does, through one and two workers, and through a pipe."""
    numbers = random.Random(4)
    expected: list[str] = []
    for round_ in range(rounds):
        first = numbers.randint(0, 30)
        names = [f"doc{number}" for number in range(first, first + numbers.randint(1, 20))]
        write_day(days / "day.jsonl", *names)
        expected += [name for name in names if name not in expected]
        data = (days / "day.jsonl").read_text()
        for corpus, workers in (("one", 1), ("two", 2)):
            succeed(ooc, f"ingest jsonl day.jsonl {corpus} --append --skip-known --workers {workers} --seed {round_}")
        succeed(ooc, f"ingest jsonl - pipe --append --skip-known --seed {round_}", input=data)
    pipe = Dataset(days / "pipe")
    assert pipe.document_names() == Dataset(days / "one").document_names() == expected
    known = set(Dataset(days / "one").vocabulary())
    assert bags(pipe) == [Counter(word for word in words_of(name) if word in known) for name in expected]
    assert tree(days / "one") == tree(days / "two")


def test_each_kind_of_input_is_appended_once(days: Path, ooc: Ooc) -> None:
    texts = {f"{number}.txt": " ".join(words_of(f"doc{number}")) for number in range(6)}
    (days / "texts").mkdir()
    for name, text in texts.items():
        (days / "texts" / name).write_text(text + "\n")
    with tarfile.open(days / "texts.tar", "w") as archive:
        for name in texts:
            archive.add(days / "texts" / name, name)
    (days / "lines.txt").write_text("\n".join(texts.values()) + "\n")
    columns = {"name": list(texts), "text": list(texts.values())}
    with (days / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["name", "text"], *zip(*columns.values(), strict=True)])
    pyarrow.parquet.write_table(pyarrow.table(columns), days / "table.parquet")
    with sqlite3.connect(days / "table.db") as database:
        database.execute("CREATE TABLE texts (name, text)")
        database.executemany("INSERT INTO texts VALUES (?, ?)", zip(*columns.values(), strict=True))
    database.close()
    (days / "bags.txt").write_text("2\n3\n2\n1 1 2\n2 3 1\n")
    query = "SELECT-*-FROM-texts"
    for number, (command, complaint) in enumerate(
        {
            "text texts": "texts/0.txt: the dataset already has a document named '0.txt'",
            "text texts.tar": "the dataset already has a document named '0.txt'",
            "text --lines lines.txt": "lines.txt was ingested before",
            "csv table.csv": "table.csv was ingested before",
            "csv table.parquet --name-column name": "table.parquet was ingested before",
            f"csv table.db --name-column name --query {query}": "the dataset already has a document named '0.txt'",
            "uci bags.txt": "bags.txt was ingested before",
        }.items()
    ):
        words = ["ingest", *(word.replace("-", " ") if word == query else word for word in command.split())]
        assert ooc(*words, f"corpus{number}").returncode == 0
        before = tree(days / f"corpus{number}")
        again = ooc(*words, f"corpus{number}", "--append")
        assert (again.returncode, complaint in again.stderr) == (2, True), again.stderr
        skipped = ooc(*words, f"corpus{number}", "--append", "--skip-known")
        assert (skipped.returncode, "nothing was added" in skipped.stderr) == (0, True), skipped.stderr
        assert tree(days / f"corpus{number}") == before


def test_options_that_chose_the_vocabulary_may_be_given_again(days: Path, ooc: Ooc) -> None:
    """So that the first command and the later ones are one line of a script."""
    for command in ("ingest jsonl {} corpus --max-vocab 5 --min-df 2", "ingest jsonl {} other --vocab-from corpus"):
        for day in ("1.jsonl", "2.jsonl"):
            succeed(ooc, f"{command.format(day)} --append --skip-known")
    assert Dataset(days / "corpus").documents == Dataset(days / "other").documents == 32
    again = "and appending cannot change that"
    for option, was in {
        "--max-vocab 6": "with --max-vocab 5",
        "--min-df 3": "with --min-df 2",
        "--max-df 0.9": "without --max-df",
        "--vocab-from other": "without --vocab-from",
    }.items():
        complaint = f"ooc: {option}: corpus was ingested {was}, {again}"
        assert refused(ooc, f"ingest jsonl all.jsonl corpus --append {option}") == [
            complaint,
            f"Omit {option.split()[0]}.",
        ]
    assert "--append" in refused(ooc, "ingest jsonl 1.jsonl nowhere --skip-known")[1]
    assert (
        "--append and --overwrite are mutually exclusive: one adds to a dataset, the other replaces it"
        in refused(ooc, "ingest jsonl 1.jsonl corpus --append --overwrite")[0]
    )


def rows(place: Path, table: str) -> list[list[str]]:
    with (place / table).open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("named", [True, False])
def test_mixtures_of_a_batch_are_those_of_its_documents(days: Path, ooc: Ooc, *, named: bool) -> None:
    kind = "jsonl" if named else "text --lines"
    for day in ("1.jsonl", "2.jsonl", "all.jsonl"):
        (days / day).with_suffix(".txt").write_text(
            "".join(json.loads(line)["text"] + "\n" for line in (days / day).read_text().splitlines())
        )
    end = "jsonl" if named else "txt"
    succeed(ooc, f"ingest {kind} 1.{end} corpus")
    succeed(ooc, "train lda corpus run --topics 3 --iterations 4 --workers 1")
    assert rows_of_batch(days, ooc, "new") == []
    for day in ("2", "all"):
        succeed(ooc, f"ingest {kind} {day}.{end} corpus --append --skip-known --block-tokens 20")
    succeed(ooc, "infer run corpus whole.csv --workers 2")
    whole = rows(days, "whole.csv")[1:]
    ends = [0, 20, 32, 34] if named else [0, 20, 37, 59]
    assert len(whole) == ends[-1]
    for number in (1, 2, 3):
        assert rows_of_batch(days, ooc, f"{number}") == whole[ends[number - 1] : ends[number]]
        assert rows_of_batch(days, ooc, f"{number}-") == whole[ends[number - 1] :]
    assert rows_of_batch(days, ooc, "new") == whole[20:]
    assert f"batch 3     from {kind.split(maxsplit=1)[0]} all.{end} by ooc" in succeed(ooc, "info corpus").stdout
    assert refused(ooc, "infer run corpus none.csv --batch 4") == [
        "ooc: --batch 4: corpus has 3 batches",
        "List the batches with: ooc info corpus",
    ]
    assert refused(ooc, "infer run corpus none.csv --batch 0")[0] == "ooc: --batch 0: corpus has 3 batches"
    assert "--batch must be a number N" in refused(ooc, "infer run corpus none.csv --batch last")[0]


def rows_of_batch(days: Path, ooc: Ooc, batch: str) -> list[list[str]]:
    done = succeed(ooc, f"infer run corpus batch.csv --batch {batch} --overwrite --workers 1 --json")
    assert done.stderr == ""  # nor has a worker written where it may not
    found = rows(days, "batch.csv")[1:]
    facts = json.loads(done.stdout)
    assert (facts["documents"], facts["tokens"]) == (len(found), sum(int(row[1]) for row in found))
    return found


@pytest.mark.long
@pytest.mark.parametrize("suffix", long_but(["parquet", "csv"], ["npz", "jsonl", "parquet", "csv"]))
def test_mixtures_of_no_documents_are_a_table_without_rows(days: Path, ooc: Ooc, suffix: str) -> None:
    succeed(ooc, "ingest jsonl 1.jsonl corpus")
    succeed(ooc, "train lda corpus run --topics 3 --iterations 2 --workers 1")
    succeed(ooc, f"infer run corpus new.{suffix} --batch new")
    succeed(ooc, f"infer run corpus top.{suffix} --batch new --top 2")
    succeed(ooc, f"infer run corpus some.{suffix} --batch 1")
    if suffix == "csv":
        assert rows(days, "new.csv") == rows(days, "some.csv")[:1]
    if suffix == "parquet":
        new, some = (pyarrow.parquet.read_table(days / f"{name}.parquet") for name in ("new", "some"))
        assert (new.num_rows, some.num_rows, new.schema) == (0, 20, some.schema)


@pytest.fixture
def appended(days: Path, ooc: Ooc) -> Path:
    """A dataset of two batches, and a run on the first."""
    succeed(ooc, "ingest jsonl 1.jsonl corpus")
    succeed(ooc, "train lda corpus run --topics 2 --iterations 2 --workers 1")
    succeed(ooc, "ingest jsonl 2.jsonl corpus --append --skip-known")
    return days / "corpus"


def require_damage(ooc: Ooc, place: Path, batch: str, what: str) -> None:
    done = ooc(*f"infer run corpus out.csv --batch {batch} --workers 1".split())
    messages = [line for line in done.stderr.splitlines() if line.startswith("ooc: ")]
    assert (done.returncode, messages[0]) == (1, f"ooc: corpus is damaged: {what}")
    assert not (place / "out.csv").exists()


def lie(manifest: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest as a stranger would, with the checksum that is right then."""
    content = json.loads(manifest.read_text())
    del content["checksum"]
    change(content)
    write_json(manifest, content)


@pytest.mark.long
@pytest.mark.parametrize("documents", [11, 40])
def test_a_manifest_that_lies_about_its_batches_is_damage(appended: Path, ooc: Ooc, documents: int) -> None:
    lie(appended / "manifest.json", lambda content: content["made"]["appended"][0].update(documents=documents))
    require_damage(ooc, appended.parent, "2", "a batch does not end at the end of a block")


def test_an_earlier_generation_that_lies_about_its_documents_is_damage(appended: Path, ooc: Ooc) -> None:
    lie(appended / "manifest-0.json", lambda content: content.update(documents=11))
    require_damage(ooc, appended.parent, "new", "a batch does not end at the end of a block")


def test_a_block_with_documents_of_another_batch_is_damage(appended: Path, ooc: Ooc) -> None:
    """Their mixtures would be written where there is no row for them."""
    with h5py.File(appended / "blocks" / "00001.h5", "r+") as block:
        block["documents"][:] = np.arange(block["documents"].size)
    require_damage(ooc, appended.parent, "2", "a block has documents of another batch")
