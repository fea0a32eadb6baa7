"""Programs of the stochastic engine for tests, and a naive interpreter of the same functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.ratings.matrix import Matrix
from blocks.samples.samples import SampleBlock, Samples
from ooc.rng import random_bits, stream_key
from ooc.stochastic.elements import uniform
from ooc.stochastic.parallelism_degree import ParallelismChoice
from ooc.stochastic.pass_tasks import ProcessElements
from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.variable_arrays import Shared


class Everything(StochasticProgram):
    """Program that uses all operators and all kinds of variables, each of which affects its result."""

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
    """A shared variable as in equation 7: Gamma, Delta and T are stored, and applied on every read."""

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
    """Reference that runs a program as the paper defines it, element by element in plain Python; on a ring, runs the
    programs of all machines, each with the elements of its shard.
    """

    def __init__(self, *programs: StochasticProgram) -> None:
        self.programs, program = programs, programs[0]
        self.values = {name: np.zeros(declared.shape) for name, declared in program.declared.items()}
        for name, first in program.first_values().items():
            self.values[name] += first
        self.totals = {name: np.zeros(declared.shape) for name, declared in program.declared.items()}
        self.weights, self.passes = dict.fromkeys(program.declared, 0.0), 0
        self.elements = [list(elements_of(each.dataset)) for each in programs]
        self.before = np.cumsum([0, *map(len, self.elements)])  # elements at the machines before each
        self.locals = [locals_of(program, element) for elements in self.elements for element in elements]
        self.delayed: list[list[Any]] = [[] for _ in self.locals]

    def run(self, degree: int) -> None:
        """Run a pass of a number of workers."""
        rounds = [program.stages.rounds("process", ParallelismChoice(degree)) for program in self.programs]
        for of_machines in zip(*rounds, strict=True):
            tasks = [
                (machine, task)
                for machine, stages in enumerate(of_machines)
                for stage in stages
                for task in stage
                if isinstance(task, ProcessElements)
            ]
            self._combine([self._work(*each) for each in tasks])
        self.passes += 1

    def _work(self, machine: int, task: ProcessElements) -> dict[str, Transformation]:
        program, before = self.programs[machine], self.before[machine]
        weight, queue = task.degree if program.strategy == "reweight" else 1, []  # type: ignore[var-annotated]
        mine = {name: Transformation(value, self.totals[name], queue) for name, value in self.values.items()}
        shared = SimpleNamespace(**mine, **program.constants())
        key = stream_key(program.seed, self.passes, machine)
        for number in range(task.first, task.last):
            for name, arguments in self.delayed[before + number]:
                mine[name].late_add(*arguments)
            queue.clear()
            visit = {"number": number, "visit": self.passes, "key": np.uint64(random_bits(key, np.uint64(number)))}
            element = SimpleNamespace(**self.elements[machine][number], **visit)
            type(program).process(element, weight, shared, self.locals[before + number])
            names = {id(variable): name for name, variable in mine.items()}
            self.delayed[before + number] = [(names[id(x)], (*place, delta / weight)) for x, (*place, delta) in queue]
        return mine

    def _combine(self, workers: list[dict[str, Transformation]]) -> None:
        """Combine workers by equation 9 or, for accumulated changes, by equation 5."""
        for name, base in self.values.items():
            found = [worker[name] for worker in workers]
            self.weights[name] += sum(each.weights for each in found)
            if self.programs[0].strategy == "accumulate":
                self.values[name] = base + sum(each.value() - base for each in found)
            else:
                instant = sum(each.gamma * base + each.delta for each in found) / len(found)
                self.values[name] = instant + sum(each.late for each in found)


def elements_of(dataset: Matrix | Dataset | Samples) -> Iterator[dict[str, np.ndarray]]:
    """Return the elements (rows or documents) in stored order."""
    for number in range(dataset.block_count):
        block = dataset.block(number)
        if isinstance(block, TokenBlock):
            arrays = {"words": np.repeat(block.words, np.diff(block.word_offsets))[block.positions]}
        else:
            arrays = {"columns": block.columns, "values": block.values}
        for place, (first, last) in enumerate(pairwise(block.offsets.tolist())):
            label = {"label": block.labels[place]} if isinstance(block, SampleBlock) else {}
            yield {name: array[first:last] for name, array in arrays.items()} | label


def locals_of(program: StochasticProgram, element: dict[str, np.ndarray]) -> SimpleNamespace:
    """Return the local variables of an element, all 0."""
    entries = next(iter(element.values())).size
    each = {name: ((entries,) if x.per == "entry" else (), x) for name, x in program.locals.items()}
    return SimpleNamespace(**{name: np.zeros((*first, *x.shape), x.dtype) for name, (first, x) in each.items()})


class Quadratic(StochasticProgram):
    """Minimizes |w - 1|^2 / 2 in 200 dimensions, with new noise at each visit, by steps of rate / t^power."""

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


class Machine(StochasticProgram):
    """Factorization machine of rank 2 trained by gradients with a constant rate, which diverges with many workers;
    counts the visits of elements in three ways.
    """

    delays = 1

    def __init__(self, dataset: Samples, *, rate: float = 0.01, **options: Any) -> None:
        self.rate = rate
        super().__init__(dataset, **options)

    def shared_variables(self) -> dict[str, Shared]:
        columns = self.dataset.columns
        weights = {"w": Shared((columns,), averaged=True), "v": Shared((columns, 2)), "b": Shared()}
        return {**weights, "t": Shared(), "n": Shared(delayed=True)}

    def local_variables(self) -> dict[str, Local]:
        return {"visits": Local((1,), "int64"), "sums": Local((2,), per="work")}

    def constants(self) -> dict[str, Any]:
        return {"rate": self.rate}

    def first_values(self) -> dict[str, Any]:
        return {"v": 0.1 * np.random.default_rng(self.seed).normal(size=(self.dataset.columns, 2))}

    @staticmethod
    def process(element, weight, shared, local):
        local.sums[:] = 0.0
        error = shared.b.get() - element.label
        for entry in range(element.columns.size):
            column, x = element.columns[entry], float(element.values[entry])
            error += x * shared.w.get(column)
            for k in range(2):
                error += x * shared.v.get(column, k) * local.sums[k]
                local.sums[k] += x * shared.v.get(column, k)
        step = shared.rate * weight * error
        shared.b.add(-step)
        for entry in range(element.columns.size):
            column, x = element.columns[entry], float(element.values[entry])
            shared.w.add(column, -step * x)
            for k in range(2):
                v = shared.v.get(column, k)
                shared.v.add(column, k, -step * x * (local.sums[k] - v * x))
        shared.w.average(weight)
        shared.t.add(weight)
        shared.n.add(weight)
        shared.n.delayed_add(-weight)
        local.visits[0] += 1

    @staticmethod
    def loss(element, shared, local):
        local.sums[:] = 0.0
        error = shared.b.get() - element.label
        for entry in range(element.columns.size):
            column, x = element.columns[entry], float(element.values[entry])
            error += x * shared.w.get(column)
            for k in range(2):
                error += x * shared.v.get(column, k) * local.sums[k]
                local.sums[k] += x * shared.v.get(column, k)
        return error * error
