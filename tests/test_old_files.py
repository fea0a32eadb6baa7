"""What earlier versions wrote still opens, and trainings that they began go on; see make_old_files.py."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_old_files import PLACE, TOLD

Ooc = Callable[..., subprocess.CompletedProcess[str]]
ARCHIVES = sorted((Path(__file__).parent / "old_files").glob("*.tar.xz"))
DATASETS = ("corpus", "ratings", "design", "shards")
RUNS = {"lda": 20, "two-phase": 4, "lightlda": 4, "sgd": 2, "ccd": 2, "als": 2, "implicit": 2}


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one archive; where it is now stands in the configurations."""
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(request.param) as archive:
        archive.extractall(place, filter="data")
    for config in place.glob("*/config.json"):
        config.write_text(config.read_text().replace(PLACE, str(place)))
    return place


@pytest.fixture
def old(unpacked: Path, ooc_in: Callable[[Path], Ooc]) -> Callable[..., str]:
    """A command that has to succeed; returns what it printed."""

    def run(*arguments: object) -> str:
        done = ooc_in(unpacked)(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("name", TOLD)
def test_commands_tell_what_they_told(name: str, unpacked: Path, old: Callable[..., str]) -> None:
    """Numbers may differ in the last digits; `info` may tell more than it did."""
    told, before = old(*TOLD[name].split()), (unpacked / name).read_text()
    if not name.endswith(".json"):
        assert told == before
    elif "info" in TOLD[name]:
        assert json.loads(told).items() >= json.loads(before).items()
    else:
        assert json.loads(told) == approximately(json.loads(before))


def approximately(content: Any) -> Any:
    """JSON to compare with, but for the rounding of its numbers."""
    if isinstance(content, dict):
        return {name: approximately(below) for name, below in content.items()}
    if isinstance(content, list):
        return [approximately(below) for below in content]
    return pytest.approx(content) if isinstance(content, float) else content


@pytest.mark.long
def test_all_files_are_as_they_were_written(old: Callable[..., str]) -> None:
    for path in (*DATASETS, *RUNS):
        assert "all as they were written" in old("verify", path)


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[] if run in ("lda", "ccd") else pytest.mark.long) for run in RUNS]
)
def test_a_training_goes_on(run: str, unpacked: Path, old: Callable[..., str], ooc_in: Callable[[Path], Ooc]) -> None:
    """For four iterations more than it had, from the state that was left: the lines of the metrics before stay."""
    shutil.copytree(unpacked / run, unpacked / f"{run}-goes-on")
    before = (unpacked / run / "metrics.jsonl").read_text()
    planned = RUNS[run] + 4
    last = json.loads(old("resume", f"{run}-goes-on", "--iterations", planned, "--workers", 1, "--json"))
    assert last["iteration"] == planned
    assert (unpacked / f"{run}-goes-on" / "metrics.jsonl").read_text().startswith(before)
    assert old("export", f"{run}-goes-on", f"{run}.npz")
    with np.load(unpacked / f"{run}.npz") as arrays:
        assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")


@pytest.mark.long
def test_a_training_that_was_stopped_goes_on(unpacked: Path, old: Callable[..., str]) -> None:
    facts = json.loads(old("info", "stopped", "--json"))
    done = facts["iterations"]["done"]
    assert done < facts["iterations"]["planned"]
    last = json.loads(old("resume", "stopped", "--iterations", done + 2, "--workers", 1, "--json"))
    assert last["iteration"] == done + 2


@pytest.mark.long
def test_old_models_serve_new_documents(unpacked: Path, old: Callable[..., str]) -> None:
    """A dataset of today has the vocabulary of an old one, and the old model tells its topics; as well its errors."""
    old("ingest", "jsonl", "texts.jsonl", "again", "--vocab-from", "corpus", "--workers", 1)
    old("infer", "lda", "again", "mixtures.jsonl", "--top", 1, "--workers", 1)
    rows = [json.loads(line) for line in (unpacked / "mixtures.jsonl").read_text().splitlines()]
    of_theme = [{row["topics"][0] for row in rows[theme::3]} for theme in range(3)]
    assert [len(topics) for topics in of_theme] == [1, 1, 1]
    assert json.loads(old("evaluate", "ccd", "ratings", "--json"))["rmse"] < 1
