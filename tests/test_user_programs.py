"""Programs of one's own: what is wrong with them is told with file and line, and a run knows the program it is of."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc
from corpora import new_run, plan
from factorizations import planted, written

from blocks import RequestError, WorkFailed
from blocks.ratings.matrix import Matrix
from ooc import fit
from ooc.runs.metrics import metrics_line, parse_metrics_line
from ooc.runs.run import Run
from ooc.training import train
from ooc.workers.worker import ProgramSpec

PROGRAM = """import numba
import numpy as np

from ooc import ArraySpec, LocalState, Phase, StaticProgram


@numba.njit
def double(values):
    return 2 * values


class Sums(StaticProgram):
    phases = (Phase("add", "block", writes=False),)

    def shared_arrays(self):
        return {"sums": ArraySpec((self.dataset.rows,), "float64")}

    def begin(self, phase, shared):
        shared["sums"][:] += 1

    def update(self, job):
        return float(job.entries()[2].sum())

    def aggregate(self, phase, shared, deltas, answers):
        return {"sum": sum(answers)}

    def export(self, sweep, shared, directory):
        np.save(directory / "sums.npy", shared["sums"])
"""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return written(tmp_path_factory.mktemp("matrix"), *planted(30, 20, 2, 0.5), grid=2)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Writes the program with some text replaced, as a module that has a name of its own; returns how to build it."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(old: str = "", new: str = "", **options: Any) -> ProgramSpec:
        assert old in PROGRAM
        name = f"sums_{abs(hash((old, new)))}"
        (tmp_path / f"{name}.py").write_text(PROGRAM.replace(old, new) if old else PROGRAM + new)
        return ProgramSpec(f"{name}:Sums", options)

    return write


PHASES = '(Phase("add", "block", writes=False),)'
SPEC = 'ArraySpec((self.dataset.rows,), "float64")'
REFUSED = {
    "no phases": (f"phases = {PHASES}", "pass", "line 12: Sums has no `phases`"),
    "one phase": (PHASES, PHASES[1:-2], "line 12: `phases` must be a tuple of ooc.Phase, got Phase("),
    "order": ('"block"', '"rows"', "Phase('add'): unknown order='rows'"),
    "no update": ("def update", "def up", "line 12: Sums has no `update`"),
    "no arrays": ("def shared_arrays", "def arrays", "line 12: Sums has no arrays"),
    "an array": (
        SPEC,
        "np.zeros(3)",
        "line 15: `shared_arrays`: 'sums' must be an ooc.ArraySpec, got array([0., 0., 0.])",
    ),
    "a shape": (
        "(self.dataset.rows,)",
        "5",
        "line 15: `shared_arrays`: the shape of 'sums' must be a tuple of sizes, got 5",
    ),
    "a dtype": ('"float64"', '"float"+"y"', "the dtype of 'sums' must be a dtype of numbers, got 'floaty'"),
    "a list": (f'{{"sums": {SPEC}}}', '["sums"]', "`shared_arrays` must return a dictionary, got ['sums']"),
    "shared raises": (SPEC, "self.size", 'line 16, in shared_arrays: `return {"sums": self.size}` raises Attribute'),
    "float deltas": (
        "",
        '\n    def delta_arrays(self):\n        return {"d": ArraySpec((2,), "float32")}\n',
        "line 30: the delta array 'd' has dtype float32: a sum of floats depends on the assignment of parts to workers",
    ),
    "primary": (
        "",
        '\n    def primary_arrays(self):\n        return ("w",)\n',
        "`primary_arrays` names 'w', which is no",
    ),
    "local": (
        "",
        "\n    def local_state(self):\n        return 3\n",
        "`local_state` must return an ooc.LocalState, got 3",
    ),
    "syntax": ("def update(self, job):", "def update(self, job)", "line 21: expected ':'"),
    "an import": ("import numba", "import notthere", "its module needs 'notthere', which is not installed"),
    "a name": (
        "import numba\n",
        "import numba; x = y\n",
        "line 1, in <module>: `import numba; x = y` raises Name",
    ),
    "a class": (
        "class Sums(StaticProgram)",
        "class Sums",
        "is not a subclass of ooc.StaticProgram",
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_cannot_be_is_told_before_anything_is_done(matrix: Matrix, program, mistake: str) -> None:
    old, new, told = REFUSED[mistake]
    with pytest.raises(RequestError) as refused:
        program(old, new).build(matrix)
    assert told in refused.value.what
    if "line" in told:
        assert re.search(r"sums_\d+\.py, line", refused.value.what)


def test_options_that_a_program_does_not_take_are_told(matrix: Matrix, program) -> None:
    with pytest.raises(RequestError, match="the program Sums has no option 'rate'"):
        program(rate=1.0).build(matrix)
    with pytest.raises(RequestError, match=r"'Other' in .* does not exist"):
        ProgramSpec(program().target.replace("Sums", "Other"), {}).build(matrix)
    with pytest.raises(RequestError, match="program nmf:NMF cannot be imported: there is no module 'nmf'") as refused:
        ProgramSpec("nmf:NMF", {}).build(matrix)
    assert "add this directory to PYTHONPATH" in refused.value.remedy


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "float(job.entries()[2].sum())",
            "1 / job.part",
            "line 22, in update: `return 1 / job.part` raises ZeroDivision",
        ),
        (
            "float(job.entries()[2].sum())",
            "double(job.data)",
            "line 9: `return 2 * values` raises TypingError: No implementation of function",
        ),
        ('return {"sum": sum(answers)}', "pass", "line 24: `aggregate` must return a dictionary, got None"),
        ("sum(answers)", "np.ones(2)", "line 24: `aggregate` returns array([1., 1.]) for 'sum'; expected a number"),
        ('"sum": sum(answers)', '"sum": answers["x"]', 'line 25, in aggregate: `return {"sum": answers["x"]}` raises'),
        ('"sums"][:] +=', '"none"][:] +=', "line 19, in begin: `shared[\"none\"][:] += 1` raises KeyError: 'none'"),
        (
            'shared["sums"])',
            "shared.sums)",
            'line 28, in export: `np.save(directory / "sums.npy", shared.sums)` raises',
        ),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_goes_wrong_in_a_run_is_told_by_the_line_of_the_program(
    matrix, program, tmp_path, workers, old, new, told
):
    spec = program(old, new)
    run = new_run(tmp_path / "run", matrix, spec, 2)
    with pytest.raises(WorkFailed) as failed:
        train(run, plan(workers), quiet=True)
    assert told in failed.value.what
    assert f"ooc resume {run.path} --program {spec.target}" in failed.value.remedy or "Return numbers" in str(
        failed.value
    )


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"every": 0}], ids=str)
def test_a_run_of_nothing_is_refused(matrix: Matrix, program, tmp_path: Path, wrong: dict[str, int]) -> None:
    length = {"iterations": 1, "every": 1} | wrong
    with pytest.raises(RequestError, match=" must be at least 1, got 0"):
        new_run(tmp_path / "run", matrix, program(), length["iterations"], length["every"])
    assert not (tmp_path / "run").exists()


# Metrics


def strictly(text: str) -> Any:
    """What JSON says that is JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_metrics_are_json_whatever_a_program_tells(matrix: Matrix, program, tmp_path: Path, ooc: Ooc) -> None:
    told = '{"nan": np.float32("nan"), "infinite": -math.inf, "number": np.float32(3), "whole": np.int64(2)}'
    spec = program('{"sum": sum(answers)}', told.replace("math.inf", "np.inf"))
    run = new_run(tmp_path / "run", matrix, spec, 2)
    train(run, plan(1), quiet=True)
    lines = [strictly(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["nan"], line["infinite"], line["number"] * matrix.entries) for line in lines] == [(None, None, 3)] * 2
    assert [math.isnan(line["nan"]) for line in Run(run.path).metrics()] == [True, True]
    assert strictly(ooc("info", "run", "--json").stdout)["last"]["nan"] is None
    assert ooc("verify", "run").returncode == 0


def test_a_line_of_the_metrics_is_read_as_it_was_written() -> None:
    line = {"iteration": 3, "a": 1.5, "b": np.float32(0.5), "c": math.inf, "d": "x", "e": True, "f": [1, math.nan]}
    values = parse_metrics_line(metrics_line(line).encode())
    assert values is not None
    assert math.isnan(values.pop("c"))
    assert values == {"iteration": 3, "a": 1.5, "b": 0.5, "d": "x", "e": True, "f": [1, None]}


# The program of a run


@pytest.mark.long
def test_a_run_whose_program_was_changed_is_told_of_or_refused(matrix, program, tmp_path, ooc: Ooc, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = program()
    file = tmp_path / f"{spec.target.split(':')[0]}.py"
    train(new_run(tmp_path / "run", matrix, spec, 2), plan(1), quiet=True)
    resume = ("resume", "run", "--program", spec.target, "--workers", 1, "--iterations")
    done = ooc(*resume, 3)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert "The model is in run/model" in done.stdout
    assert "recommend" not in done.stdout
    file.write_text(f"{PROGRAM}# changed\n")
    done = ooc(*resume, 4)
    assert done.returncode == 0, done.stderr
    assert f"warning: the source files of {spec.target} have changed since run was started" in done.stderr
    before = (tmp_path / "run" / "state" / "manifest.json").read_bytes()
    for old, new, told in (
        ("self.dataset.rows", "7", "'sums' is 30 float64 in the run, but 7 float64 in the program"),
        (
            "class Sums(StaticProgram):",
            'class Sums(StaticProgram):\n    def local_state(self):\n        return LocalState("int32", 1)\n',
            "'local_state' is 0 uint8 in the run, but 1 int32 in the program",
        ),
    ):
        file.write_text(PROGRAM.replace(old, new))
        done = ooc(*resume, 5)
        assert done.returncode == 2
        assert f"{spec.target} has changed: {told}" in done.stderr
        assert "Restore the original program, or train a new run." in done.stderr
    assert (tmp_path / "run" / "state" / "manifest.json").read_bytes() == before
    file.unlink()
    done = ooc(*resume, 5)
    assert done.returncode == 2
    assert f"ooc: program {spec.target} cannot be imported: there is no module" in done.stderr


# Scripts

SCRIPT = """import sys

from blocks import Matrix
from ooc import ProgramSpec, create_run, make_plan, train

matrix = Matrix(sys.argv[1])
spec = ProgramSpec(sys.argv[2], {})
made = make_plan(matrix, spec.build(matrix), workers=2, memory=1_000_000_000)
run = create_run("run", matrix, spec, iterations=int(sys.argv[3]), evaluate_every=1)
train(run, made, quiet=True, callback=lambda line: print(line["iteration"], flush=True))
"""


def script(tmp_path: Path, matrix: Matrix, spec: ProgramSpec, iterations: int) -> subprocess.Popen[str]:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(matrix.path), spec.target, str(iterations)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes)


def test_a_script_is_told_of_mistakes_without_the_inside_of_the_engine(matrix: Matrix, program, tmp_path: Path) -> None:
    spec = program("float(job.entries()[2].sum())", "1 / job.part")
    with script(tmp_path, matrix, spec, 2) as process:
        told = process.communicate(timeout=120)[1].splitlines()
    assert process.returncode == 1
    file = tmp_path / f"{spec.target.split(':')[0]}.py"
    assert told[-3:] == [
        f"{tmp_path}/script.py, line 10",
        f"ooc: {file}, line 22, in update: `return 1 / job.part` raises ZeroDivisionError: division by zero",
        f"Everything committed is safe. Continue with: ooc resume run --program {spec.target}",
    ]
    assert "Traceback" not in "".join(told)


def test_a_script_that_is_interrupted_says_so_and_has_saved_everything(matrix: Matrix, program, tmp_path: Path) -> None:
    spec = program()
    with script(tmp_path, matrix, spec, 1_000_000) as process:
        assert process.stdout
        while process.stdout.readline().strip() != "3":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=120)[1].splitlines()
    assert told[-3] == f"{tmp_path}/script.py, line 10"
    stopped = re.fullmatch(r"ooc: stopped by SIGINT at iteration (\d+); everything is saved", told[-2])
    assert stopped
    assert told[-1] == f"Continue with: ooc resume run --program {spec.target}"
    assert "Traceback" not in "".join(told)
    run = Run(tmp_path / "run", spec.target)
    assert run.last_metrics()["iteration"] == int(stopped[1])
    manifest = json.loads((run.path / "state" / "manifest.json").read_text())
    assert manifest["newest"]["cursor"]["iteration"] == int(stopped[1])


COMMON = """from ooc import Field, Phase, StaticProgram


class Total(StaticProgram):
    total = Field(shape=1)
    nothing = Field(shape=(0, 3), derived=True)

    phases = (Phase("add", "block", writes=False),)

    def begin(self, phase, shared):
        shared["total"][:] += 1

    def update(self, job):
        job.shared["total"][0] += job.entries()[2].sum()
        return 0.0

    def aggregate(self, phase, shared, deltas, answers):
        shared["total"][:] += sum(answers)
        return {}
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_an_array_that_all_parts_share_is_not_changed_by_update(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / f"common_{workers}.py").write_text(COMMON)
    (tmp_path / f"returned_{workers}.py").write_text(COMMON.replace('job.shared["total"][0] +=', "found ="))
    resources = {"iterations": 2, "workers": workers, "quiet": True}
    with pytest.raises(RequestError, match="phase 'add', `update` changes the array 'total', which all parts share"):
        fit(f"common_{workers}:Total", matrix.path, tmp_path / "run", **resources)
    run = fit(f"returned_{workers}:Total", matrix.path, tmp_path / "returned", **resources)
    np.testing.assert_array_equal(run["total"], [2])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"iterations": 0}, "iterations must be an integer of at least 1, got 0"),
        ({"iterations": 1.5}, "iterations must be an integer of at least 1, got 1.5"),
        ({"evaluate_every": "2"}, "evaluate_every must be an integer of at least 1, got '2'"),
        ({"workers": 0}, "workers must be an integer of at least 1, got 0"),
        ({"workers": 1.5}, "workers must be an integer of at least 1, got 1.5"),
        ({"options": {"power": {1}}}, r"options: \{1\} is not a JSON value"),
        ({"max_time": -1}, "max_time must be a number of seconds above 0, got -1"),
        (
            {"memory": "1MB", "workers": 2},
            r"memory 1 MB is too small for 2 workers.*\nIncrease memory, or reduce workers",
        ),
    ],
)
def test_messages_to_scripts_name_parameters(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], message: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named.py").write_text(PROGRAM)
    with pytest.raises(RequestError, match=f"^{message}"):
        fit("named:Sums", matrix.path, tmp_path / "run", **parameters)
    assert not (tmp_path / "run").exists()


def test_messages_to_scripts_keep_commands(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "commands_kept.py").write_text(PROGRAM)
    run = fit(
        "commands_kept:Sums", matrix.path, tmp_path / "run", iterations=np.int64(1), quiet=True, scratch=str(tmp_path)
    )
    with pytest.raises(
        RequestError, match=r"Continue it with resume\(\) or `ooc resume .*`, replace it with overwrite=True"
    ):
        fit("commands_kept:Sums", matrix.path, run.path, quiet=True)
    with pytest.raises(RequestError, match=r"^iterations must be an integer of at least 1, got 0"):
        run.more(0)
