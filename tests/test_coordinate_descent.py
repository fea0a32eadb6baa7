"""Kernels of the solvers of regressions against slow twins."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from long_mark import long_but

from blocks.compiled import reordered_kernel
from samplers.regression.data.features import BlockFeatures
from samplers.regression.linear_algebra import columns as c
from samplers.regression.linear_algebra import gram
from samplers.regression.linear_algebra.columns import ColumnsWithMissingValues, DenseColumns, SparseColumns
from samplers.regression.linear_algebra.free_columns import orthonormal
from samplers.regression.linear_algebra.gram import arrange, gram_memory, multiply, subtract
from samplers.regression.linear_algebra.vectors import project_out
from samplers.regression.quadratic.conjugate_gradients import conjugate_gradient_steps, conjugate_gradients_scratch
from samplers.regression.quadratic.coordinate_descent import support, sweep
from samplers.regression.quadratic.descent import descend
from samplers.regression.quadratic.problem import (
    QuadraticProblem,
    quadratic_gap,
    quadratic_objective,
    quadratic_problem,
)
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.threads.thread_pool import ALONE, CHUNKS, ThreadPool, thread_barrier


def sparse_columns(x: np.ndarray, kind: type = np.float64) -> SparseColumns:
    matrix = scipy.sparse.csc_array(x)
    return SparseColumns(matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data.astype(kind))


def drawn(seed: int, rows: int = 7, count: int = 9) -> np.ndarray:
    """Whole numbers, among them many zeros."""
    random = np.random.default_rng(seed)
    return random.integers(-3, 4, (rows, count)) * (random.random((rows, count)) < 0.6).astype(float)


def ones_columns(x: np.ndarray) -> SparseColumns:
    return sparse_columns(x != 0)._replace(values=np.empty(0, np.float32))


def incomplete_columns(x: np.ndarray) -> ColumnsWithMissingValues:
    """With values missing where they are -3."""
    places = [np.flatnonzero(column == -3) for column in x.T]
    offsets = np.cumsum([0, *map(len, places)])
    means = np.array([column[column != -3].mean() if (column != -3).any() else 0.0 for column in x.T])
    values = np.where(x == -3, 0, x).T.astype(np.int8)
    return ColumnsWithMissingValues(values.copy(), offsets, np.concatenate(places).astype(np.uint32), means)


def completed(x: np.ndarray) -> np.ndarray:
    return np.where(x == -3, incomplete_columns(x).means, x)


KINDS = {
    "sparse": (sparse_columns, lambda x: x),
    "sparse, float32": (lambda x: sparse_columns(x, np.float32), lambda x: x),
    "ones": (ones_columns, lambda x: (x != 0).astype(float)),
    "dense": (lambda x: DenseColumns(np.ascontiguousarray(x.T)), lambda x: x),
    "dense, float32": (lambda x: DenseColumns(np.ascontiguousarray(x.T, np.float32)), lambda x: x),
    "incomplete": (incomplete_columns, completed),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_columns_of_every_kind_are_multiplied_squared_and_gathered(kind, seed):
    held, plain = KINDS[kind]
    x, random = drawn(seed), np.random.default_rng(seed)
    columns, exact = held(x), plain(x)
    vector, weights, chosen = random.standard_normal(7), random.random(7), np.array([0, 3, 4, 8])
    found = np.empty(4)
    c.correlate(columns, chosen, vector, found)
    np.testing.assert_allclose(found, exact[:, chosen].T @ vector, atol=1e-12)
    c.squares(columns, chosen, weights, found)
    np.testing.assert_allclose(found, weights @ exact[:, chosen] ** 2, atol=1e-12)
    some = c.gather_columns(columns, chosen)
    np.testing.assert_allclose(c.dense_columns(some, 7), exact[:, chosen].T, atol=1e-15)
    np.testing.assert_allclose(
        c.dense_columns(c.scale_rows(some, weights), 7), exact[:, chosen].T * weights, atol=1e-15
    )
    total = np.empty(7)
    c.combine(some, np.array([1, 2]), np.array([9.0, 2.0, -1.0]), total)
    np.testing.assert_allclose(total, 2 * exact[:, 3] - exact[:, 4], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_as_good_as_all_columns_at_once(kind):
    held, plain = KINDS[kind]
    x = drawn(7)
    bounds = [0, 2, 3, 3, 9]
    blocks = [held(x[:, first:last]) for first, last in pairwise(bounds) if last > first]
    features, vector = BlockFeatures(blocks, 7), np.arange(7.0)
    assert features.count == 9
    for chosen in (np.arange(9), np.array([1, 2, 5]), np.array([8]), np.empty(0, np.int64)):
        np.testing.assert_allclose(features.correlations(chosen, vector), plain(x)[:, chosen].T @ vector, atol=1e-12)
        np.testing.assert_allclose(c.dense_columns(features.gather(chosen), 7), plain(x)[:, chosen].T, atol=1e-15)


def problem_of(seed: int, free: int, ridge: float) -> tuple[QuadraticProblem, np.ndarray, np.ndarray]:
    """A problem, its projected columns, and its target."""
    random, x = np.random.default_rng(seed), drawn(seed)
    basis = orthonormal(random.standard_normal((free, 7))).basis
    penalty = 0.3 + random.random(9)
    target = random.standard_normal(7) * 5
    project_out(basis, target)
    problem = quadratic_problem(sparse_columns(x), basis, penalty, np.full(9, ridge))
    return problem, x - basis.T @ (basis @ x), target


def exact_objective(problem: QuadraticProblem, a: np.ndarray, target: np.ndarray, b: np.ndarray) -> float:
    left = target - a @ b
    return 0.5 * left @ left + problem.l1 @ np.abs(b) + 0.5 * problem.l2 @ b**2


FREE = pytest.mark.parametrize("free", [0, 1, 3])
RIDGE = pytest.mark.parametrize("ridge", [0.0, 0.7])


@FREE
@RIDGE
@pytest.mark.parametrize("seed", range(4))
def test_a_sweep_finds_the_best_of_each_coordinate_in_turn(seed, free, ridge):
    problem, a, target = problem_of(seed, free, ridge)
    b, residual = np.zeros(9), target.copy()
    chosen = np.array([8, 2, 5, 2, 0])
    for _ in range(3):
        expected, turned = b.copy(), 0
        for j in chosen:
            before = np.sign(expected[j])
            others = target - a @ expected + a[:, j] * expected[j]
            slope, curvature = a[:, j] @ others, a[:, j] @ a[:, j] + ridge
            if curvature > 1e-9:
                expected[j] = np.sign(slope) * max(abs(slope) - problem.l1[j], 0) / curvature
            turned += np.sign(expected[j]) != before
        assert sweep(problem, chosen, b, residual, np.empty(len(problem.basis))) == turned
        np.testing.assert_allclose(b, expected, atol=1e-9)
        np.testing.assert_allclose(residual, target - a @ b, atol=1e-12)


BY_COLUMNS, BY_ROWS = 0.0, 1.0  # a share of the rows that no column, or each, has fewer values than


@reordered_kernel
def multiply_and_subtract(member, columns, active, memory, vector, found, residual):
    if member.rank == 0:
        arrange(columns, active, memory)
    thread_barrier(member)
    multiply(member, columns, active, memory, vector, found)
    subtract(member, columns, active, memory, vector, residual)


@pytest.mark.few(2)
@pytest.mark.parametrize("members", long_but([1, 3], [1, 2, 3, 11]))
@pytest.mark.parametrize(
    ("kind", "many"),
    [
        *product(("sparse", "sparse, float32"), (BY_COLUMNS, BY_ROWS)),
        ("dense", BY_COLUMNS),
        ("dense, float32", BY_COLUMNS),
    ],
)
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(0, 40), st.sampled_from([0.02, 0.2, 1.0]))
def test_products_of_a_gram_matrix_are_those_of_numpy(kind, many, members, seed, rows, size, density):
    """Of active sets without columns, too, and of rows without entries, and with more than have a loop of their own."""
    random = np.random.default_rng(seed)
    x = random.integers(-3, 4, (rows, 40)) * (random.random((rows, 40)) < density).astype(float)
    active = np.sort(random.permutation(40)[:size])
    columns, vector = KINDS[kind][0](x), random.standard_normal(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gram, "_MANY", many)
        memory = gram_memory(columns, rows)
    found, residual, pool = np.full(size, np.nan), np.ones(rows), ThreadPool(members)
    for _ in range(2):  # the second time over what the first has left there
        pool.run(multiply_and_subtract, columns, active, memory, vector, found, residual)
    np.testing.assert_allclose(found, x[:, active].T @ (x[:, active] @ vector), atol=1e-11)
    np.testing.assert_allclose(residual, 1 - 2 * x[:, active] @ vector, atol=1e-11)


@FREE
@RIDGE
@pytest.mark.parametrize("seed", range(4))
def test_conjugate_gradients_find_the_best_point_of_an_active_set(seed, free, ridge):
    """Of a smaller active set, if coefficients come to 0 on the way."""
    problem, a, target = problem_of(seed, free, ridge)
    random = np.random.default_rng(seed)
    b = np.where(random.random(9) < 0.5, random.standard_normal(9) * 3, 0.0)
    residual, work = target - a @ b, conjugate_gradients_scratch(problem, 7)
    before = np.sign(b)
    conjugate_gradient_steps(*ALONE.members, problem, support(b, work.active), 100, 0.0, b, residual, work)
    assert (b * before >= 0).all()
    assert not b[before == 0].any()
    np.testing.assert_allclose(residual, target - a @ b, atol=1e-9)
    active = np.flatnonzero(b)
    slope = a[:, active].T @ residual - problem.l2[active] * b[active] - problem.l1[active] * np.sign(b[active])
    assert np.abs(slope).max(initial=0.0) < 1e-2 * np.abs(a.T @ target).max()


@pytest.mark.parametrize("free", long_but([2], [0, 2]))
@pytest.mark.parametrize(("sparse", "many"), [(True, BY_ROWS), (True, BY_COLUMNS), (False, BY_COLUMNS)])
def test_a_thread_pool_finds_the_same_bits_as_one_thread(sparse, many, free, monkeypatch):
    """Neighbouring columns are alike, so that coefficients come to 0 on the way."""
    monkeypatch.setattr("samplers.regression.quadratic.descent._FEW", 0)
    monkeypatch.setattr(gram, "_MANY", many)
    random = np.random.default_rng(0)
    x = random.standard_normal((150, 400)) * (random.random((150, 400)) < 0.3)
    x[:, 1:] += 0.8 * x[:, :-1]
    columns = sparse_columns(x) if sparse else DenseColumns(x.T.astype(np.float32))
    basis = orthonormal(random.standard_normal((free, 150))).basis
    target = 10 * random.standard_normal(150)
    project_out(basis, target)
    problem, found = quadratic_problem(columns, basis, np.full(400, 3.0), np.full(400, 0.1)), []
    for members in (1, 2, 3):
        b, residual = np.zeros(400), target.copy()
        descend(problem, b, residual, 1.0, SolverLimit(), ThreadPool(members))
        found.append(b.tobytes() + residual.tobytes())
    assert np.count_nonzero(b) > 20
    assert found[0] == found[1] == found[2]


@FREE
@RIDGE
@pytest.mark.parametrize("seed", range(4))
def test_objective_and_gap_are_those_of_the_definitions(seed, free, ridge):
    problem, a, target = problem_of(seed, free, ridge)
    b = np.random.default_rng(seed).standard_normal(9) * (np.arange(9) % 2)
    residual = target - a @ b
    objective = exact_objective(problem, a, target, b)
    assert quadratic_objective(problem, b, residual) == pytest.approx(objective, rel=1e-12)
    scale = 1 / max(1, (np.abs(a.T @ residual - ridge * b) / problem.l1).max())
    theta = scale * residual
    dual = theta @ target - 0.5 * theta @ theta - 0.5 * scale**2 * ridge * b @ b
    gap = quadratic_gap(*ALONE.members, problem, b, residual, np.empty((4, CHUNKS)))
    assert gap == pytest.approx(objective - dual, rel=1e-10)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0, 1, 3]), st.sampled_from([0.0, 0.7]), st.booleans())
def test_descent_ends_at_the_gap_that_was_asked_for(seed, free, ridge, alike):
    problem, a, target = problem_of(seed, free, ridge)
    if alike:  # two columns are the same, and one is zero
        x = drawn(seed)
        x[:, 3], x[:, 4] = x[:, 2], 0
        problem = quadratic_problem(sparse_columns(x), problem.basis, problem.l1, problem.l2)
        a = x - problem.basis.T @ (problem.basis @ x)
    b, residual = np.zeros(9), target.copy()
    descend(problem, b, residual, 1e-10, SolverLimit())
    np.testing.assert_allclose(residual, target - a @ b, atol=1e-9)
    slopes = a.T @ residual - ridge * b
    assert (np.abs(slopes) <= problem.l1 * (1 + 1e-3) + 1e-9).all()
    objective = exact_objective(problem, a, target, b)
    theta = residual / max(1, (np.abs(slopes) / problem.l1).max())
    assert objective - (theta @ target - 0.5 * theta @ theta - 0.5 * ridge * b @ b) <= 1e-3 * (target @ target) + 1e-9


def test_free_columns_that_depend_on_each_other_are_left_out():
    random = np.random.default_rng(0)
    columns = random.standard_normal((4, 6))
    columns[1], columns[2] = 2 * columns[0], 0
    free = orthonormal(columns)
    assert free.kept.tolist() == [0, 3]
    np.testing.assert_allclose(free.basis @ free.basis.T, np.eye(2), atol=1e-14)
    target = random.standard_normal(6)
    expected = np.linalg.lstsq(columns[[0, 3]].T, target, rcond=None)[0]
    np.testing.assert_allclose(free.coefficients(target), [expected[0], 0, 0, expected[1]], atol=1e-12)
