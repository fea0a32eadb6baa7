"""Programs with one stochastic worker, whose variables are plain arrays if it only adds to them."""

from __future__ import annotations

import pytest
from corpora import InProcessProgram
from factorizations import planted, written

from blocks import WorkFailed
from blocks.ratings.matrix import Matrix
from ooc.stochastic.program_functions import only_adds
from ooc.workers.worker import ProgramSpec


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """90 rows in four blocks."""
    return written(tmp_path_factory.mktemp("matrix"), *planted(90, 40, 3, 0.3), grid=4)


ADDING = """from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.variable_arrays import Shared


def get(columns):  # which process does not call, and is not compiled
    pass


class Adding(StochasticProgram):
    def shared_variables(self):
        columns = self.dataset.columns
        tables = {"h": Shared((columns, 3)), "g": Shared((4, 5), "float32")}
        return {"t": Shared(), "w": Shared((columns,), "float32"), **tables}

    def local_variables(self):
        return {"row": Local((3,), per="work")}

    def first_values(self):
        return {"w": 0.3}

    @staticmethod
    def process(element, weight, shared, local):
        shared.t.add(weight)
        step = 0.1 / (1 + shared.t.get())
        for entry in range(element.columns.size):
            column, row = element.columns[entry], shared.h.row_view(element.columns[entry])
            error = shared.w.get(column) / 3 + row.get(1) - element.values[entry]
            shared.w.add(column, -step * error)
            row.add(1, -step * error / 7)
            shared.h.get_row(column, local.row)
            for k in range(3):
                local.row[k] = 0.01 * element.values[entry] - local.row[k] / 7
            shared.h.add_row(column, local.row)
            shared.h.prefetch(column)
            view = shared.g.row_view(column % 4)
            view.add(column % 5, element.values[entry] / 3)
            shared.g.add(column % 4, 0, (shared.h.get(column, 2) - view.get(column % 5) - shared.g.get(0, 0)) / 7)
        if weight < 0:
            shared.t.multiply(0.5)
"""
SCALING = """import numba
from numba.extending import overload


@numba.njit
def halve(variable):
    variable.multiply(0.5)


def made(function):
    return numba.njit(lambda variable: function(variable))


@numba.njit
def default(variable, function=halve):
    function(variable)


def overloaded(variable):
    pass


@overload(overloaded)
def _(variable):
    return lambda variable: variable.multiply(0.5)


closure, functions = made(halve), (made(halve), halve)
"""
CALLS = {  # of a function that halves a variable, and a call of it
    "import": ("from scaling import halve as other", "other(shared.t)"),
    "star": ("from scaling import *", "halve(shared.t)"),
    "module": ("import scaling", "scaling.closure(shared.t)"),
    "default": ("from scaling import default", "default(shared.t)"),
    "tuple": ("from scaling import functions", "functions[0](shared.t)"),
    "overload": ("from scaling import overloaded", "overloaded(shared.t)"),
    "operator": ("", "f = shared.t.multiply; f(0.5)"),
    "inner": ("", "f = lambda variable: variable.multiply(0.5); f(shared.t)"),
    "field": ("", "shared.g.row_view(0).scale"),
}


@pytest.mark.parametrize("form", CALLS)
def test_multiplications_are_found_in_functions_of_any_file(form, matrix, tmp_path, monkeypatch):
    """With one worker, too: variables that only add have no other operators."""
    monkeypatch.syspath_prepend(tmp_path)
    imports, call = CALLS[form]
    (tmp_path / "scaling.py").write_text(SCALING)
    text = ADDING.replace("shared.t.multiply(0.5)", call)
    (tmp_path / f"scaled_by_{form}.py").write_text(f"{imports}\n{text}")
    program = ProgramSpec(f"scaled_by_{form}:Adding", {"parallelism": 1}).build(matrix)
    assert not only_adds(program)
    if form == "import":
        program.warm_up()  # compiles


OUTSIDE = [
    ("shared.g.row_view(column % 4)", "shared.g.row_view(column % 4 + 4)", r"`shared.g` has no index \[[4-7], 0\]"),
    ("shared.w.get(column)", "shared.w.get(column - 100)", r"`shared.w` has no index \[-[0-9]+\]"),
]


@pytest.mark.long
def test_a_single_worker_that_only_adds_comes_to_the_bits_of_variables_with_a_scale(matrix, tmp_path, monkeypatch):
    """Numbers, vectors, tables and their rows, in both types; positions that do not exist are told."""
    monkeypatch.syspath_prepend(tmp_path)
    found = {}
    for name, text in {"adds": ADDING.replace("multiply", "add"), "scales": ADDING}.items():
        (tmp_path / f"{name}.py").write_text(text)
        with InProcessProgram(matrix, ProgramSpec(f"{name}:Adding", {"parallelism": 1})) as chain:
            chain.iterate(2)
            assert only_adds(chain.program) == (name == "adds")
            found[name] = {variable: chain.shared[variable].tobytes() for variable in "twhg"}
            assert chain.program.variables(chain.shared)["t"] == 180.0
    assert found["adds"] == found["scales"]
    text = ADDING.replace("multiply", "add")
    for number, (old, new, says) in enumerate(OUTSIDE):
        (tmp_path / f"outside_{number}.py").write_text(text.replace(old, new))
        with InProcessProgram(matrix, ProgramSpec(f"outside_{number}:Adding", {"parallelism": 1})) as chain:
            assert only_adds(chain.program)
            with pytest.raises(WorkFailed, match=says):
                chain.iterate(1)
