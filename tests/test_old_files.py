"""What earlier versions wrote still opens, and trainings that they began go on; see make_old_files.py."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc
from make_old_files import PLACE, TOLD

from ooc.runs.run import Run

ARCHIVES = sorted((Path(__file__).parent / "old_files").glob("*.tar.xz"))
DATASETS = ("corpus", "ratings", "design", "shards")
ITERATIONS = {"lda": 20, "two-phase": 4, "lightlda": 4, "sgd": 2, "ccd": 2, "als": 2, "implicit": 2}


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one archive; where it is now stands in the configurations."""
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(request.param) as archive:
        archive.extractall(place, filter="data")
    for config in place.glob("*/config.json"):
        config.write_text(config.read_text().replace(PLACE, str(place)))
    return place


def only_if(there: Path) -> None:
    """Skip a test of what a version did not have yet."""
    if not there.exists():
        pytest.skip(f"that version made no {there.name}")


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
    """But for the rounding of numbers; objects may have more fields than they had."""
    only_if(unpacked / name)
    told, before = (json.loads(text) for text in (old(*TOLD[name].split()), (unpacked / name).read_text()))
    assert as_before(told, before) == approximately(before)


def as_before(told: Any, before: Any) -> Any:
    """What is told without the fields that were not there before."""
    if isinstance(before, dict):
        return {name: as_before(told[name], below) for name, below in before.items()}
    if isinstance(before, list):
        return [as_before(*pair) for pair in zip(told, before, strict=True)]
    return told


def approximately(content: Any) -> Any:
    """To compare with, but for the rounding of numbers."""
    if isinstance(content, dict):
        return {name: approximately(below) for name, below in content.items()}
    if isinstance(content, list):
        return [approximately(below) for below in content]
    return pytest.approx(content, rel=1e-5, abs=1e-6) if isinstance(content, float) else content


def test_programs_are_remembered_by_names_that_stay(unpacked: Path) -> None:
    """Not by the modules that they were in."""
    programs = [json.loads(path.read_text())["program"] for path in unpacked.glob("*/config.json")]
    assert len(programs) >= len(ITERATIONS)
    assert all(name.startswith("samplers.programs:") for name in programs)


@pytest.mark.long
@pytest.mark.parametrize("path", [*DATASETS, *ITERATIONS, "lasso", "logistic"])
def test_all_files_are_as_they_were_written(path: str, unpacked: Path, old: Callable[..., str]) -> None:
    only_if(unpacked / path)
    assert "no damage found" in old("verify", path)


FAST = ("lda", "ccd")


@pytest.mark.parametrize("run", [pytest.param(run, marks=[pytest.mark.long] * (run not in FAST)) for run in ITERATIONS])
def test_a_training_goes_on(run: str, unpacked: Path, old: Callable[..., str]) -> None:
    """For four iterations more than it had, from the state that was left: what the metrics said before stays."""
    only_if(unpacked / run)
    shutil.copytree(unpacked / run, unpacked / f"{run}-goes-on")
    before = Run(unpacked / run).metrics()
    planned = ITERATIONS[run] + 4
    last = json.loads(old("resume", f"{run}-goes-on", "--iterations", planned, "--workers", 1, "--json"))
    assert last["iteration"] == planned
    assert Run(unpacked / f"{run}-goes-on").metrics()[: len(before)] == before
    assert old("export", f"{run}-goes-on", f"{run}.npz")
    with np.load(unpacked / f"{run}.npz") as arrays:
        assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")


@pytest.mark.long
@pytest.mark.parametrize("run", ["stopped", "stopped-path"])
def test_a_training_that_was_stopped_goes_on(run: str, unpacked: Path, old: Callable[..., str]) -> None:
    only_if(unpacked / run)
    iterations = json.loads(old("info", run, "--json"))["iterations"]
    assert iterations["done"] < iterations["planned"]
    more = ("--iterations", iterations["done"] + 2) if run == "stopped" else ()
    last = json.loads(old("resume", run, *more, "--workers", 1, "--json"))
    assert last["iteration"] == (iterations["done"] + 2 if more else iterations["planned"])


@pytest.mark.long
def test_old_topics_are_those_of_new_documents(unpacked: Path, old: Callable[..., str]) -> None:
    """A dataset of today has the vocabulary of an old one."""
    old("ingest", "jsonl", "texts.jsonl", "again", "--vocab-from", "corpus", "--workers", 1)
    old("infer", "lda", "again", "mixtures.jsonl", "--top", 1, "--workers", 1)
    rows = [json.loads(line) for line in (unpacked / "mixtures.jsonl").read_text().splitlines()]
    of_theme = [{row["topics"][0] for row in rows[theme::3]} for theme in range(3)]
    assert [len(topics) for topics in of_theme] == [1, 1, 1]


@pytest.mark.long
def test_old_factors_and_coefficients_predict(unpacked: Path, old: Callable[..., str]) -> None:
    assert json.loads(old("evaluate", "ccd", "ratings", "--json"))["rmse"] < 1
    only_if(unpacked / "predicted.csv")
    old("predict", "lasso", "design", "again.csv")
    now, before = (np.loadtxt(unpacked / name, delimiter=",", skiprows=1) for name in ("again.csv", "predicted.csv"))
    assert np.allclose(now, before)
