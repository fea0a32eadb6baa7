"""Regressions that are stopped inside a step: they end soon, keep what they have, and go on to the same solutions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import Ooc
from regression_runs import LOSS_OF, PATH, make_designs
from sklearn.exceptions import ConvergenceWarning

from blocks import Design
from ooc.runs.run import Run
from samplers import Lasso, LogisticRegression
from samplers.regression.path.solver import LambdaPathSolver
from samplers.regression.solver.solver_limit import SolverLimit, SolverLimitReached
from samplers.regression.training import program_of, train_regression

ROOM = 1 << 26


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_designs(tmp_path_factory.mktemp("designs"))


@pytest.mark.parametrize("kind", LOSS_OF)
def test_stopped_at_any_look_they_go_on_to_the_same_solutions(kind: str, made: Path, tmp_path: Path) -> None:
    """The end is wanted at one look in a hundred, drawn at random: passes, rounds and steps are left."""
    train_regression(made / kind, tmp_path / "run", LOSS_OF[kind], **PATH, folds=2)
    run, random = Run(tmp_path / "run"), np.random.default_rng(0)
    expected = [(line["objective"], line["duality_gap"]) for line in run.metrics()]
    program = program_of(run.spec, Design(made / kind))
    limit, stops = SolverLimit(is_wanted=lambda: random.random() < 0.01), 0
    solver = LambdaPathSolver(program, 1, ROOM, limit)
    begun = False
    while not begun or not solver.done:
        try:
            if not begun:
                solver.begin()
                begun = True
            else:
                solver.step()
        except SolverLimitReached:
            stops += 1
            kept = {name: array.copy() for name, array in solver.arrays().items()} if begun else None
            solver = LambdaPathSolver(program, 1, ROOM, limit)
            if kept:
                solver.restore(kept)
    assert stops > 3
    for (objective, gap), found in zip(expected, solver.found, strict=True):
        assert found.objective - found.gap <= objective + 1e-12
        assert objective - gap <= found.objective + 1e-12
    assert len(solver.errors) == 2


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A design whose working set takes many seconds: 1,500 columns, nearly in a space of 40 dimensions."""
    folder, random = tmp_path_factory.mktemp("slow"), np.random.default_rng(0)
    x = random.standard_normal((1500, 40)) @ random.standard_normal((40, 1500))
    x += 0.03 * random.standard_normal(x.shape)
    y = (x[:, :30] @ random.standard_normal(30) + random.standard_normal(1500) > 0).astype(float)
    np.savez(folder / "x.npz", X=x.astype(np.float32), y=y)
    words = [sys.executable, "-m", "ooc", "ingest", "npz", "x.npz", "x", "--quiet"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.long
def test_a_step_that_takes_long_is_left_when_there_is_no_time(slow: Path, tmp_path: Path, ooc: Ooc) -> None:
    exact = ("--lambda-ratio", 1e-7, "--tolerance", 1e-10, "--quiet")
    for seconds in (2, 8, 32):  # on a machine that is busy it takes a while to begin
        done = ooc("train", "logistic", slow / "x", "run", *exact, "--max-time", seconds, "--overwrite")
        if "before it began" not in done.stderr:
            break
    assert done.returncode == 75
    assert "stopped by --max-time after 0 of 1 values of lambda; everything is saved" in done.stderr
    assert ooc("verify", "run").returncode == 0
    again = ooc("resume", "run", "--max-time", 2, "--quiet")
    assert (again.returncode, "stopped by --max-time" in again.stderr) == (75, True)


def test_estimators_end_with_the_best_model_and_a_warning() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 5)) @ random.standard_normal((5, 300)) + 0.1 * random.standard_normal((200, 300))
    y = x[:, 0] + random.standard_normal(200)
    for model, target in ((Lasso(1e-5), y), (LogisticRegression(C=1e5), y > 0)):
        exact = model.fit(x, target)
        best, rounds = exact.objective_, exact.n_iter_
        assert rounds > 2
        with pytest.warns(ConvergenceWarning, match=r"max_iter=2 iterations\. Increase max_iter"):
            short = model.set_params(max_iter=2).fit(x, target)
        assert short.n_iter_ == 2
        assert short.dual_gap_ > 1e-6 * short.null_loss_
        assert best * (1 - 1e-6) <= short.objective_ <= best + short.dual_gap_
        assert short.objective_ < short.null_loss_


def test_a_tolerance_that_rounding_does_not_allow_costs_no_model() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((60, 40)) @ np.diag(np.logspace(-6, 6, 40))
    with pytest.warns(ConvergenceWarning, match="float64 rounding allows no smaller gap"):
        model = LogisticRegression(C=1e8, tol=1e-18).fit(x, random.random(60) < 0.5)
    assert np.isfinite(model.coef_).all()
