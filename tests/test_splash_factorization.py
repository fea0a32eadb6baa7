"""Factorization by the gradients of items alone: the users' vectors, the gradient, what workers come to, the model."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from corpora import InProcessProgram
from factorizations import planted, written

from blocks.ratings.matrix import Matrix
from ooc.workers.worker import ProgramSpec
from samplers.factorization.model import FactorModel
from samplers.factorization.splash import solve
from samplers.programs import target


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return written(tmp_path_factory.mktemp("matrix"), *planted(200, 30, 3, 0.4), grid=3)


def chain_of(matrix: Matrix, **options: object) -> InProcessProgram:
    defaults = {"rank": 3, "regularization": 0.02, "seed": 7, "parallelism": 1}
    return InProcessProgram(matrix, ProgramSpec(target("mf-splash"), defaults | options))


def best_users(matrix: Matrix, items: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    """Vectors of all users, by NumPy, and the sum of what they leave: equation 18 but for the items' penalty."""
    users, total, mean = [], 0.0, matrix.mean
    for number in range(matrix.block_count):
        block = matrix.block(number)
        for row in range(block.rows.size):
            mine = slice(*block.offsets[row : row + 2])
            v, a = items[block.columns[mine]], block.values[mine] - mean
            u = np.linalg.solve(v.T @ v + penalty * np.eye(v.shape[1]), v.T @ a)
            users.append(u)
            total += float(np.square(v @ u - a).sum() + penalty * np.square(u).sum())
    return np.array(users), total


def test_systems_are_solved():
    random = np.random.default_rng(0)
    half, right = random.normal(size=(7, 7)), random.normal(size=7)
    gram, found = half @ half.T + np.eye(7), right.copy()
    solve(gram.copy(), found)
    assert np.allclose(gram @ found, right)


def test_the_objective_and_the_users_are_those_of_the_dense_formula(matrix):
    with chain_of(matrix) as chain:
        chain.iterate(2)
        told, items = chain.objective(), chain.shared["items"][:, :3].astype(float)
        users, total = best_users(matrix, items, 0.02)
        penalty = 0.02 * float(np.sum(np.square(items).sum(axis=1) * matrix.index.column_entries))
        assert told["objective"] == pytest.approx(total + penalty, rel=1e-5)
        assert np.allclose(chain.shared["local.user"][:, :3], users, atol=1e-3)
        assert not chain.shared["items"][:, 3:].any()


def test_a_pass_of_tiny_steps_goes_against_the_gradient(matrix):
    """Where rates are all but constant, the items move along minus the gradient of equation 18."""
    with chain_of(matrix, rate=0.01) as chain:
        chain.shared["squares"][:] = 1e6
        before = chain.shared["items"][:, :3].astype(float)
        chain.iterate()
        moved = chain.shared["items"][:4, :3].astype(float) - before[:4]

    def objective(items: np.ndarray) -> float:
        penalty = 0.02 * float(np.sum(np.square(items).sum(axis=1) * matrix.index.column_entries))
        return best_users(matrix, items, 0.02)[1] + penalty

    gradient = np.zeros((4, 3))
    for place in np.ndindex(4, 3):
        change = np.zeros_like(before)
        change[place] = 1e-4
        gradient[place] = (objective(before + change) - objective(before - change)) / 2e-4
    assert np.allclose(moved * 1e5, -gradient, rtol=0.1, atol=0.05 * np.abs(gradient).max())


def adagrad(matrix: Matrix, passes: int, workers: int, rate: float, penalty: float, rank: int, seed: int) -> np.ndarray:
    """The items after some passes, by line of columns.txt: equation 18's gradient by the rule of AdaGrad, in plain
    Python. A worker has a run of the rows, each of which counts for as many as there are workers, both in the steps and
    in the sums of squares; after a pass the items, and the sums, of all workers are averaged."""
    rows = []
    for number in range(matrix.block_count):
        block = matrix.block(number)
        for first, last in pairwise(block.offsets.tolist()):
            rows.append((matrix.index.column_ids[block.columns[first:last]], block.values[first:last] - matrix.mean))
    items = np.abs(np.random.default_rng(seed).normal(size=(matrix.columns, rank)))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    squares = np.zeros_like(items)
    for _ in range(passes):
        found = []
        for worker in range(workers):
            v, sums = items.copy(), squares.copy()
            for columns, values in rows[len(rows) * worker // workers : len(rows) * (worker + 1) // workers]:
                u = np.linalg.solve(v[columns].T @ v[columns] + penalty * np.eye(rank), v[columns].T @ values)
                for column, value in zip(columns.tolist(), values.tolist(), strict=True):
                    gradient = 2 * (u @ v[column] - value) * u + 2 * penalty * v[column]
                    sums[column] += workers * gradient**2
                    v[column] -= rate * workers * gradient / np.sqrt(sums[column] + 1e-12)
            found.append((v, sums))
        items, squares = (np.mean(each, axis=0) for each in zip(*found, strict=True))
    return items


@pytest.mark.parametrize("workers", [1, 3])
def test_the_weight_of_a_row_counts_in_the_steps_and_in_the_sums_of_squares(
    tmp_path: Path, ooc: Ooc, workers: int
) -> None:
    written(tmp_path, *planted(60, 12, 2, 0.6), grid=2)
    command = ("train", "mf", "matrix", "run", "--method", "splash", "--rank", 2, "--iterations", 3, "--seed", 5)
    done = ooc(*command, "--parallelism", workers, "--rate", 0.1, "--regularization", 0.05, "--workers", 1)
    assert done.returncode == 0, done.stderr
    expected = adagrad(Matrix(tmp_path / "matrix"), 3, workers, rate=0.1, penalty=0.05, rank=2, seed=5)
    found = FactorModel(tmp_path / "run" / "model").columns.factors
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_workers_find_what_one_finds(matrix):
    found = []
    for degree in (1, 6):
        with chain_of(matrix, parallelism=degree, sync_per_pass=2, rate=0.2) as chain:
            chain.iterate(25)
            found.append(chain.objective()["rmse"])
    assert found[0] < 0.15 * matrix.deviation
    assert found[1] < 0.2 * matrix.deviation


def test_at_the_command_line(tmp_path: Path, ooc: Ooc) -> None:
    dense, known = planted(150, 20, 2, 0.6)
    held = known & (np.random.default_rng(1).random(known.shape) < 0.1)
    held[:, 0] = held[0] = False
    for name, chosen in (("ratings", known & ~held), ("others", held)):
        lines = (f"u{row}\ti{column}\t{float(dense[row, column])!r}\n" for row, column in np.argwhere(chosen).tolist())
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    assert ooc("ingest", "ratings", "ratings.tsv", "ratings").returncode == 0
    assert ooc("ingest", "ratings", "others.tsv", "others", "--names-from", "ratings").returncode == 0
    command = ("train", "mf", "ratings", "run", "--rank", 2, "--method", "splash", "--iterations", 30)
    done = ooc(*command, "--parallelism", 3, "--rate", 0.2, "--held-out", "others", "--json")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout)
    assert last["held_out_rmse"] < 0.5 * dense.std()
    model = FactorModel(tmp_path / "run" / "model")
    assert model.rank == 2
    done = ooc("recommend", "run", "--user", "u3", "--top", 2)
    assert len(done.stdout.splitlines()) == 2
    refused = ooc("train", "mf", "ratings", "no", "--rank", 2, "--method", "sgd", "--sync-per-pass", 2)
    assert refused.returncode == 2
    assert "--sync-per-pass cannot be used with --method sgd" in refused.stderr
