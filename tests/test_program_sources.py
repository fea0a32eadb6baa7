"""Programs that use other files: compiled code and runs depend on these files as well."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc, assert_refused
from long_mark import long_but
from rings import mpiexec

from blocks import Design, Matrix, RequestError
from ooc import ProgramRun
from ooc.program_sources import dependencies, module_files, source_checksum
from ooc.workers.worker import ProgramSpec

RATINGS = np.arange(1.0, 13.0).reshape(4, 3)
STATIC = """import numba
from parts.scale import scaled
from ooc import Field, Phase, StaticProgram


@numba.njit(cache=True)
def add(offsets, columns, values, found):
    for row in range(found.size):
        found[row] = scaled(values[offsets[row] : offsets[row + 1]].sum())


class Program(StaticProgram):
    total = Field("row")
    phases = (Phase("rows", "block"),)

    def update(self, job):
        add(*job.entries(), job.own("total"))

    def aggregate(self, phase, shared, deltas, answers):
        return {}
"""
STOCHASTIC = """import parts
from ooc import Field, StochasticProgram


class Program(StochasticProgram):
    total = Field()

    @staticmethod
    def process(element, weight, shared, local):
        for value in element.values:
            shared.total.add(parts.scale.scaled(value))
"""
DYNAMIC = """from parts.scale import scaled
from ooc import DynamicProgram, Field


class Program(DynamicProgram):
    total = Field("column")
    residual = Field("row")
    sums = 1

    @staticmethod
    def update(x, row, sums, shared):
        sums[0] += scaled(x)

    @staticmethod
    def aggregate(sums, column, shared):
        return sums[0]

    def objective(self, shared):
        return 0.0
"""
SCALE = """from pathlib import Path

import numba
import numpy as np

from .factor import times

TABLE = np.load(Path(__file__).parent / "table.npy")


@numba.njit(cache=True)
def scaled(x):
    return times(x) * TABLE[0]
"""
FACTOR = """import numba


@numba.njit(cache=True)
def times(x):
    return {factor} * x
"""


def write(folder: Path, program: str, factor: str, table: float) -> None:
    """Write a program, the function that it calls, the function that this calls, and the array that this reads."""
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    files = {"__init__.py": "from . import scale\n", "scale.py": SCALE, "factor.py": FACTOR.format(factor=factor)}
    for name, text in files.items():
        (parts / name).write_text(text)
    np.save(parts / "table.npy", np.array([table]))
    (folder / "own.py").write_text(program)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Matrix.create(tmp_path / "ratings") as ratings:
        ratings.add(*np.divmod(np.arange(12), 3), RATINGS.ravel())
    with Design.create(tmp_path / "design") as design:
        design.add(RATINGS, np.arange(4.0))
    return tmp_path


KINDS = {"static": (STATIC, "ratings", RATINGS.sum(1)), "stochastic": (STOCHASTIC, "ratings", RATINGS.sum())}
KINDS["dynamic"] = DYNAMIC, "design", RATINGS.sum(0)


@pytest.mark.parametrize(
    "kind", [each if each == "static" else pytest.param(each, marks=pytest.mark.long) for each in KINDS]
)
def test_a_change_of_a_function_in_another_file_counts_in_the_next_run(kind: str, data: Path, ooc: Ooc) -> None:
    """Also a change of an array that such a function reads; and the run that began before is warned of."""
    program, name, expected = KINDS[kind]
    options = {
        "stochastic": ("--set", "parallelism=1"),
        "dynamic": ("--set", "rho=null", "--set", "schedule=cyclic"),
    }.get(kind, ())
    for number, (factor, table) in enumerate([("2.0", 1.0), ("30.0", 1.0), ("30.0", 7.0)]):
        write(data, program, factor, table)
        done = ooc(
            "train", "program", "own:Program", name, f"run-{number}", "--iterations", 1, "--workers", 1, *options
        )
        assert done.returncode == 0, done.stderr
        found = ProgramRun(data / f"run-{number}", "own:Program")["total"]
        np.testing.assert_allclose(np.sort(np.atleast_1d(found)), float(factor) * table * expected, rtol=1e-6)
    for number, changed in ((0, True), (1, False)):
        done = ooc("resume", f"run-{number}", "--program", "own:Program", "--iterations", 2, "--workers", 1)
        assert done.returncode == 0, done.stderr
        warning = f"warning: the source files of own:Program have changed since run-{number} was started"
        assert (warning in done.stderr) == changed


@pytest.mark.parametrize(
    ("old", "new", "says", "remedy"),
    [
        ("return times(x)", "return times(x[0])", "scale.py, line 13: `return times(x[0]) * TABLE[0]` cannot be", ""),
        (
            "TABLE[0]",
            "np.absent(x)",
            "line 13: `return times(x) * np.absent(x)` cannot be compiled: module 'numpy'",
            "",
        ),
        ("@numba.njit(cache=True)\n", "", "cannot be compiled: Untyped global name 'scaled'", "Decorate the function"),
    ],
)
@pytest.mark.few(1)
def test_a_mistake_in_another_file_is_told_with_its_line(
    old: str, new: str, says: str, remedy: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(data)
    write(
        data,
        STOCHASTIC.replace("parts.scale.scaled", "scaled").replace("import parts", "from parts.scale import scaled"),
        "2.0",
        1.0,
    )
    scale = data / "parts" / "scale.py"
    scale.write_text(scale.read_text().replace(old, new))
    for name in [each for each in sys.modules if each == "own" or each.partition(".")[0] == "parts"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(RequestError) as told:
        ProgramSpec("own:Program", {"parallelism": 1}).build(Matrix(data / "ratings")).warm_up()
    assert says in told.value.what
    assert told.value.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("kind", "options"),
    long_but([("stochastic", ("parallelism=1",))], [("stochastic", ("parallelism=1",)), ("dynamic", ("rho=null",))]),
)
def test_a_program_that_cannot_be_compiled_leaves_no_run(
    kind: str, options: tuple[str, ...], data: Path, ooc: Ooc
) -> None:
    """Once the mistake is mended, the same command trains."""
    program, name, _ = KINDS[kind]
    write(data, program, "2.0", 1.0)
    chosen = [word for option in options for word in ("--set", option)]
    command = ("train", "program", "own:Program", name, "run", "--iterations", 1, "--workers", 1, *chosen)
    scale = data / "parts" / "scale.py"
    right = scale.read_text()
    scale.write_text(right.replace("return times(x)", "return times(x[0])"))
    assert_refused(ooc(*command), "cannot be compiled")
    assert not (data / "run").exists()
    scale.write_text(right)
    done = ooc(*command)
    assert done.returncode == 0, done.stderr


FORMS = {  # what a function uses, of which file
    "import": "from used import number\n\n\ndef f():\n    return number\n",
    "module": "import package.inner\n\n\ndef f():\n    return package.inner.g()\n",
    "relative": "from package import g\n\n\ndef f():\n    return g()\n",
    "late": "def f():\n    import used\n\n    return used.number\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_files_that_are_imported_are_found(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages and relative imports, too; files that are not imported do not count, nor do installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "package").mkdir()
    files = {"used.py": "number = 1\n", "unused.py": "", "package/__init__.py": "from .inner import g\n"}
    files |= {"package/inner.py": "import numpy, used\n\n\ndef g():\n    return used.number\n"}
    for name, text in (files | {f"by_{form}.py": FORMS[form]}).items():
        (tmp_path / name).write_text(text)
    alone = form in ("import", "late")
    wanted = {f"by_{form}", "used"} if alone else {f"by_{form}", "used", "package", "package.inner"}
    assert module_files(f"by_{form}").keys() == wanted
    before = source_checksum(f"by_{form}")
    (tmp_path / "unused.py").write_text("changed = 1\n")
    assert source_checksum(f"by_{form}") == before
    (tmp_path / "used.py").write_text("number = 22\n")
    assert source_checksum(f"by_{form}") != before
    assert "used" not in sys.modules  # nothing was run
    assert module_files("samplers.regression.rounds.lasso") == {}  # files of ooc do not count


def test_constants_are_told_apart_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers in other places are other constants."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "settings.py").write_text("a, b, c = 1, 1, 2\n")
    (tmp_path / "by_settings.py").write_text(
        "import settings\n\n\ndef f():\n    return settings.a + settings.b * settings.c\n"
    )
    settings, function = map(importlib.import_module, ("settings", "by_settings"))
    found = set()
    for values in ((1, 1, 2), (1, 2, 1), (1, 2, 2), (2.0, 1, 1), (np.ones(2), 1, 1), (np.ones(3), 1, 1)):
        for name, value in zip("abc", values, strict=True):
            setattr(settings, name, value)
        found.add(dependencies([function.f]).digest)
    assert len(found) == 6


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_with_other_files_are_refused(data: Path) -> None:
    """In the directories of the ranks, a function that the program calls differs."""
    command, ranks = [sys.executable, "-m", "ooc", "train", "program", "own:Program", data / "ratings"], []
    for rank, factor in enumerate(("2.0", "30.0")):
        (data / str(rank)).mkdir()
        write(data / str(rank), STATIC, factor, 1.0)
        ranks += [*(":" for _ in range(rank)), "-n", "1", "-wdir", data / str(rank), *command, "run", "--transport=mpi"]
    done = subprocess.run([str(mpiexec()), *map(str, ranks)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "rank 0 and rank 1 have different source files of the program" in done.stderr
    assert not list(data.glob("*/run"))
