"""Mistakes in dynamic programs are told before anything is done, or by their line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ooc
from dynamic_programs import made  # noqa: F401  (a fixture)

from blocks import RequestError
from blocks.errors import ModelDiverged, OocError
from ooc import fit

PROGRAM = """from ooc import DynamicProgram, Field


class Least(DynamicProgram):
    penalty: float = 1.0

    b = Field("column")
    residual = Field("row")

    sums = 2

    def initialize(self, shared):
        shared["residual"][:] = -self.dataset.y

    @staticmethod
    def update(x, row, sums, shared):
        sums[0] += x * row.residual
        sums[1] += x * x

    @staticmethod
    def aggregate(sums, column, shared):
        return column.b - sums[0] / sums[1]

    def objective(self, shared):
        return float(shared["residual"] @ shared["residual"])
"""
REFUSED = {
    "no update": ("def update", "def up", "line 4: Least has no `update`"),
    "no column": ('b = Field("column")', "c = 1", "line 4: Least declares no field per column"),
    "no row": ('residual = Field("row")', "c = 1", "line 4: Least declares no field per row"),
    "a taken name": ("b = Field", "rule = Field", "the field 'rule' of Least has a name that the base class"),
    "integers": ('Field("column")', 'Field("column", dtype="int64")', "the field 'b' of Least has dtype int64"),
    "a shape": ('Field("row")', 'Field("row", 3)', "the field 'residual' of Least has the shape (3,); expected ()"),
    "derived": (
        'Field("row")',
        'Field("row")\n    p = Field("row", derived=True)',
        "has no `derive` for the field 'p'",
    ),
    "no derived": ("sums = 2", "derive = staticmethod(lambda row, shared: 0)", "Least has no derived field per row"),
    "a gap": ("def objective", "def gap", "line 4: Least has a `gap` but no `objective`"),
    "a group": ("sums = 2", "group = 7", "has 20 columns, which is not a multiple of group=7"),
    "sums": ("sums = 2", "sums = 0", "line 4: sums=0; expected 1 to 256"),
    "parameters": (
        "x, row, sums, shared",
        "x, row, sums",
        "line 16: update has the parameters x, row, sums; expected x, row, sums, sh",
    ),
    "a name": ("row.residual", "row.y", "line 17: there is no row.y"),
    "an assignment": ("sums[1] += x * x", "row.residual = x", "line 18: row.residual must not be assigned to"),
    "no return": ("return column.b -", "column.b -", "line 21: aggregate must return a value"),
    "an option": ("penalty: float = 1.0", "penalty: float", "the program Least needs the option 'penalty'"),
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that writes the program with a text replaced to a new module, and returns its target."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def written(old: str, new: str) -> str:
        assert old in PROGRAM
        name = f"least_{abs(hash((old, new)))}"
        (tmp_path / f"{name}.py").write_text(PROGRAM.replace(old, new))
        return f"{name}:Least"

    return written


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_cannot_be_is_told_before_anything_is_done(made: Path, program: Any, mistake: str, tmp_path: Path) -> None:  # noqa: F811
    old, new, says = REFUSED[mistake]
    with pytest.raises(RequestError, match=re.escape(says)):
        fit(program(old, new), made / "small", tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"parallelism": "many"}, "the option 'parallelism' of the program Least is 'many'"),
        ({"parallelism": 0}, "parallelism must be at least 1, got 0"),
        ({"schedule": "greedy"}, "schedule: unknown schedule 'greedy'"),
        ({"tolerance": 0}, "tolerance must be above 0, got 0"),
        ({"rate": 1}, "the program Least has no option 'rate'\nIts options are: penalty, schedule, parallelism, rho,"),
    ],
)
def test_options_that_cannot_be_are_told(made: Path, program: Any, tmp_path: Path, options: dict, says: str) -> None:  # noqa: F811
    with pytest.raises(RequestError, match=re.escape(says)):
        fit(program("sums = 2", "sums = 2"), made / "small", tmp_path / "run", options=options, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("x * row.residual", "x * gone", "line 17: `sums[0] += x * gone` cannot be compiled: NameError: name 'gone'"),
        ("sums[0] / sums[1]", "sums.mode()", "line 22: `return column.b - sums.mode()` cannot be compiled"),
        ('float(shared["residual"]', 'float(shared["none"]', "line 25, in objective: `return float(shared"),
        ("column.b - sums", "column.b + 9 * sums", "iteration 1: Least diverges: the objective is"),
    ],
)
def test_what_goes_wrong_in_a_run_is_told(made: Path, program: Any, tmp_path: Path, old, new, says) -> None:  # noqa: F811
    with pytest.raises(OocError, match=re.escape(says)) as failed:
        fit(program(old, new), made / "small", tmp_path / "run", workers=1, iterations=3, quiet=True)
    if isinstance(failed.value, ModelDiverged):
        assert "Reduce parallelism or rho" in failed.value.remedy
    assert (tmp_path / "run").exists() != isinstance(failed.value, RequestError)  # a corrected program can be run again


@pytest.mark.long
def test_the_dataset_has_to_be_a_whole_design(made: Path, program: Any, tmp_path: Path, ooc: Ooc) -> None:  # noqa: F811
    target = program("sums = 2", "sums = 2")
    assert ooc("shard", made / "small", tmp_path / "shard-{rank}", "--shards", "2").returncode == 0
    with pytest.raises(RequestError, match="shard-0 is a shard, and Least does not train on shards"):
        fit(target, tmp_path / "shard-0", tmp_path / "run", quiet=True)
    (tmp_path / "ratings.tsv").write_text("".join(f"{row}\t{row % 3}\t1\n" for row in range(9)))
    assert ooc("ingest", "ratings", tmp_path / "ratings.tsv", tmp_path / "ratings").returncode == 0
    with pytest.raises(RequestError, match="expected a design matrix"):
        fit(target, tmp_path / "ratings", tmp_path / "run", quiet=True)
