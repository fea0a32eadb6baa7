"""Datasets, runs and models that were changed or damaged: every command that reads them names the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import xxhash
from commands import Ooc, assert_refused
from corpora import model_bytes, tree
from themed_corpus import ingest_themes, train


@pytest.fixture
def corpus(tmp_path: Path, ooc: Ooc) -> Path:
    return ingest_themes(ooc, tmp_path)


def test_a_changed_dataset_is_refused(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """Once it is made again, the run belongs to another dataset. What is appended leaves the run what it began with."""
    assert train(ooc).returncode == 0
    assert ooc("ingest", "jsonl", "texts.jsonl", "corpus", "--overwrite", "--seed", 2).returncode == 0
    done = ooc("resume", "run", "--iterations", 40)
    assert done.returncode == 2
    assert "it was recreated or appended to" in done.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", ["a bit", "the block of another dataset"])
def test_a_wrong_block_is_named_before_anything_is_written(corpus: Path, tmp_path: Path, ooc: Ooc, wrong: str) -> None:
    block = corpus / "blocks" / "00000.h5"
    content = bytearray(block.read_bytes())
    if wrong == "a bit":
        content[len(content) // 2] ^= 1
    else:  # of the same documents in another order: as many bytes
        assert ooc("ingest", "jsonl", "texts.jsonl", "other", "--seed", 2).returncode == 0
        other = (tmp_path / "other" / "blocks" / "00000.h5").read_bytes()
        assert len(other) == len(content)
        content[:] = other
    block.write_bytes(content)
    done = train(ooc)
    assert done.returncode == 1
    assert "00000.h5" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("file", ["corpus/manifest.json", "run/config.json", "run/state/manifest.json"])
def test_what_a_newer_version_wrote_is_refused_and_left_alone(
    corpus: Path, tmp_path: Path, ooc: Ooc, file: str
) -> None:
    assert train(ooc).returncode == 0
    content = json.loads((tmp_path / file).read_text())
    checksum = content.pop("checksum", None)  # of the rest, as the newer version would have it
    content["schema"] = 2
    if checksum:
        content["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
    (tmp_path / file).write_text(json.dumps(content))
    before = tree(tmp_path)
    assert_refused(
        ooc("resume", "run", "--iterations", 40), f"{file} has schema version 2; this version of ooc reads 1"
    )
    assert tree(tmp_path) == before


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("file", "before", "after", "command"),
    [
        ("run/config.json", '"seed": 0', '"seed": 1', "resume run --iterations 40"),
        ("run/model/model.json", '"beta": 0.05', '"beta": 0.06', "topics run"),
        ("corpus/manifest.json", '"tokens": 4500', '"tokens": 4501', "resume run --iterations 40"),
    ],
)
def test_a_changed_number_in_a_json_file_is_found(
    corpus: Path, tmp_path: Path, ooc: Ooc, file: str, before: str, after: str, command: str
) -> None:
    """By `verify`, and by a command that would go on with the other number."""
    assert train(ooc).returncode == 0
    text = (tmp_path / file).read_text()
    assert before in text
    (tmp_path / file).write_text(text.replace(before, after, 1))
    for reader in (f"verify {file.partition('/')[0]}", command):
        done = ooc(*reader.split())
        assert done.returncode == 1, reader
        assert f"{file} is damaged: its checksum does not match" in done.stderr


@pytest.mark.long
def test_a_lost_manifest_of_the_state_costs_nothing(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """`verify` tells and leaves every file alone; `resume` goes on from what the generations say of themselves."""
    assert train(ooc).returncode == 0
    assert ooc("resume", "run", "--iterations", 40).returncode == 0
    expected = model_bytes(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    assert train(ooc).returncode == 0
    (tmp_path / "run" / "state" / "manifest.json").unlink()
    before = tree(tmp_path)
    told = ooc("verify", "run")
    assert told.returncode == 1
    assert "it has no manifest.json" in told.stderr
    assert tree(tmp_path) == before
    assert ooc("resume", "run", "--iterations", 40).returncode == 0
    assert model_bytes(tmp_path / "run") == expected
    assert ooc("verify", "run").returncode == 0


def test_damaged_state_and_model_are_found_by_verify(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    assert train(ooc).returncode == 0
    for pattern in ("model/words.h5", "state/*.cells"):
        file = max((tmp_path / "run").glob(pattern))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        done = ooc("verify", "run")
        assert done.returncode == 1
        assert file.name in done.stderr
