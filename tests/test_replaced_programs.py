"""A run that a user's program replaces with --overwrite is back, unchanged, if the program turns out to be invalid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocks import Matrix
from blocks.errors import Interrupted, OocError
from ooc import ProgramRun, fit

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
        callback=lambda line: seen.append((run / "replaced").exists()),
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
    assert (run / "replaced").exists()
    with pytest.raises(OocError, match=re.escape("in initialize")):
        fit(target("means_wrong", "pass  # initialize", "1 / 0"), matrix, run, quiet=True, workers=1, overwrite=True)
    assert not (run / "replaced").exists()
    np.testing.assert_array_equal(earlier.more(1, quiet=True)["users"], 3 * 3.5)
