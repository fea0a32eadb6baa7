"""What the paper proves and shows of convergence, on a quadratic of 200 dimensions that do not interact: 200 runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from corpora import InProcessProgram
from factorizations import written

from blocks.ratings.matrix import Matrix
from ooc.workers.worker import ProgramSpec

ROWS = 240


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return written(tmp_path_factory.mktemp("matrix"), np.ones((ROWS, 1)), np.ones((ROWS, 1), bool), grid=3)


def passes(matrix: Matrix, count: int, *, seed: int = 0, **options: object) -> Iterator[np.ndarray]:
    """The distance of each coordinate from the optimum, after each pass."""
    with InProcessProgram(matrix, ProgramSpec("stochastic_programs:Quadratic", {"seed": seed, **options})) as chain:
        for _ in range(count):
            chain.iterate()
            yield chain.program.variables(chain.shared)["w"] - 1


@pytest.mark.parametrize("degree", [1, 8])
def test_the_error_falls_as_one_over_the_samples(matrix, degree):
    """Theorem 2: E|w - w*|^2 is about c / (Tmn), of T synchronizations of m workers with n samples each."""
    counts = np.array([1, 2, 4, 8, 16, 32])
    errors = np.array([np.square(w).mean() for w in passes(matrix, 32, parallelism=degree)])[counts - 1]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-1, abs=0.2)


def test_workers_that_see_a_share_each_do_as_one_that_sees_all(matrix):
    """The error of eight is that of one but for terms that fall faster (equation 16), and there is no bias."""
    one, eight = ([*passes(matrix, 16, parallelism=degree)][-1] for degree in (1, 8))
    assert np.square(eight).mean() < 1.5 * np.square(one).mean()
    assert abs(eight.mean()) < 4 * eight.std() / np.sqrt(eight.size)


@pytest.mark.parametrize("strategy", ["average", "accumulate"])
def test_averages_without_weights_lag_and_sums_diverge(matrix, strategy):
    """Section 4.1: eight workers, three passes, at rates of 1 / sqrt(t); sums diverge at constant ones."""
    steps = {"rate": 0.05, "power": 0.5 if strategy == "average" else 0.0}
    naive, splash = (
        np.square([*passes(matrix, 3, parallelism=8, strategy=chosen, **steps)][-1]).mean()
        for chosen in (strategy, "reweight")
    )
    assert naive > (5 if strategy == "average" else 1000) * splash


def test_the_mean_of_all_iterates_converges(matrix):
    """Theorem 1."""
    options = {"parallelism": 8, "rate": 0.3, "power": 0.5}
    with InProcessProgram(matrix, ProgramSpec("stochastic_programs:Quadratic", options)) as chain:
        chain.iterate(10)
        mean = chain.program.variables(chain.shared)["w_mean"]
    assert np.abs(mean - 1).mean() < 0.1
