"""The stochastic engine against a naive interpreter of the same functions, with any processes, through any kill."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import InProcessProgram, kill_while_resuming, leftovers, model_bytes, new_run, plan
from factorizations import planted, written
from long_mark import long_but
from stochastic_programs import Naive

from blocks import RequestError, WorkFailed
from blocks.ratings.matrix import Matrix
from ooc.plan.memory_plan import make_plan
from ooc.stochastic.pass_tasks import CombineVariables, GatherVariables, ProcessElements, cut, pass_stages
from ooc.training import train
from ooc.workers.worker import ProgramSpec


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """90 rows in four blocks."""
    return written(tmp_path_factory.mktemp("matrix"), *planted(90, 40, 3, 0.3), grid=4)


def spec(program: str = "Everything", **options: Any) -> ProgramSpec:
    return ProgramSpec(f"stochastic_programs:{program}", {"seed": 3, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"parallelism": 1},
        {"parallelism": 5},
        {"parallelism": 7, "sync_per_pass": 3},
        pytest.param({"parallelism": 4, "strategy": "average"}, marks=pytest.mark.long),
        pytest.param({"parallelism": 2, "strategy": "accumulate"}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_the_engine_does_what_the_paper_says(matrix, options):
    """Three passes of a program that uses everything, as the formulas say it, element by element: equations 7 to 9, and
    delayed additions that wait for a pass. One worker is the plain sequence."""
    with InProcessProgram(matrix, spec(**options)) as chain:
        naive = Naive(chain.program)
        for _ in range(3):
            chain.iterate()
            naive.run(options["parallelism"])
            found = chain.program.variables(chain.shared)
            for name, value in naive.values.items():
                assert np.allclose(found[name], value, rtol=1e-9, atol=1e-9 * np.abs(value).max()), name
        assert np.allclose(found["w_mean"], naive.totals["w"] / naive.weights["w"], rtol=1e-7, atol=1e-7)
        assert chain.shared["local.visits"][:, 0].tolist() == [6] * 90
        assert np.allclose(chain.shared["local.u"], [local.u for local in naive.locals], rtol=1e-6, atol=1e-6)
        seen = np.concatenate([local.seen for local in naive.locals])
        assert np.allclose(chain.shared["local.seen"], seen, rtol=1e-4, atol=1e-4)


def test_delayed_additions_cancel_what_was_added_the_pass_before(matrix):
    """As counts do: of `n` one for each element is added, and nothing taken back, whatever the weights are."""
    with InProcessProgram(matrix, spec(parallelism=7)) as chain:
        chain.iterate(2)
        assert chain.program.variables(chain.shared)["n"] == 180.0
        assert chain.program.variables(chain.shared)["t"] == 180.0


@pytest.mark.parametrize("strategy", ["reweight", "average"])
def test_batches_of_workers_make_no_difference(matrix, monkeypatch, strategy):
    """Where there is memory for two workers at a time, what seven come to is the same but for rounding."""
    found = []
    for size in (1 << 28, 1):
        monkeypatch.setattr("ooc.stochastic.program._SLOTS_BYTES", size)
        with InProcessProgram(matrix, spec(parallelism=7, strategy=strategy)) as chain:
            assert chain.program.slots == (7 if size > 1 else 2)
            chain.iterate(2)
            found.append({name: value.copy() for name, value in chain.program.variables(chain.shared).items()})
    assert all(np.allclose(found[0][name], found[1][name], rtol=1e-12, atol=1e-12) for name in found[0])


def test_functions_are_mapped_over_elements(matrix):
    with InProcessProgram(matrix, spec(parallelism=3)) as chain:
        chain.iterate(1)
        values = np.concatenate(list(chain.program.values("visits", chain.sweep)))
        assert values.tolist() == [1000.0 * number + 1 for number in range(90)]
        losses = np.concatenate(list(chain.program.values("loss", chain.sweep)))
        assert chain.objective()["objective"] == pytest.approx(losses.mean(), rel=1e-12)


OPTIONS = [{"parallelism": 5, "sync_per_pass": 2}, {"parallelism": "auto", "most_parallelism": 7, "sync_per_pass": 2}]


@pytest.mark.few(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_result_is_the_same_to_the_byte_whatever_the_processes(matrix, tmp_path, options):
    """1, 2 or 3 processes, local variables in memory or in a file, or no engine at all."""
    found = []
    for workers, mapped in ((1, False), (2, True), (3, False)):
        run = new_run(tmp_path / f"{workers}", matrix, spec(**options), 4, 1)
        train(run, plan(workers, mapped=mapped), quiet=True)
        assert leftovers(run.path) == []
        found.append(model_bytes(run.path))
    with InProcessProgram(matrix, spec(**options)) as chain:
        chain.iterate(4)
        (tmp_path / "none").mkdir()
        chain.export(tmp_path / "none" / "model")
    assert all(other == model_bytes(tmp_path / "none") for other in found)


@pytest.mark.parametrize("options", long_but(OPTIONS[-1:], OPTIONS), ids=str)
def test_a_run_that_is_killed_goes_on_as_if_it_was_not(matrix, tmp_path, monkeypatch, options):
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parent.parent}")
    straight = new_run(tmp_path / "straight", matrix, spec(**options), 30, 1)
    train(straight, plan(2), quiet=True)
    run = new_run(tmp_path / "run", matrix, spec(**options), 30, 1)
    for generation in (2, 7, 15):
        kill_while_resuming(run.path, f"state/{generation:06}.h5")
    train(run, plan(1), quiet=True)
    assert model_bytes(run.path) == model_bytes(straight.path)
    unlike = ("time", "elapsed_s", "samples_per_s", "memory_bytes", "budget_bytes", "bytes_written", "bytes_read")
    told = [
        [{name: line[name] for name in line if name not in unlike and not name.endswith("_s")} for line in x.metrics()]
        for x in (run, straight)
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize(("elements", "rounds", "degree", "slots"), [(90, 1, 7, 3), (91, 4, 5, 5), (10, 2, 5, 2)])
def test_every_element_is_processed_once_a_pass(elements, rounds, degree, slots):
    bounds = cut(0, elements, rounds)
    runs = [cut(first, last, degree) for first, last in pairwise(bounds)]
    stages = pass_stages(runs, degree, slots, 3)
    tasks = [task for stages_ in stages for stage in stages_ for task in stage if isinstance(task, ProcessElements)]
    assert [number for task in tasks for number in range(task.first, task.last)] == list(range(elements))
    sizes = {task.last - task.first for task in tasks}
    assert max(sizes) - min(sizes) <= 2
    gathered = [task for stages_ in stages for stage in stages_ for task in stage if isinstance(task, GatherVariables)]
    combined = [task for stages_ in stages for task in stages_[-1]]
    assert [(type(task), task.share) for task in combined] == [(CombineVariables, share) for share in range(3)] * rounds
    if degree <= slots:
        assert not gathered
        assert {task.workers for task in combined} == {degree}
        return
    assert {task.workers for task in combined} == {0}
    assert len(gathered) == rounds * -(-degree // slots) * 3
    assert sum(task.workers for task in gathered if not task.share) == rounds * degree
    assert [sum(getattr(task, end) for task in gathered) for end in ("begins", "ends")] == [rounds * 3] * 2


def test_local_variables_lie_in_a_file_where_memory_is_short(matrix):
    program = spec(parallelism=2, sync_per_pass=5).build(matrix)
    small = make_plan(matrix, program, 2, 10**10)
    assert not small.mapped
    assert make_plan(matrix, program, 2, small.bytes - 1).mapped
    for name, pieces in program.sliced_arrays().items():
        assert pieces.sum() == np.prod(program.shared_arrays()[name].shape)
        assert len(pieces) == 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"parallelism": 0}, "--parallelism"),
        ({"sync_per_pass": 0}, "--sync-per-pass must be"),
        ({"strategy": "hope"}, "unknown strategy 'hope'"),
        ({"parallelism": 91}, "90 rows are too few for 91"),
    ],
)
def test_options_that_make_no_sense_are_refused(matrix, options, told):
    with pytest.raises(RequestError, match=told):
        spec(**options).build(matrix)


MISTAKES = {
    "shared.u.add(1.0)": "there is no shared.u",
    "local.z = 1": "there is no local.z",
    "shared.t.add(element.label)": "there is no element.label",
    "shared.w = 1": "shared.w must not be assigned to",
    "shared.w[0] += 1": "shared.w must not be assigned to",
    "shared.t.add(shared.w[0])": "shared.w cannot be indexed with brackets",
    "shared.w.add(1.0)": "w.add takes place, delta; got 1 argument",
    "shared.w.add_row(0, local.a)": "unknown operator w.add_row",
    "shared.w.increase(1)": "unknown operator w.increase",
    "shared.w.delayed_add(0, 1.0)": "additions to `w` cannot be delayed",
    "shared.d.delayed_add(1.0)": "delayed additions need `delays`, which is 0",
    "shared.w.average(1.0)": "`w` is not averaged",
    "shared.m.row_view(0)": "`m` is averaged and cannot be viewed row by row",
}
TEMPLATE = """from blocks.compiled import inlined_kernel
from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.variable_arrays import Shared


class Wrong(StochasticProgram):
    def shared_variables(self):
        return {{"w": Shared((5,)), "t": Shared(), "d": Shared(delayed=True), "m": Shared((2, 2), averaged=True)}}

    def local_variables(self):
        return {{"a": Local((2,))}}

    @staticmethod
    def process(element, weight, shared, local):
        shared.t.add(weight)
        {line}

    @staticmethod
    def loss(element, shared, local):
        return {gives}


@inlined_kernel
def change(shared):
    shared.t.add(1.0)
    return 0.0
"""


def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, gives: str = "0.0") -> ProgramSpec:
    name = f"wrong_{abs(hash((line, gives)))}"
    (tmp_path / f"{name}.py").write_text(TEMPLATE.format(line=line, gives=gives))
    monkeypatch.syspath_prepend(tmp_path)
    return ProgramSpec(f"{name}:Wrong", {"parallelism": 1})


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_with_its_line_before_anything_is_compiled(matrix, tmp_path, monkeypatch, line):
    with pytest.raises(RequestError) as told:
        wrong(tmp_path, monkeypatch, line).build(matrix)
    assert MISTAKES[line] in told.value.what
    assert "py, line 16:" in told.value.what
    assert told.value.what.startswith(str(tmp_path))


def test_a_variable_that_is_called_like_an_operator_is_refused(matrix, tmp_path, monkeypatch):
    """Compiled, its name would be that of the operator, of all named tuples."""
    name = wrong(tmp_path, monkeypatch, "pass").target.split(":")[0]
    file = tmp_path / f"{name}.py"
    file.write_text(file.read_text().replace('"a": Local', '"row_view": Local'))
    with pytest.raises(RequestError, match="Wrong: 'row_view' is the name of an operator"):
        ProgramSpec(f"{name}:Wrong", {"parallelism": 1}).build(matrix)


def test_a_wrong_type_is_told_with_its_line(matrix, tmp_path, monkeypatch):
    program = wrong(tmp_path, monkeypatch, 'shared.t.add("heavy")').build(matrix)
    with pytest.raises(RequestError) as told:
        program.warm_up()
    assert 'py, line 16: `shared.t.add("heavy")` cannot be compiled' in told.value.what


@pytest.mark.long
def test_a_program_that_was_changed_is_compiled_anew(matrix, tmp_path, monkeypatch):
    """What was cached of functions that it calls, of which others are gone by now, is in nobody's way."""
    name = wrong(tmp_path, monkeypatch, "pass", "change(shared) if element.number < 0 else 0.0").target.split(":")[0]
    file = tmp_path / f"{name}.py"
    text = file.read_text().replace("shared.t.add(1.0)", "shared.t.get()")
    for program in ("Wrong", "Other"):
        file.write_text(text.replace("Wrong", program))
        build = f"ProgramSpec('{name}:{program}', {{'parallelism': 1}}).build(Matrix('{matrix.path}')).warm_up()"
        imports = "from blocks.ratings.matrix import Matrix; from ooc.workers.worker import ProgramSpec"
        subprocess.run([sys.executable, "-c", f"{imports}; {build}"], check=True, cwd=tmp_path)


@pytest.mark.long
def test_a_function_that_reads_cannot_change_anything_even_by_another_one(matrix, tmp_path, monkeypatch):
    program = wrong(tmp_path, monkeypatch, "pass", "change(shared)").build(matrix)
    with pytest.raises(RequestError) as told:
        program.warm_up()
    assert "`shared.t.add(1.0)` cannot be compiled" in told.value.what


@pytest.mark.long
def test_a_place_that_is_not_there_ends_the_run_and_says_where(matrix, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = wrong(tmp_path, monkeypatch, "shared.w.add(element.number + 4, 1.0)")
    run = new_run(tmp_path / "run", matrix, program, 2)
    with pytest.raises(WorkFailed, match=r"Wrong.process, at element 1: `shared.w` has no index \[5\]"):
        train(run, plan(1), quiet=True)
