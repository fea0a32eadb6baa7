"""Factorization on a ring: several engines in one process, each with workers of its own, over shards of one matrix."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from corpora import model_bytes
from factorizations import new_runs, one_machine, planted, told, train_all, written
from long_mark import long_but

from blocks.ratings.matrix import Matrix
from blocks.shards.splitting import make_shards
from samplers.factorization.model import FactorModel
from samplers.factorization.observer import check_held_out_ratings
from samplers.factorization.programs import ON_RING
from samplers.factorization.rating_errors import evaluate_ratings

# Of the methods that gather columns the first shows that nothing depends on workers or stops: the others take long.
FEW = ("sgd", "ccd")
STOCHASTIC = ("sgd", "splash")
METHODS = [*FEW, *(pytest.param(method, marks=pytest.mark.long) for method in ON_RING if method not in FEW)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """A noisy matrix above 0, of so many entries that on a ring of one rank a slice has several parts."""
    dense, known = planted(1000, 200, 3, 0.75)
    dense += 0.5 * np.random.default_rng(4).normal(size=dense.shape)
    return written(tmp_path_factory.mktemp("whole"), dense - dense.min() + 0.1, known, grid=4)


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


@pytest.mark.few(1)
@pytest.mark.parametrize("method", ON_RING)
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3])
def test_the_model_is_of_the_whole_and_as_good_as_that_of_one_machine(tmp_path, whole, shards, ranks, method):
    """All users and items with their names, in the original order; the objective is of all, the same at every rank.

    It is that of one machine but for the order of sums, whose rounding grows from iteration to iteration; stochastic
    gradients take their steps in another order.
    """
    iterations = 8 if method in STOCHASTIC else 4
    runs = new_runs(tmp_path / "ring", shards(ranks), method, iterations=iterations)
    train_all(runs)
    model = FactorModel(runs[0].path / "model")
    one = one_machine(tmp_path / "one", whole, method, iterations)
    expected = FactorModel(one.path / "model")
    for side, other in ((model.rows, expected.rows), (model.columns, expected.columns)):
        assert side.names == other.names
        assert np.array_equal(side.entries, other.entries)
    assert list(model.problems()) == []
    if method != "implicit":
        assert told(runs[0], "rmse")[-1] == pytest.approx(evaluate_ratings(model, whole)["rmse"], rel=1e-5)
    if method in STOCHASTIC:
        assert told(runs[0], "objective")[-1] == pytest.approx(told(one, "objective")[-1], rel=0.02)
    else:
        assert told(runs[0], "objective")[0] == pytest.approx(told(one, "objective")[0], rel=1e-6)
        assert told(runs[0], "objective") == pytest.approx(told(one, "objective"), rel=1e-4)
    for run in runs[1:]:
        assert not (run.path / "model").exists()
        assert told(run, "objective") == told(runs[0], "objective")


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ccd", {"biases": False, "nonnegative": True}),
        ("ccd", {"rank": 35, "penalty": "row", "regularization": 1.0}),
        ("als", {"biases": False, "penalty": "row", "steps": 1}),
        ("implicit", {"rank": 20, "regularization": 1.0}),
        ("implicit", {"rank": 5, "penalty": "entry", "regularization": 0.05}),
    ],
)
def test_options_mean_what_they_do_on_one_machine(tmp_path, method, options):
    """More factors than are taken together, other penalties, and none below 0."""
    dense, known = planted(60, 30, 2, 0.5)
    matrix = written(tmp_path, dense - dense.min() + 0.1, known, grid=3)
    parts = make_shards(matrix.path, str(tmp_path / "shards"), 2, workers=1)
    runs = new_runs(tmp_path / "ring", parts, method, iterations=2, **options)  # type: ignore[arg-type]
    train_all(runs)
    one = one_machine(tmp_path / "one", matrix, method, 2, **options)
    assert told(runs[0], "objective") == pytest.approx(told(one, "objective"), rel=1e-5)
    assert told(runs[0], "bytes_sent")[-1] > 0
    if options.get("nonnegative"):
        assert FactorModel(runs[0].path / "model").columns.factors.min() >= 0


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_the_bytes_do_not_depend_on_workers_or_memory(tmp_path, shards, ranks, method):
    """On one rank a slice has several parts, which several workers have at the same time."""
    models = []
    for name, workers, mapped in (("a", 1, False), ("b", 3, False), ("c", 2, True)):
        runs = new_runs(tmp_path / name, shards(ranks), method, iterations=2)
        train_all(runs, workers, mapped=mapped)
        models.append(model_bytes(runs[0].path))
    assert models[0] == models[1] == models[2]


@pytest.mark.long
@pytest.mark.parametrize("method", long_but(FEW[1:], ON_RING))
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
    assert len({told(run, "objective")[-1] for run in (*runs, *whole)}) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("method", long_but(FEW, ON_RING))
def test_held_out_ratings_are_told_of_all_users(tmp_path, method):
    """Each rank has those of its own users, some of whom have no others; the error is that of the gathered model."""
    for name in ("all", "known", "held-out", "held-out-0", "held-out-1"):
        (tmp_path / name).mkdir()
    dense, known = planted(60, 30, 2, 0.5)
    dense -= dense.min() - 0.1
    everything = written(tmp_path / "all", dense, np.ones_like(known))
    held_out = ~known
    known[50:], held_out[50:] = False, True
    matrix = written(tmp_path / "known", dense, known, names_from=str(everything.path))
    parts = make_shards(matrix.path, str(tmp_path / "shards"), 2, workers=1)
    of_ranks = [
        written(tmp_path / f"held-out-{rank}", dense, held_out, names_from=str(shard.path))
        for rank, shard in enumerate(parts)
    ]
    for mine, shard in zip(of_ranks, parts, strict=True):
        check_held_out_ratings(mine, shard)
    runs = new_runs(tmp_path / "ring", parts, method, iterations=2, held_out=of_ranks)  # type: ignore[arg-type]
    train_all(runs)
    whole = written(tmp_path / "held-out", dense, held_out, names_from=str(matrix.path))
    expected = evaluate_ratings(FactorModel(runs[0].path / "model"), whole)
    name = "percentile_rank" if method == "implicit" else "rmse"
    for run in runs:
        assert told(run, f"held_out_{name}")[-1] == pytest.approx(expected[name], rel=1e-5)
