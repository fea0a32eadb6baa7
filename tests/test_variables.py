"""Shared variables of workers against a naive interpreter of the operators; their combination against equation 9."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ooc.stochastic.variable_arrays import (
    Shared,
    committed_specs,
    gathered_variable,
    make_queue,
    slot_specs,
    slot_variable,
    unchanged_variable,
    variable_slots,
)
from ooc.stochastic.variables import WEIGHTS, begin, storage, unpacked
from ooc.stochastic.worker_combination import GatheredVariable, combine, gather, gather_and_combine

SHAPES: list[tuple[int, ...]] = [(), (5,), (37,), (3, 4)]
FACTORS = [0.0, 1.0, 0.5, 2.0, -1.0, 0.1, 1e-60, 1e60, -3.7]
Operation = tuple[str, tuple[int, ...], float]


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[list[Operation]]]]:
    """A shape; for each of some rounds, for each of some workers, operations."""
    shape, workers = draw(st.sampled_from(SHAPES)), draw(st.integers(1, 5))
    place = st.tuples(*(st.integers(0, size - 1) for size in shape))
    adding = ["add", "late_add", *(["row_view.add"] if len(shape) == 2 else [])]
    change = st.tuples(st.sampled_from(adding), place, st.floats(-10, 10))
    scaling = st.tuples(st.just("multiply"), st.just(()), st.sampled_from(FACTORS))
    operations = st.lists(st.one_of(change, change, scaling), max_size=12)
    rounds = draw(st.lists(st.lists(operations, min_size=workers, max_size=workers), min_size=1, max_size=3))
    return shape, rounds


class VariableWorkers:
    """The arrays of some workers that share one variable `v`."""

    def __init__(self, shape: tuple[int, ...], slots: int, first: float = 0.0, **declared: Any) -> None:
        self.declared, self.slots, self.queue = Shared(shape, **declared), slots, make_queue(3)
        specs = committed_specs("v", self.declared) | slot_specs("v", self.declared, slots)
        self.arrays = {name: spec.zeros() for name, spec in specs.items()}
        self.value[...] = first

    @property
    def value(self) -> np.ndarray:
        return unpacked(self.declared.shape, self.arrays["v"])

    def begin(self, slot: int, *, in_place: bool = False) -> Any:
        variable = slot_variable("v", self.declared, self.arrays, 0, slot, self.queue, in_place=in_place)
        begin(variable.store, in_place)
        return variable

    def run(self, programs: list[list[Operation]], *, accumulate: bool = False) -> None:
        """One round: all workers, a batch after the other, then what they come to, in two shares of the rows. A single
        one changes the variable in place."""
        rows, gathered, together = (
            len(self.arrays["v"]),
            gathered_variable("v", self.arrays),
            len(programs) <= self.slots,
        )
        in_place = len(programs) == 1
        for array in gathered:
            array[:] = 0
        for before in range(0, len(programs), self.slots):
            batch = programs[before : before + self.slots]
            for slot, operations in enumerate(batch):
                variable = self.begin(slot, in_place=in_place)
                for operation in operations:
                    execute(variable, operation)
            late_times = 0 if accumulate else len(programs) - 1
            slots = variable_slots("v", self.arrays, len(batch), in_place=in_place)
            if not together:
                gather(slots, (0, rows), late_times, gathered)
            if self.declared.averaged:
                self.arrays["v.weights"] += self.arrays["v.states"][: len(batch), WEIGHTS].sum()
        value, mean = self.arrays["v"], self.arrays.get("v.mean", np.empty((0, self.arrays["v"].shape[1])))
        row = GatheredVariable(*(np.ones((min(len(array), 1), array.shape[1])) for array in gathered))
        for share in ((0, rows // 2), (rows // 2, rows)):
            if together:
                how = row, value, len(programs), accumulate, value, mean
                gather_and_combine(slots, share, late_times, *how)
            else:
                combine(gathered, value, share, len(programs), accumulate, value, mean)


def execute(variable: Any, operation: Operation) -> None:
    """Do an operation as a worker does; "row_row_view.add" is that of a row which was asked for."""
    name, place, number = operation
    if name == "row_view.add":
        variable.row_view(place[0]).add(place[1], number)
    else:
        getattr(variable, name)(*place, number)


def transformation(shape: tuple[int, ...], operations: list[Operation]) -> tuple[float, np.ndarray, np.ndarray]:
    """Gamma, Delta and T of a worker, by equation 20."""
    gamma, delta, late = 1.0, np.zeros(shape), np.zeros(shape)
    for name, place, number in operations:
        if name == "multiply":
            gamma *= number
            delta *= number
            late *= number
        else:
            (late if name == "late_add" else delta)[place] += number
    return gamma, delta, late


def magnitude(shape: tuple[int, ...], value: np.ndarray, operations: list[Operation]) -> float:
    """The largest number that comes up: rounding is relative to it, also once it was cancelled or scaled down."""
    largest = scale = float(np.abs(value).max(initial=0)) + 10 * len(operations)
    for name, _, number in operations:
        scale *= abs(number) if name == "multiply" else 1
        largest, scale = max(largest, scale), scale + 10
    assume(largest < 1e200)
    return largest


@settings(max_examples=150)
@given(programs(), st.integers(1, 3), st.floats(-5, 5))
def test_workers_come_to_what_equation_9_says(program, slots, first):
    shape, rounds = program
    workers = VariableWorkers(shape, slots, first, delayed=True)
    value = np.full(shape, first)
    for each in rounds:
        largest = max(magnitude(shape, value, operations) for operations in each)
        workers.run(each)
        found = [transformation(shape, operations) for operations in each]
        value = sum(gamma * value + delta for gamma, delta, _ in found) / len(each) + sum(late for *_, late in found)
        assert np.allclose(workers.value, value, rtol=1e-12, atol=1e-12 * largest)
        value = workers.value.copy()


@settings(max_examples=100)
@given(programs())
def test_one_worker_is_the_plain_sequence(program):
    """Also with several synchronizations: the values after each, and those that are read in between."""
    shape, rounds = program
    workers, value = VariableWorkers(shape, 1, 1.0, delayed=True), np.ones(shape)
    for (operations,) in [each[:1] for each in rounds]:
        variable = workers.begin(0)
        largest = magnitude(shape, value, operations)
        for name, place, number in operations:
            execute(variable, (name, place, number))
            if name == "multiply":
                value *= number
            else:
                value[place] += number
            read = np.array([variable.get(*at) for at in product(*map(range, shape))]).reshape(shape)
            assert np.allclose(read, value, rtol=1e-12, atol=1e-12 * largest)
        workers.run([operations])
        assert np.allclose(workers.value, value, rtol=1e-12, atol=1e-12 * largest)
        value = workers.value.copy()


WHOLE = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.tuples(st.integers(0, 36)), st.integers(-1000, 1000).map(float)),
        st.tuples(st.just("multiply"), st.just(()), st.sampled_from([0.0, 0.5, 2.0, -1.0, 0.25])),
    ),
    max_size=20,
)


@given(WHOLE)
def test_powers_of_two_lose_no_bit(operations):
    workers, value = VariableWorkers((37,), 1, 3.0), np.full(37, 3.0)
    workers.run([operations])
    for name, place, number in operations:
        if name == "multiply":
            value *= number
        else:
            value[place] += number
    assert workers.value.tolist() == value.tolist()


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=9), min_size=1, max_size=7))
def test_counts_stay_whole(changes):
    """Elements m times as heavy are counted m times: what workers come to is a whole number again, exactly."""
    degree = len(changes)
    workers = VariableWorkers((5,), 2, 10.0, delayed=True)
    operations = [[("add", (place,), float(degree * n)) for place, n in each] for each in changes]
    late = [[("late_add", (place,), float(-n)) for place, n in each] for each in changes]
    workers.run(operations)
    expected = np.full(5, 10.0)
    for place, number in (change for each in changes for change in each):
        expected[place] += number
    assert workers.value.tolist() == expected.tolist()
    workers.run(late)
    assert workers.value.tolist() == [10.0] * 5


@given(programs().filter(lambda program: len(program[1][0]) > 1))
def test_accumulation_adds_up_what_workers_have_changed(program):
    shape, rounds = program
    workers, value = VariableWorkers(shape, 2, 1.0, delayed=True), np.ones(shape)
    workers.run(rounds[0], accumulate=True)
    largest = max(magnitude(shape, value, operations) for operations in rounds[0])
    ends = [gamma * value + delta + late for gamma, delta, late in (transformation(shape, x) for x in rounds[0])]
    assert np.allclose(workers.value, value + sum(end - value for end in ends), rtol=1e-12, atol=1e-11 * largest)


AVERAGED = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.tuples(st.integers(0, 19)), st.floats(-10, 10)),
        st.tuples(st.just("multiply"), st.just(()), st.sampled_from([0.5, 0.9, 2.0, -1.0, 1e-70, 1e70])),
        st.tuples(st.just("average"), st.just(()), st.floats(0, 3)),
    ),
    max_size=15,
)


ROUNDS = st.integers(1, 3).flatmap(
    lambda m: st.lists(st.lists(AVERAGED, min_size=m, max_size=m), min_size=1, max_size=2)
)


@settings(max_examples=150)
@given(ROUNDS, st.integers(1, 3))
@example([[[("average", (), 1.0), ("multiply", (), 1e-70), ("add", (3,), 1.0)]]], 1)
def test_the_mean_is_that_of_all_iterates(rounds, slots):
    """Of all workers, of all rounds, each by its weight, though nothing is added up where nothing changes."""
    workers = VariableWorkers((20,), slots, 1.0, averaged=True)
    total, weights, largest = np.zeros(20), 0.0, 1.0
    for each in rounds:
        before = workers.value.copy()
        for operations in each:
            value = before.copy()
            largest = max(largest, magnitude((20,), value, operations))
            for name, place, number in operations:
                if name == "add":
                    value[place] += number
                elif name == "multiply":
                    value *= number
                else:
                    total, weights = total + number * value, weights + number
        workers.run(each)
    assert workers.arrays["v.weights"][0] == pytest.approx(weights)
    mean = workers.arrays["v.mean"].reshape(-1)[:20]
    assert np.allclose(mean, total, rtol=1e-11, atol=1e-11 * largest * max(weights, 1))


def test_rows_are_read_and_added_to_as_a_whole():
    workers = VariableWorkers((3, 4), 1, 2.0)
    table, row = workers.begin(0), np.empty(4)
    table.multiply(0.5)
    table.prefetch(1)
    table.add_row(1, np.arange(4.0))
    table.get_row(1, row)
    assert row.tolist() == [1, 2, 3, 4]
    table.get_row(2, row[:2])
    assert row.tolist() == [1, 1, 3, 4]
    table.multiply(0.0)
    table.get_row(1, row)
    assert not row.any()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_row_is_an_array_of_what_is_there_now(dtype):
    """Read and added to place by place; of single numbers nothing is computed in double precision."""
    workers = VariableWorkers((3, 4), 1, 2.0, dtype=dtype)
    table = workers.begin(0)
    table.multiply(0.25)
    row = table.row_view(1)
    for column in range(4):
        row.add(column, np.dtype(dtype).type(column))
    assert [row.get(column) for column in range(4)] == [0.5, 1.5, 2.5, 3.5]
    assert row.get(0).dtype == dtype
    assert [table.get(1, column) for column in range(4)] == [0.5, 1.5, 2.5, 3.5]
    assert table.get(2, 0) == 0.5
    for ask in (table.row_view, table.prefetch):
        ask(2)
        assert not workers.queue.mistake[0]
        ask(3)
        assert workers.queue.mistake[:3].tolist() == [1, 0, 3]
        workers.queue.mistake[0] = 0


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_only_read_is_what_all_have(shape):
    workers = VariableWorkers(shape, 1)
    workers.value[...] = np.arange(workers.value.size).reshape(shape)
    variable = unchanged_variable(workers.declared, workers.arrays["v"], 0, workers.queue)
    assert [variable.get(*place) for place in product(*map(range, shape))] == list(range(workers.value.size))
    if len(shape) == 2:
        variable.prefetch(1)
        row, into = variable.row_view(1), np.empty(3)
        variable.get_row(1, into)
        assert [row.get(0), row.get(1), row.get(2)] == into.tolist() == [4, 5, 6]
    if shape:
        assert variable.get(*shape) == 0
        assert workers.queue.mistake[0] == 1
    assert not hasattr(variable, "add")


@pytest.mark.parametrize("place", [(-1,), (40,), (1 << 40,)])
def test_a_place_that_is_not_there_changes_nothing_and_is_noted(place):
    workers = VariableWorkers((20,), 1, 1.0, delayed=True)
    vector = workers.begin(0)
    assert vector.get(*place) == 0
    for operator in (vector.add, vector.late_add, vector.delayed_add):
        operator(*place, 1.0)
    workers.run([[]])
    assert workers.value.tolist() == [1.0] * 20
    assert workers.queue.mistake[0] == 1
    assert workers.queue.filled[0] == 0


def test_nothing_is_done_to_what_is_not_touched():
    """A beginning, a multiplication and a reset take as long for ten million numbers as for one: no row is written."""
    workers = VariableWorkers((10_000_000,), 1, 1.0)
    vector = workers.begin(0)
    for factor in (0.5, 0.0, 0.25):
        vector.multiply(factor)
        vector.add(5, 1.0)
    assert np.count_nonzero(vector.store.stamps) == 1
    assert np.count_nonzero(vector.store.values) == 1
    assert vector.get(5) == 1.25
    assert vector.get(6) == 0


@pytest.mark.parametrize("in_place", [False, True])
def test_what_was_touched_hundreds_of_resets_ago_is_not_there(in_place):
    """Epochs are bytes and come again."""
    workers = VariableWorkers((40,), 1, 1.0)
    vector = workers.begin(0, in_place=in_place)
    vector.add(20, 1.0)
    for resets in range(1, 600):
        vector.multiply(0.0)
        vector.add(3, 1.0)
        assert [vector.get(3), vector.get(20)] == [1, 0], resets


def test_a_worker_that_is_alone_has_all_rows_from_the_beginning():
    """None has to be taken when it is touched."""
    workers = VariableWorkers((400,), 1, 1.0)
    vector = workers.begin(0, in_place=True)
    assert (vector.store.stamps == vector.store.epoch[0]).all()
    vector.add(5, 1.0)
    vector.multiply(0.5)
    assert [workers.value[5], vector.get(5), vector.get(6)] == [2, 1, 0.5]


def test_a_round_does_not_depend_on_which_rows_earlier_ones_have_touched():
    """After a resume nobody knows: rounding has to be the same, also where the scale is multiplied into the rows."""
    found = []
    for before in ([], [("add", (35,), 1.0)], [("multiply", (), 0.0), ("add", (3,), 1.0)]):
        workers = VariableWorkers((400,), 1, dtype="float32")
        workers.run([before])
        workers.value[...] = np.linspace(1, 2, 400)
        workers.run([[*[("multiply", (), 0.3)] * 40, ("add", (35,), 1e-25), *[("multiply", (), 0.7)] * 3]])
        found.append(workers.value.tobytes())
    assert found[0] == found[1] == found[2]


def test_variables_are_kept_in_rows():
    assert [storage(shape) for shape in SHAPES] == [(1, 1), (1, 16), (3, 16), (3, 4)]
