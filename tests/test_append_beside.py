"""Appending to a dataset, cleaning and verifying it, while a run is trained on it, and after."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import Ooc, run_all
from corpora import tree
from text_files import write_texts

TRAIN = "train lda corpus {} --topics 3 --sampler two-phase --workers 1 --seed 5 --evaluate-every 50 --iterations"
APPEND = "ingest jsonl more.jsonl corpus --append"


@pytest.fixture
def place(tmp_path: Path, ooc: Ooc) -> Path:
    write_texts(tmp_path / "texts.jsonl", *(f"first{number}" for number in range(40)))
    write_texts(tmp_path / "more.jsonl", *(f"second{number}" for number in range(30)))
    assert ooc(*["ingest", "jsonl", "texts.jsonl", "corpus"]).returncode == 0
    return tmp_path


@contextmanager
def training(place: Path, run: str, iterations: int) -> Iterator[subprocess.Popen[str]]:
    """A training that has begun; it is waited for."""
    command = [sys.executable, "-m", "ooc", *TRAIN.format(run).split(), str(iterations), "--quiet"]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, env=environment, text=True) as process:
        while not (place / run / "metrics.jsonl").exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        yield process
        message = process.communicate()[1]
        assert process.returncode == 0, message


def names(ooc: Ooc, run: str) -> set[str]:
    found = json.loads(ooc("topics", run, "--documents", 99, "--json").stdout)
    return {document["name"] for topic in found for document in topic["documents"]}


@pytest.mark.long
def test_a_training_and_what_goes_on_from_it_have_the_generation_that_it_began_with(place: Path, ooc: Ooc) -> None:
    assert ooc(*TRAIN.format("alone").split(), 600).returncode == 0
    with training(place, "beside", 600):
        done = ooc(*APPEND.split())
        assert done.returncode == 0, done.stderr
        done = ooc("verify", "beside")
        assert done.returncode == 0, done.stderr
        assert "beside is being trained; verifying its last saved state" in done.stderr
        run_all(ooc, ("verify corpus", "clean corpus", "info corpus"))
    assert tree(place / "beside" / "model") == tree(place / "alone" / "model")
    assert ooc("verify", "beside").returncode == 0
    assert ooc("resume", "beside", "--iterations", 610).returncode == 0
    assert {name[:5] for name in names(ooc, "beside")} == {"first"}
    assert ooc(*TRAIN.format("new").split(), 5).returncode == 0
    assert {name[:5] for name in names(ooc, "new")} == {"first", "secon"}


@pytest.mark.long
def test_a_generation_is_deleted_once_no_run_needs_it(place: Path, ooc: Ooc) -> None:
    """A run that was moved needs it still, for all that an append can tell; one that is replaced does not."""
    corpus = place / "corpus"
    assert ooc(*TRAIN.format("run").split(), 5).returncode == 0
    assert ooc(*APPEND.split()).returncode == 0
    assert (corpus / "manifest-0.json").exists() and (corpus / "documents.txt").exists()
    (place / "run").rename(place / "moved")
    write_texts(place / "more.jsonl", *(f"third{number}" for number in range(9)))
    assert ooc(*APPEND.split()).returncode == 0
    done = ooc("resume", "moved", "--iterations", 6)
    assert done.returncode == 0, done.stderr
    assert ooc("clean", "corpus").returncode == 0
    assert (corpus / "manifest-0.json").exists()
    assert not (corpus / "documents-1.txt").exists()
    assert ooc(*TRAIN.format("moved").split(), 5, "--overwrite").returncode == 0
    assert ooc("clean", "corpus").returncode == 0
    assert not (corpus / "manifest-0.json").exists() and not (corpus / "documents.txt").exists()
    assert ooc("verify", "corpus").returncode == 0
    assert ooc("resume", "moved", "--iterations", 6).returncode == 0


def test_a_run_that_goes_on_is_known_to_its_dataset_again(place: Path, ooc: Ooc) -> None:
    assert ooc(*TRAIN.format("run").split(), 5).returncode == 0
    known = tree(place / "corpus" / "runs")
    for file in (place / "corpus" / "runs").iterdir():
        file.unlink()
    assert ooc("resume", "run", "--iterations", 6).returncode == 0
    assert tree(place / "corpus" / "runs") == known
    assert ooc(*APPEND.split()).returncode == 0
    assert ooc("resume", "run", "--iterations", 7).returncode == 0


def test_a_generation_without_a_run_is_not_kept(place: Path, ooc: Ooc) -> None:
    assert ooc(*APPEND.split()).returncode == 0
    assert sorted(path.name for path in (place / "corpus").iterdir()) == [
        "blocks",
        "documents-1.txt",
        "index-1.h5",
        "manifest.json",
        "slices-1",
        "vocabulary.txt",
    ]


def test_a_generation_whose_manifest_is_damaged_is_not_deleted(place: Path, ooc: Ooc) -> None:
    assert ooc(*TRAIN.format("run").split(), 5).returncode == 0
    assert ooc(*APPEND.split()).returncode == 0
    kept = place / "corpus" / "manifest-0.json"
    kept.write_bytes(kept.read_bytes()[:-9])
    before = tree(place / "corpus")
    for command in ("verify corpus", "clean corpus", APPEND):
        done = ooc(*command.split())
        assert done.returncode == 1
        assert "manifest-0.json is damaged" in done.stderr
    assert tree(place / "corpus") == before
