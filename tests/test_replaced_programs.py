"""A run that a user's program replaces with --overwrite is back, unchanged, if the program turns out to be invalid."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocks import Matrix
from blocks.errors import Interrupted, OocError
from ooc import ProgramRun, fit

SCRIPT = Path(__file__).with_name("killed_replacements.py")
PROGRAM = """
from ooc import Field, Phase, StaticProgram


class Means(StaticProgram):
    users = Field("row")

    phases = (Phase("users", "block", writes=False),)

    def initialize(self, shared):
        pass  # initialize

    def update(self, job):
        offsets, others, values = job.entries()
        for row in range(offsets.size - 1):
            job.own("users")[row] += values[offsets[row] : offsets[row + 1]].mean()
        return 0.0  # update

    def aggregate(self, phase, shared, deltas, answers):
        return {"zero": sum(answers)}
"""


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    users, items = np.divmod(np.arange(60), 6)
    with Matrix.create(tmp_path / "matrix") as written:
        written.add(users, items, 1.0 + items)
    return tmp_path / "matrix"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that writes the program with a line replaced to a new module, and returns its target."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def written(name: str, old: str = "", new: str = "") -> str:
        assert old in PROGRAM
        name = f"{name}_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text(PROGRAM.replace(old, new))
        return f"{name}:Means"

    return written


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(
    ("old", "new", "says", "scratch"),
    [
        ("pass  # initialize", "shared['none']", ".py, line 11, in initialize: .* raises KeyError: 'none'", True),
        ("return 0.0  # update", "return 1 / 0", ".py, line 17, in update: .* raises ZeroDivisionError", False),
    ],
)
def test_the_earlier_run_is_back(matrix: Path, target: Any, tmp_path: Path, old, new, says, scratch: bool) -> None:
    run, resources = tmp_path / "run", {"quiet": True, "workers": 1, "scratch": tmp_path / "disk" if scratch else None}
    first = target("means_before")
    fit(first, matrix, run, iterations=2, **resources)
    places = [path for path in (run, tmp_path / "disk") if path.exists()]
    before = [contents(path) for path in places]
    with pytest.raises(OocError, match=says) as failed:
        fit(target("wrong", old, new), matrix, run, iterations=3, overwrite=True, **resources)
    assert failed.value.remedy == f"The run that was in {run} before is back."
    differing = [
        {name for name in a | b if a.get(name) != b.get(name)}
        for a, b in zip(before, map(contents, places), strict=True)
    ]
    assert all(names <= {"lock"} for names in differing)
    assert not [path for path in tmp_path.iterdir() if ".partial-" in path.name]
    earlier = ProgramRun(run, first)
    np.testing.assert_array_equal(earlier.more(1, quiet=True)["users"], np.full(10, 3 * 3.5))


def test_a_run_is_replaced_once_a_step_is_done(matrix: Path, target: Any, tmp_path: Path) -> None:
    run, disk = tmp_path / "run", tmp_path / "disk"
    fit(target("means_before"), matrix, run, iterations=2, quiet=True, workers=1, scratch=disk)
    seen: list[bool] = []
    replaced = fit(
        target("means_after", "+= values", "-= values"),
        matrix,
        run,
        iterations=3,
        quiet=True,
        workers=1,
        overwrite=True,
        callback=lambda line: seen.append((tmp_path / ".run.replaced").exists()),
    )
    assert seen == [True, False, False]
    assert not list(disk.iterdir())
    np.testing.assert_array_equal(replaced["users"], np.full(10, -3 * 3.5))


def test_a_run_that_never_began_gives_the_earlier_one_back(matrix: Path, target: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    earlier = fit(target("means_before"), matrix, run, iterations=2, quiet=True, workers=1)
    with pytest.raises(Interrupted):  # before its first step
        stops = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
        fit(target("means_stopped", "pass  # initialize", stops), matrix, run, quiet=True, workers=1, overwrite=True)
    assert (tmp_path / ".run.replaced").exists()
    with pytest.raises(OocError, match=re.escape("in initialize")):
        fit(target("means_wrong", "pass  # initialize", "1 / 0"), matrix, run, quiet=True, workers=1, overwrite=True)
    assert not (tmp_path / ".run.replaced").exists()
    np.testing.assert_array_equal(earlier.more(1, quiet=True)["users"], 3 * 3.5)


@pytest.fixture
def kills(preloaded: Callable[[str], Path], matrix: Path, target: Any, tmp_path: Path) -> Callable[[int], dict]:
    """Return a function that runs `killed_replacements.py` with a step, and returns the object that it prints."""
    place = tmp_path / "place"  # is moved, as runs record where they are
    place.mkdir()
    for name, *change in (("earlier", "", ""), ("valid", "+= values", "-= values"), ("invalid", "return 0.0", "1 / 0")):
        (tmp_path / f"{name}.py").write_text(PROGRAM.replace(*change) if change[0] else PROGRAM)
    matrix.rename(place / "matrix")
    resources = {"iterations": 2, "quiet": True, "workers": 1, "scratch": place / "disk"}
    fit("earlier:Means", place / "matrix", place / "run", **resources)
    place.rename(tmp_path / "before")
    environment = {**os.environ, "LD_PRELOAD": str(preloaded("failing_disk")), "PYTHONPATH": ":".join(sys.path)}

    def run(step: int) -> dict:
        command = [sys.executable, str(SCRIPT), str(tmp_path), str(step)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        print(done.stderr)
        return json.loads(done.stdout)

    return run


def test_a_program_that_is_killed_while_it_replaces_a_run_loses_nothing(kills: Callable[[int], dict]) -> None:
    found = kills(41)
    assert all(calls > 60 for calls in found["calls"].values())
    assert found["lost"] == []


@pytest.mark.long
def test_a_program_that_is_killed_at_any_call_loses_nothing(kills: Callable[[int], dict]) -> None:
    assert kills(1)["lost"] == []


def test_a_program_that_fails_later_keeps_its_run(matrix: Path, target: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(target("means_before"), matrix, run, iterations=2, quiet=True, workers=1)
    later = target("means_later", "+= values", "-= (1 // int(job.own('users')[0] > -7)) * values")
    with pytest.raises(OocError, match=r"line 16, in update: .* raises ZeroDivisionError") as failed:
        fit(later, matrix, run, iterations=4, quiet=True, workers=1, overwrite=True)
    assert "Continue with: ooc resume" in failed.value.remedy
    assert not (tmp_path / ".run.replaced").exists()
    (tmp_path / f"{later.partition(':')[0]}.py").write_text(PROGRAM.replace("+= values", "-= values"))
    resumed = ProgramRun(run, later).resume(quiet=True)
    np.testing.assert_array_equal(resumed["users"], np.full(10, -4 * 3.5))
