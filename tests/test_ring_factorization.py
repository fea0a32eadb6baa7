"""Factorization on a ring: several engines in one process, each with workers of its own, over shards of one matrix."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from corpora import model_bytes, plan
from rings import in_all, tcp_rings
from test_factorization import planted, written

from blocks.matrix import Matrix
from blocks.shards import make_shards
from ooc.run import Run, create_run
from ooc.training import train
from ooc.worker import ProgramSpec
from samplers.factor_model import FactorModel
from samplers.rating_errors import evaluate_ratings

PROGRAMS = {
    "StochasticGradient": "samplers.ring_gradient:RingGradient",
}
OPTIONS = {"rank": 6, "regularization": 0.02, "biases": True, "seed": 7}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """A noisy matrix, of so many entries that on a ring of one rank a slice has several parts."""
    dense, known = planted(1000, 200, 3, 0.75)
    dense += 0.5 * np.random.default_rng(4).normal(size=dense.shape)
    return written(tmp_path_factory.mktemp("whole"), dense, known, grid=4)


@pytest.fixture(scope="module")
def shards(whole, tmp_path_factory):
    """The matrix in a number of shards."""
    made: dict[int, list[Matrix]] = {}

    def shards_of(count: int) -> list[Matrix]:
        if count not in made:
            out = tmp_path_factory.mktemp("shards") / "out"
            made[count] = make_shards(whole.path, str(out), count, workers=1)  # type: ignore[assignment]
        return made[count]

    return shards_of


def train_all(runs: list[Run], workers: int = 1, *, mapped: bool = False) -> None:
    """Train a run at each rank of a ring."""
    with tcp_rings(len(runs), insecure=True) as rings:
        in_all(
            [
                lambda run=run, ring=ring: train(run, plan(workers, mapped=mapped), quiet=True, ring=ring)
                for run, ring in zip(runs, rings, strict=True)
            ]
        )


def new_runs(root: Path, datasets: list[Matrix], method: str, iterations: int = 4, **options: object) -> list[Run]:
    root.mkdir(exist_ok=True)
    spec = ProgramSpec(PROGRAMS[method], OPTIONS | options)
    length = {"iterations": iterations, "evaluate_every": 1, "settings": {"staleness": 0}}
    return [create_run(root / f"run-{i}", shard, spec, **length) for i, shard in enumerate(datasets)]


def one_machine(path: Path, matrix: Matrix, method: str, iterations: int) -> Run:
    spec = ProgramSpec(f"samplers.factorization_programs:{method}", OPTIONS)
    run = create_run(path, matrix, spec, iterations=iterations, evaluate_every=1)
    train(run, plan(), quiet=True)
    return run


def told(run: Run, name: str) -> list[float]:
    return [line[name] for line in run.metrics()]


@pytest.mark.parametrize("method", PROGRAMS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_model_is_of_the_whole_and_as_good_as_that_of_one_machine(tmp_path, whole, shards, ranks, method):
    """All users and items with their names, in the original order; errors are of all, the same at every rank."""
    runs = new_runs(tmp_path / "ring", shards(ranks), method, iterations=8)
    train_all(runs)
    model = FactorModel(runs[0].path / "model")
    one = one_machine(tmp_path / "one", whole, method, 8)
    expected = FactorModel(one.path / "model")
    for side, other in ((model.rows, expected.rows), (model.columns, expected.columns)):
        assert side.names == other.names
        assert np.array_equal(side.entries, other.entries)
    assert list(model.problems()) == []
    assert told(runs[0], "rmse")[-1] == pytest.approx(evaluate_ratings(model, whole)["rmse"], rel=1e-5)
    assert told(runs[0], "rmse")[-1] == pytest.approx(told(one, "rmse")[-1], rel=0.02)
    assert told(runs[0], "objective")[-1] == pytest.approx(told(one, "objective")[-1], rel=0.02)
    for run in runs[1:]:
        assert not (run.path / "model").exists()
        assert told(run, "objective") == told(runs[0], "objective")


@pytest.mark.parametrize("method", PROGRAMS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_bytes_do_not_depend_on_workers_or_memory(tmp_path, shards, ranks, method):
    """On one rank a slice has several parts, which several workers have at the same time."""
    models = []
    for name, workers, mapped in (("a", 1, False), ("b", 3, False), ("c", 2, True)):
        runs = new_runs(tmp_path / name, shards(ranks), method)
        train_all(runs, workers, mapped=mapped)
        models.append(model_bytes(runs[0].path))
    assert models[0] == models[1] == models[2]


@pytest.mark.parametrize("method", PROGRAMS)
def test_a_run_goes_on_to_the_same_bytes(tmp_path, shards, method):
    """After a stop, and where one rank has not made the last commit, or not told of it: the others go back."""
    whole = new_runs(tmp_path / "whole", shards(3), method, iterations=5)
    train_all(whole)
    runs = new_runs(tmp_path / "parts", shards(3), method, iterations=2)
    train_all(runs)
    shutil.copytree(runs[1].path / "state", tmp_path / "before")
    runs[1].keep_metrics(1)
    for run in runs:
        run.set_iterations(3)
    train_all(runs, workers=2)
    shutil.rmtree(runs[1].path / "state")
    shutil.copytree(tmp_path / "before", runs[1].path / "state")
    for run in runs:
        run.set_iterations(5)
    train_all(runs)
    assert model_bytes(runs[0].path) == model_bytes(whole[0].path)
    assert told(runs[0], "iteration") == [1, 2, 3, 4, 5]
    assert len({told(run, "rmse")[-1] for run in (*runs, *whole)}) == 1
