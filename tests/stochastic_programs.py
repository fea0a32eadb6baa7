"""Programs of the stochastic engine for tests, and a naive interpreter that runs the same functions without it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from blocks.ratings.matrix import Matrix
from ooc.stochastic.degrees import Choice
from ooc.stochastic.elements import uniform
from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.tasks import Process
from ooc.stochastic.variable_arrays import Shared


class Everything(StochasticProgram):
    """Uses all operators and all kinds of variables; what it computes makes no sense, but depends on all of it."""

    delays = 2
    maps = ("visits",)

    def shared_variables(self) -> dict[str, Shared]:
        columns = self.dataset.columns
        return {
            "w": Shared((columns,), averaged=True),
            "h": Shared((columns, 3), delayed=True),
            "t": Shared(),
            "n": Shared(delayed=True),
            "c": Shared((40,), delayed=True),
        }

    def local_variables(self) -> dict[str, Local]:
        return {
            "visits": Local(dtype="int64", shape=(1,)),
            "u": Local((2,)),
            "seen": Local(dtype="float32", per="entry"),
            "row": Local((3,), per="work"),
        }

    def constants(self) -> dict[str, Any]:
        return {"rate": 0.05, "scales": np.linspace(0.5, 1.5, self.dataset.columns)}

    def first_values(self) -> dict[str, Any]:
        return {"w": 0.5, "h": np.arange(self.dataset.columns * 3).reshape(-1, 3) / 10}

    @staticmethod
    def process(element, weight, shared, local):
        shared.t.add(weight)
        shared.n.add(weight)
        step = shared.rate * weight / np.sqrt(shared.t.get())
        shared.w.multiply(1 - 0.1 * step)
        if element.number % 7 == 3:
            shared.c.multiply(0.0 if element.number % 14 == 3 else 0.5)
        shared.c.add(element.number % 40, weight)
        shared.c.delayed_add((element.number + 1) % 40, -weight)
        for entry in range(element.columns.size):
            column = element.columns[entry]
            error = shared.w.get(column) - element.values[entry] * shared.scales[column]
            shared.w.add(column, -step * error)
            shared.h.get_row(column, local.row)
            here = shared.h.row_view(column)
            here.add(2, 0.01)
            local.u[entry % 2] += here.get(2) - 0.1 * float(local.seen[entry])
            for k in range(3):
                local.row[k] = step * (local.u[0] - local.row[k])
            shared.h.add_row(column, local.row)
            local.seen[entry] = error
        if element.columns.size:
            shared.h.add(element.columns[0], 1, 0.1)
            shared.h.delayed_add(element.columns[0], 1, -0.1 * weight)
        shared.w.average(step)
        local.visits[0] += element.visit + 1

    @staticmethod
    def loss(element, shared, local):
        total = 0.0
        for entry in range(element.columns.size):
            total += (shared.w.get(element.columns[entry]) - element.values[entry]) ** 2
        return total + abs(shared.h.get(0, 0) - local.u[0])

    @staticmethod
    def visits(element, shared, local):
        return local.visits[0] + 1000.0 * element.number


class Transformation:
    """A shared variable as equation 7 writes it: Gamma, Delta and T are kept, and applied whenever it is read."""

    def __init__(self, base: np.ndarray, total: np.ndarray, queue: list[Any]) -> None:
        self.base, self.gamma, self.delta, self.late = base, 1.0, np.zeros_like(base), np.zeros_like(base)
        self.total, self.weights, self.queue = total, 0.0, queue

    def value(self) -> np.ndarray:
        return self.gamma * self.base + self.delta + self.late

    def get(self, *place: int) -> float:
        return float(self.value()[place])

    def get_row(self, row: int, into: np.ndarray) -> None:
        into[:] = self.value()[row, : into.size]

    def row_view(self, row: int) -> SimpleNamespace:
        return SimpleNamespace(get=partial(self.get, row), add=partial(self.add, row))

    def add(self, *arguments: Any) -> None:
        self.delta[arguments[:-1]] += arguments[-1]

    def add_row(self, row: int, deltas: np.ndarray) -> None:
        self.delta[row, : deltas.size] += deltas

    def late_add(self, *arguments: Any) -> None:
        self.late[arguments[:-1]] += arguments[-1]

    def delayed_add(self, *arguments: Any) -> None:
        self.queue.append((self, arguments))

    def multiply(self, factor: float) -> None:
        self.gamma *= factor
        self.delta *= factor
        self.late *= factor

    def average(self, weight: float) -> None:
        self.total += weight * self.value()
        self.weights += weight


class Naive:
    """A program run as the paper says it, one element after the other, in plain Python."""

    def __init__(self, program: StochasticProgram) -> None:
        self.program, matrix = program, program.dataset
        self.values = {name: np.zeros(declared.shape) for name, declared in program.declared.items()}
        for name, first in program.first_values().items():
            self.values[name] += first
        self.totals = {name: np.zeros(declared.shape) for name, declared in program.declared.items()}
        self.weights, self.passes = dict.fromkeys(program.declared, 0.0), 0
        self.elements = [row for number in range(matrix.block_count) for row in rows_of(matrix, number)]
        sizes = {"entry": lambda element: element.columns.size}
        self.locals = []
        for element in self.elements:
            kept = {
                name: np.zeros((*([sizes["entry"](element)] if x.per == "entry" else []), *x.shape), x.dtype)
                for name, x in program.locals.items()
            }
            self.locals.append(SimpleNamespace(**kept))
        self.delayed: list[list[Any]] = [[] for _ in self.elements]

    def run(self, degree: int) -> None:
        """A pass of so many workers."""
        for stages in self.program.rounds_of("process", Choice(degree)):
            tasks = [task for stage in stages for task in stage if isinstance(task, Process)]
            self._combine([self._work(task) for task in tasks])
        self.passes += 1

    def _work(self, task: Process) -> dict[str, Transformation]:
        weight, queue = task.degree if self.program.strategy == "reweight" else 1, []  # type: ignore[var-annotated]
        mine = {name: Transformation(value, self.totals[name], queue) for name, value in self.values.items()}
        shared = SimpleNamespace(**mine, **self.program.constants())
        for number in range(task.first, task.last):
            for name, arguments in self.delayed[number]:
                mine[name].late_add(*arguments)
            queue.clear()
            element = SimpleNamespace(**vars(self.elements[number]), visit=self.passes)
            type(self.program).process(element, weight, shared, self.locals[number])
            names = {id(variable): name for name, variable in mine.items()}
            self.delayed[number] = [(names[id(x)], (*place, delta / weight)) for x, (*place, delta) in queue]
        return mine

    def _combine(self, workers: list[dict[str, Transformation]]) -> None:
        """Equation 9; of accumulated changes, equation 5."""
        for name, base in self.values.items():
            found = [worker[name] for worker in workers]
            self.weights[name] += sum(each.weights for each in found)
            if self.program.strategy == "accumulate":
                self.values[name] = base + sum(each.value() - base for each in found)
            else:
                instant = sum(each.gamma * base + each.delta for each in found) / len(found)
                self.values[name] = instant + sum(each.late for each in found)


def rows_of(matrix: Matrix, number: int) -> list[SimpleNamespace]:
    """The rows of a block as elements."""
    block, first = matrix.block(number), int(matrix.index.block_bounds[number])
    pieces = [slice(*block.offsets[row : row + 2]) for row in range(block.rows.size)]
    return [
        SimpleNamespace(number=first + row, columns=block.columns[mine], values=block.values[mine])
        for row, mine in enumerate(pieces)
    ]


class Quadratic(StochasticProgram):
    """|w - 1|^2 / 2 in 200 dimensions, each with noise of its own at each visit, by steps of rate / t^power."""

    def __init__(self, dataset: Matrix, *, rate: float = 2.0, power: float = 1.0, **options: Any) -> None:
        self.rate, self.power = rate, power
        super().__init__(dataset, **options)

    def shared_variables(self) -> dict[str, Shared]:
        return {"w": Shared((200,), averaged=True), "t": Shared()}

    def constants(self) -> dict[str, Any]:
        return {"rate": self.rate, "power": self.power}

    @staticmethod
    def process(element, weight, shared, local):
        shared.t.add(weight)
        step = shared.rate * weight / shared.t.get() ** shared.power
        for k in range(200):
            shared.w.add(k, -step * (shared.w.get(k) - 1 + 3 * (uniform(element.key, k) - 0.5)))
        shared.w.average(step)
