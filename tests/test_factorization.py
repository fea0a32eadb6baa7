"""Factorization: kernels against references written otherwise, objectives that fall, factors that are found again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from corpora import InProcessProgram
from factorizations import planted, program_spec, written
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blocks.errors import WorkFailed
from blocks.ratings.matrix import Matrix
from ooc.workers.worker import ProgramSpec
from samplers.factorization import als, ccd, sgd
from samplers.factorization.row_kernels import LEAST, RowPenalty
from samplers.factorization.simd import LANE
from samplers.programs import target

F = np.float32
METHODS = ["ccd", "als", "sgd"]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return written(tmp_path_factory.mktemp("matrix"), *planted(90, 40, 3, 0.3), grid=4)


@contextmanager
def small(rows: int, columns: int, seed: int, grid: int) -> Iterator[Matrix]:
    with tempfile.TemporaryDirectory() as directory:
        yield written(Path(directory), *planted(rows, columns, 2, 0.5, seed), grid=grid)


def dense_factors(chain: InProcessProgram) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values float64 (D, I), which are known, and the factors of rows and columns, in the order inside."""
    matrix = chain.dataset
    values, known = np.zeros((matrix.rows, matrix.columns)), np.zeros((matrix.rows, matrix.columns), bool)
    for number in range(matrix.block_count):
        block, first = matrix.block(number), int(matrix.index.block_bounds[number])
        for row in range(block.rows.size):
            mine = slice(block.offsets[row], block.offsets[row + 1])
            values[first + row, block.columns[mine]], known[first + row, block.columns[mine]] = block.values[mine], True
    return values, known, chain.shared["rows"].astype(float), chain.shared["columns"].astype(float)


def dense_objective(chain: InProcessProgram) -> float:
    values, known, rows, columns = dense_factors(chain)
    program = chain.program
    errors = np.where(known, values - program.mean - rows @ columns.T, 0)
    rows[:, 1] -= program.biases  # they hold 1 there, which nobody pays for
    columns[:, 0] -= program.biases
    penalties = 0.0
    for factors, entries in ((rows, known.sum(axis=1)), (columns, known.sum(axis=0))):
        weights = entries if program.penalty.per_entry else np.ones(len(factors))
        penalties += float(weights @ (factors**2).sum(axis=1))
    return float((errors**2).sum()) + float(program.penalty.regularization) * penalties


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_the_objective_is_that_of_the_dense_matrix(matrix, method, biases):
    with InProcessProgram(matrix, program_spec(method, biases=biases)) as chain:
        chain.iterate(2)
        assert chain.objective()["objective"] == pytest.approx(dense_objective(chain), rel=1e-5)
        if biases:
            assert (chain.shared["rows"][:, 1] == 1).all()
            assert (chain.shared["columns"][:, 0] == 1).all()
            assert np.ptp(chain.shared["rows"][:, 0]) > 0
            assert np.ptp(chain.shared["columns"][:, 1]) > 0


@settings(deadline=None, max_examples=25)
@given(
    st.integers(2, 12),
    st.integers(2, 9),
    st.integers(0, 99),
    st.integers(1, 3),
    st.integers(1, 20),
    st.sampled_from([{}, {"biases": True}, {"nonnegative": True}]),
    st.sampled_from(["entry", "row"]),
)
def test_coordinate_descent_never_raises_the_objective(rows, columns, seed, grid, rank, extra, penalty):
    """After each phase, for any shape, more factors than entries, and more than a tile of them."""
    options = {"rank": rank, "seed": seed, "penalty": penalty, **extra}
    with ExitStack() as stack:
        matrix = stack.enter_context(small(rows, columns, seed, grid))
        assume("nonnegative" not in extra or matrix.high > 0)  # else it is refused
        chain = stack.enter_context(InProcessProgram(matrix, program_spec("ccd", **options)))
        before = dense_objective(chain)
        for _ in range(3):
            for phase in chain.program.phases:
                chain._run(phase)
                after = dense_objective(chain)
                assert after <= before * (1 + 1e-5)
                before = after
        if "nonnegative" in extra:
            assert min(chain.shared["rows"].min(), chain.shared["columns"].min()) >= 0
        assert not chain.shared["rows"][:, chain.program.used :].any()


def test_coordinate_descent_takes_the_best_of_each_factor_in_turn(matrix):
    """One phase against equation 3, entry by entry in float64."""
    with InProcessProgram(matrix, program_spec("ccd", rank=5, penalty="row")) as chain:
        values, known, rows, columns = dense_factors(chain)
        program = chain.program
        for i in range(len(rows)):
            others, residuals = columns[known[i]], values[i, known[i]] - program.mean - columns[known[i]] @ rows[i]
            for k in range(program.rank):
                h = others[:, k]
                best = ((residuals + rows[i, k] * h) * h).sum() / (program.penalty.regularization + (h * h).sum())
                residuals -= (best - rows[i, k]) * h
                rows[i, k] = best
        chain._run(program.phases[0])
        assert np.allclose(chain.shared["rows"], rows, atol=1e-4)


@pytest.mark.parametrize("method", METHODS[:2])
def test_methods_converge_to_what_alternating_solutions_do(matrix, method):
    """The same objective as exact alternating least squares, by dense solutions, from the same start, to 1e-6."""
    with InProcessProgram(matrix, program_spec(method, regularization=2.0, penalty="row")) as chain:
        values, known, rows, columns = dense_factors(chain)
        mean, penalty = chain.program.mean, 2.0 * np.eye(chain.program.width)
        for _ in range(200):
            for mine, others, table, has in ((rows, columns, values, known), (columns, rows, values.T, known.T)):
                for i in range(len(mine)):
                    h = others[has[i]]
                    mine[i] = np.linalg.solve(h.T @ h + penalty, h.T @ (table[i, has[i]] - mean))
        errors = np.where(known, values - mean - rows @ columns.T, 0)
        best = (errors**2).sum() + 2.0 * ((rows**2).sum() + (columns**2).sum())
        chain.iterate(200)
        assert chain.objective()["objective"] == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_planted_matrix_is_found_again(tmp_path, method):
    """Rank 3, a third of the entries, no noise: the others are told to within a hundredth of their spread."""
    dense, known = planted(150, 80, 3, 0.35)
    options = {"rank": 3, "center": False, "regularization": 1e-3}
    with InProcessProgram(written(tmp_path, dense, known, grid=4), program_spec(method, **options)) as chain:
        chain.iterate(150)
        _, seen, rows, columns = dense_factors(chain)
        matrix = chain.dataset
        lines = np.concatenate([matrix.block(number).rows for number in range(matrix.block_count)])
        row_names, column_names = np.array(matrix.row_names(), int), np.array(matrix.column_names(), int)
        truth = dense[np.ix_(row_names[lines], column_names[matrix.index.column_ids])]
        missing = (rows @ columns.T - truth)[~seen]
        assert np.sqrt((missing**2).mean()) < 0.01 * truth.std()


@pytest.mark.parametrize("biased", [False, True])
def test_stochastic_gradient_is_what_its_formulas_say(biased):
    """A cell of three rows against plain Python in float64: two of them take turns, one up and one down, then the
    first and the third; in the first pass there are the leading places only."""
    random = np.random.default_rng(1)
    rows, columns = (random.normal(size=(n, 32)).astype(F) * F(0.3) for n in (3, 4))
    if biased:
        rows[:, 1] = columns[:, 0] = 1.0
    values, ranks = random.normal(size=7).astype(F), np.array([0, 2, 3, 1, 2, 0, 1], np.uint32)
    offsets = np.array([0, 3, 5, 7])
    expected = [array.astype(float) for array in (rows, columns)]
    squares = np.ones((3, 2)), np.ones((4, 2))
    found = rows.copy(), columns.copy(), np.ones((3, 2), F), np.ones((4, 2), F)
    for first_pass in (True, False):
        ratings = sgd.RatingRows(offsets[1:], ranks, values, np.zeros(3, np.int64))
        sgd.rewind(ratings, offsets, 0)
        steps = sgd.SgdStepParameters(
            F(0.5),
            F(0.1),
            F(0.05),
            np.array([[0.5 / 16, 0.5 / 14], [2 / 16, 2 / 14]], F),
            1 if biased else -1,
            first_pass,
        )
        loss = sgd.sweep_cell(ratings, np.uint32(4), *found, steps, np.zeros((3, 2), np.int64))
        assert ratings.following.tolist() == offsets[1:].tolist()
        total = 0.0
        for d, j in zip((0, 1, 0, 1, 0, 2, 2), (0, 4, 1, 3, 2, 6, 5), strict=True):
            w, h = expected[0][d], expected[1][ranks[j]]
            there = 16 if first_pass else 32
            error = values[j] - 0.5 - w[:there] @ h[:there]
            total += error**2
            along = error * h - 0.05 * w, error * w - 0.05 * h
            for part, where, places in ((0, slice(0, 16), 16), (1, slice(16, 32), 14)):
                if part == 1 and first_pass:
                    continue
                sides = (w, along[0], squares[0], d, 0.5), (h, along[1], squares[1], ranks[j], 2)
                for factor, step, sums, place, counted in sides:
                    factor[where] += 0.1 / np.sqrt(sums[place, part]) * step[where]
                    sums[place, part] += counted * (step[where] ** 2).sum() / places
            if biased:
                w[1] = h[0] = 1.0
        assert loss == pytest.approx(total, rel=1e-5)
        for mine, its in zip(found, (*expected, *squares), strict=True):
            assert np.allclose(mine, its, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_the_unit_of_the_values_does_not_matter(tmp_path, method):
    """Values ten times as high, and a penalty that is: errors ten times as high after each iteration."""
    dense, known = planted(40, 30, 2, 0.5)
    errors = []
    for unit in (1.0, 10.0):
        (tmp_path / f"{unit}").mkdir()
        matrix = written(tmp_path / f"{unit}", dense * unit, known, grid=3)
        with InProcessProgram(matrix, program_spec(method, regularization=0.1 * unit)) as chain:
            chain.iterate(4)
            errors.append(chain.objective()["rmse"] / unit)
    assert errors[0] == pytest.approx(errors[1], rel=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_enough_conjugate_gradients_solve_the_system(alpha):
    """Ratings, and counts with confidences: against numpy's solution of the dense system."""
    random = np.random.default_rng(2)
    others = random.normal(size=(30, 16)).astype(F)
    columns, values = random.choice(30, 12, replace=False).astype(np.uint32), random.integers(1, 6, 12).astype(F)
    gram = others.T @ others if alpha else np.zeros((0, 0), F)
    row = np.zeros((1, 16), F)
    work = als.ConjugateGradientScratch(*np.zeros((3, 16), F))
    solver = -1, RowPenalty(F(0.5), False), 100, work
    als.solve_rows(
        np.array([0, 12]), columns, values, F(0.0), als.ImplicitConfidences(F(alpha)), gram, row, others, *solver
    )
    h = others[columns].astype(float)
    extra = alpha * values if alpha else np.ones(12)
    target = 1 + extra if alpha else values
    system = (h.T * extra) @ h + 0.5 * np.eye(16) + (others.T.astype(float) @ others if alpha else 0)
    assert np.allclose(row[0], np.linalg.solve(system, h.T @ target), rtol=1e-3, atol=1e-4)


def test_rows_and_columns_are_treated_alike():
    """Coordinate descent over the columns of a matrix is that over the rows of its transpose."""
    dense, known = planted(20, 12, 2, 0.6)
    random = np.random.default_rng(5)
    factors = random.normal(size=(20, 16)).astype(F), random.normal(size=(12, 16)).astype(F)
    results = []
    for table, has, start, others in ((dense, known, *factors), (dense.T, known.T, *factors[::-1])):
        mine = start.copy()
        offsets = np.concatenate(([0], np.cumsum(has.sum(axis=1)))).astype(np.int64)
        columns, values = np.nonzero(has)[1].astype(np.uint32), table[has].astype(F)
        longest = int(has.sum(axis=1).max())
        work = ccd.DescentScratch(np.empty(longest, F), np.empty((LANE, longest), F))
        ccd.sweep_rows(offsets, columns, values, F(0.1), mine, others, 16, -1, RowPenalty(F(0.5), False), LEAST, work)
        results.append(mine)
    with_rows, with_columns = results
    assert with_rows.shape == (20, 16)
    assert with_columns.shape == (12, 16)
    again = factors[1].copy()
    for i in range(12):
        h, residuals = factors[0][known[:, i]].astype(float), dense[known[:, i], i] - 0.1
        w = factors[1][i].astype(float)
        residuals = residuals - h @ w
        for k in range(16):
            best = ((residuals + w[k] * h[:, k]) * h[:, k]).sum() / (0.5 + (h[:, k] ** 2).sum())
            residuals -= (best - w[k]) * h[:, k]
            w[k] = best
        again[i] = w
    assert np.allclose(with_columns, again, atol=1e-3)


@pytest.mark.parametrize("penalty", ["row", "entry"])
def test_the_implicit_objective_is_that_of_all_cells(tmp_path, penalty):
    """Against the dense formula of Hu, Koren and Volinsky; it falls in every phase."""
    random = np.random.default_rng(4)
    counts = random.integers(1, 6, (40, 25)).astype(float)
    known = random.random(counts.shape) < 0.2
    known[:, 0] = known[0] = True
    options = {"alpha": 3.0, "regularization": 0.5, "rank": 5, "penalty": penalty}
    spec = ProgramSpec(target("mf-implicit"), {"seed": 7, **options})
    with InProcessProgram(written(tmp_path, counts, known, grid=4), spec) as chain:
        before = np.inf
        for _ in range(5):
            for phase in chain.program.phases:
                chain._run(phase)
                values, has, rows, columns = dense_factors(chain)
                confidence = 1 + 3.0 * np.where(has, values, 0)
                errors = confidence * (has - rows @ columns.T) ** 2
                sides = (rows, has.sum(axis=1)), (columns, has.sum(axis=0))
                weights = [np.ones_like(counts) if penalty == "row" else counts for _, counts in sides]
                squares = [(side**2).sum(axis=1) @ weight for (side, _), weight in zip(sides, weights, strict=True)]
                after = errors.sum() + 0.5 * sum(squares)
                assert after <= before * (1 + 1e-6)
                before = after
        assert chain.objective()["objective"] == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_steps_go_against_the_gradient(matrix, method):
    """Where a method stands still the gradient of the dense objective is small beside that at its start."""
    with InProcessProgram(matrix, program_spec(method, biases=True, regularization=0.2)) as chain:
        first = _gradient(chain)
        chain.iterate(300)
        assert _gradient(chain) < (0.05 if method == "sgd" else 1e-3) * first


def _gradient(chain: InProcessProgram) -> float:
    """The length of the gradient of the objective for each entry, of all that may change."""
    values, known, rows, columns = dense_factors(chain)
    program = chain.program
    errors = np.where(known, values - program.mean - rows @ columns.T, 0)
    total = 0.0
    for mine, others, wrong, has, fixed in ((rows, columns, errors, known, 1), (columns, rows, errors.T, known.T, 0)):
        gradient = -wrong @ others + float(program.penalty.regularization) * has.sum(axis=1)[:, None] * mine
        gradient[:, fixed] = 0
        total += float((gradient**2).sum())
    return float(np.sqrt(total))


def test_a_matrix_and_its_transpose_have_the_same_objective(tmp_path):
    """Whichever side is called the rows: alternating least squares of both end in the same place."""
    dense, known = planted(30, 22, 2, 0.5)
    ends = []
    for name, values, has in (("m", dense, known), ("t", dense.T, known.T)):
        (tmp_path / name).mkdir()
        options = {"rank": 2, "regularization": 0.5, "penalty": "row"}
        with InProcessProgram(written(tmp_path / name, values, has, grid=3), program_spec("als", **options)) as chain:
            chain.iterate(300)
            ends.append(chain.objective()["objective"])
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_one_replica_of_all_columns_takes_the_steps_of_a_single_worker(matrix):
    """Block by block, each from all columns as the one before left them: plain descent over the rows."""
    options = {"rank": 5, "seed": 3}
    with InProcessProgram(matrix, program_spec("bsp", replicas=1, **options)) as chain:
        program, shared = chain.program, {name: array.copy() for name, array in chain.shared.items()}
        for number in range(matrix.block_count):
            block, mine = matrix.block(number), slice(*matrix.index.block_bounds[number : number + 2])
            program._sweep(block, mine, [0, matrix.columns], shared, rewound=True, first_pass=True)
        chain.iterate(1)
        for name in ("rows", "columns", "row_squares", "column_squares"):
            assert np.allclose(chain.shared[name], shared[name], atol=1e-6)


@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_what_replicas_change_is_averaged_or_summed_up(matrix, combine):
    """Of two blocks that begin with the same columns: each replica on its own, then put together."""
    spec = program_spec("bsp", replicas=2, combine=combine)
    with InProcessProgram(matrix, spec) as chain:
        before = {name: array.copy() for name, array in chain.shared.items()}
        changes = []
        for number in (0, 1):
            copy = {name: array.copy() for name, array in before.items()}
            mine = slice(*matrix.index.block_bounds[number : number + 2])
            chain.program._sweep(matrix.block(number), mine, [0, matrix.columns], copy, rewound=True, first_pass=True)
            changes.append(copy["columns"] - before["columns"])
        phase = chain.program.phases[0]
        chain.program.aggregate(phase, chain.shared, [], next(chain._stages(phase)))
        expected = before["columns"] + sum(changes) / (2 if combine == "mean" else 1)
        assert np.allclose(chain.shared["columns"], expected, atol=1e-6)
        assert np.ptp(changes[0]) > 0


def test_steps_that_are_too_long_end_the_training_and_say_so(matrix):
    with (
        InProcessProgram(matrix, program_spec("sgd", rate=500.0)) as chain,
        pytest.raises(WorkFailed, match="500 is too long"),
    ):
        chain.iterate(20)
