"""Documents that repeat earlier ones are left out, against a comparison of all pairs."""

from __future__ import annotations

import csv
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ooc

from blocks import Dataset, RequestError
from blocks.corpus.duplicate_search import values_of_band
from blocks.corpus.duplicates import parse_similarity

LETTERS = "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau"


def texts_of() -> list[str]:
    """80 texts of 60 words, then copies with other capitals and marks, copies with changed words, and empty texts."""
    draw = random.Random(5)
    texts = [" ".join(draw.choices(LETTERS.split(), k=60)) for _ in range(80)]
    exact = [text.upper().replace(" ", ", ", 5) for text in texts[:10]]
    near = []
    for changed in (1, 1, 1, 1, 20, 30, 40):
        words = draw.choice(texts[10:]).split()
        for place in draw.sample(range(60), changed):
            words[place] = "changed"
        near.append(" ".join(words))
    return [*texts, *exact, *near, "", "", "tau pi", "tau pi", "pi tau"]


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.lower().replace(",", "").split()
    return {tuple(words[place : place + 3]) for place in range(max(len(words) - 2, 1))} if words else set()


def expected(texts: list[str], similarity: float) -> dict[int, int]:
    """The first document of the cluster of each document that is left out, by exact Jaccard similarity."""
    found: dict[int, int] = {}
    for later, text in enumerate(texts):
        for earlier in range(later):
            first, second = shingles(texts[earlier]), shingles(text)
            if first and len(first & second) / len(first | second) >= similarity:
                found[later] = found.get(earlier, earlier)
                break
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("duplicates")
    lines = [{"id": f"d{number}", "text": text, "n": number} for number, text in enumerate(texts_of())]
    (directory / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def listed(path: Path) -> dict[int, int]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["name"] == f"d{int(row['document']) - 1}" for row in rows)
    return {int(row["document"]) - 1: int(row["kept_document"]) - 1 for row in rows}


def test_duplicates_are_left_out_and_listed(place: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Exact ones have the same words in the same order, whatever the capitals and marks; near ones by similarity."""
    ooc, texts = ooc_in(place), texts_of()
    for name, choice, similarity in (("exact", "exact", 1.0), ("near", "80%", 0.8)):
        done = ooc("ingest", "jsonl", "in.jsonl", name, "--keep", "n", "--deduplicate", choice, "--workers", 1)
        assert done.returncode == 0, done.stderr
        found = listed(place / f"{name}-duplicates.csv")
        wanted = expected(texts, similarity)
        assert found == wanted
        exact, near = 11, len(wanted) - 11
        counted = f"{exact} exact" + (f" and {near} near" if near else "")
        assert f"left out {counted} duplicates, which {name}-duplicates.csv lists\n" in done.stderr
        kept = [number for number in range(len(texts)) if number not in wanted]
        table = Dataset(place / name).table()
        assert table is not None
        assert table.take(range(table.rows), ["n"])["n"] == kept


def test_neither_workers_nor_a_split_change_what_is_left_out(place: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Of a split, duplicates are left out before it, so that none of them is in both datasets."""
    ooc = ooc_in(place)
    for name, more in (("one", ["--workers", 1]), ("two", ["--workers", 2]), ("split", ["--hold-out", "30%"])):
        done = ooc("ingest", "jsonl", "in.jsonl", name, "--deduplicate", "0.8", *more)
        assert done.returncode == 0, done.stderr
    assert Dataset(place / "one").identity == Dataset(place / "two").identity
    lists = [(place / f"{name}-duplicates.csv").read_bytes() for name in ("one", "two", "split")]
    assert lists[0] == lists[1] == lists[2]
    both = Dataset(place / "split").documents + Dataset(place / "split-held-out").documents
    assert both == Dataset(place / "one").documents
    again = ooc("ingest", "jsonl", "in.jsonl", "three", "--deduplicate", "0.8", stdin=subprocess.DEVNULL)
    assert again.returncode == 0
    told = ooc("info", "three").stdout
    assert "11 documents left out, with the same tokens as an earlier one" in told


def test_no_dataset_lacks_its_list(place: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """The list appears before the dataset, and the list that a crash between them left is replaced."""
    ooc = ooc_in(place)
    for more in ([], ["--hold-out", "30%"]):
        out, listing = place / "crashed", place / "crashed-duplicates.csv"
        command = ("ingest", "jsonl", "in.jsonl", "crashed", "--deduplicate", "exact", "--workers", 1, *more)
        assert ooc(*command).returncode == 0
        assert listing.stat().st_ctime_ns <= out.stat().st_ctime_ns
        written = listing.read_bytes()
        shutil.rmtree(out)
        done = ooc(*command)
        assert done.returncode == 0, done.stderr
        assert listing.read_bytes() == written
        assert ooc(*command).returncode == 2
        shutil.rmtree(out)
        shutil.rmtree(place / "crashed-held-out", ignore_errors=True)


def test_what_cannot_be_compared_is_refused(place: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    ooc = ooc_in(place)
    for arguments, said in (
        (["-", "out"], "--deduplicate reads the inputs twice, and - can be read only once"),
        (["in.jsonl", "out", "--append"], "--deduplicate and --append are mutually exclusive"),
    ):
        done = ooc("ingest", "jsonl", *arguments, "--deduplicate", "exact")
        assert done.returncode == 2
        assert said in done.stderr
    (place / "taken-duplicates.csv").write_text("")
    done = ooc("ingest", "jsonl", "in.jsonl", "taken", "--deduplicate", "exact")
    assert (done.returncode, "taken-duplicates.csv" in done.stderr) == (2, True)
    for wrong in ("100%", "0.2", "close"):
        with pytest.raises(RequestError, match="--deduplicate must be exact or a similarity from 50% to below 100%"):
            parse_similarity(wrong)
    assert [values_of_band(similarity) for similarity in (0.5, 0.8, 0.95)] == [2, 4, 8]
