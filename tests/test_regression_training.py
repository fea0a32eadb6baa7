"""`ooc train lasso|logistic|poisson`: they solve what was asked for; runs are resumed, validated, used and checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from corpora import kill_while_resuming, leftovers, model_bytes
from designs import ingested, write
from regression_runs import COLUMNS, LOSS_OF, PATH, ROWS, dense_models, make_designs, model_of, problem_of
from regressions import gap, objective
from scipy.special import expit
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

from blocks import Design, Interrupted, RequestError
from blocks.design.row_files import draw_folds
from blocks.errors import WorkFailed
from ooc import training_loop
from ooc.runs.run import Run
from samplers.regression import training as regression_training
from samplers.regression.data.features import features_of_matrix
from samplers.regression.solver.sparse_regression import LinearModel, SparseRegression
from samplers.regression.training import train_regression
from samplers.resume import resume


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_designs(tmp_path_factory.mktemp("designs"))


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", LOSS_OF)
@pytest.mark.parametrize(
    "given", [{}, {"share": 0.5}, {"intercept": False}, {"standardize": False}, {"positive": True}]
)
def test_gaps_are_what_they_are_told_to_be(made, tmp_path, kind, given):
    """By an independent implementation, for the coefficients of the columns as they are."""
    loss = LOSS_OF[kind]
    last = train_regression(made / kind, tmp_path / "run", loss, **PATH, **given)
    problem = problem_of(made / kind, loss, **given)
    nothing = objective(problem, LinearModel(0.0, np.zeros(COLUMNS)), 0.0)
    lines, models = Run(tmp_path / "run").metrics(), list(dense_models(tmp_path / "run"))
    assert len(lines) == len(models) == 12
    assert lines[-1] == last
    for line, (lam, model) in zip(lines, models, strict=True):
        assert line["lambda"] == lam
        assert line["objective"] == pytest.approx(objective(problem, model, lam), rel=1e-9)
        assert 0 <= line["duality_gap"] <= 1e-8 * nothing
        assert gap(problem, model, lam) <= 1e-5 * nothing  # of the last residual alone
        assert line["nonzeros"] == np.count_nonzero(model.coefficients)
    assert models[-1][0] == pytest.approx(0.05 * models[0][0])


def test_rows_weights_and_free_columns_are_as_in_memory(made, tmp_path):
    chosen = np.r_[0:30, 40:80]
    weights = np.linspace(0.5, 2, ROWS)
    np.save(tmp_path / "rows.npy", chosen)
    (tmp_path / "weights.txt").write_text("\n".join(map(str, weights)))
    train_regression(
        made / "lasso",
        tmp_path / "run",
        "squared",
        ratio=0.1,
        tolerance=1e-12,
        rows=tmp_path / "rows.npy",
        weights=tmp_path / "weights.txt",
        unpenalized=["3", "20"],
        quiet=True,
        workers=1,
    )
    problem, factors = problem_of(made / "lasso", "squared"), np.ones(COLUMNS)
    factors[[3, 20]] = 0
    features = features_of_matrix(np.asfortranarray(problem.x[chosen]))
    alone = SparseRegression(features, problem.y[chosen], weights=weights[chosen], standardize=True, factors=factors)
    (solution,) = alone.path(alone.lambdas(1, 0.1), 1e-12)
    expected = alone.model(solution)
    ((lam, found),) = dense_models(tmp_path / "run")
    assert lam == pytest.approx(solution.lam)
    np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-5)
    assert found.intercept == pytest.approx(expected.intercept, abs=1e-5)
    assert np.count_nonzero(found.coefficients[[3, 20]]) == 2
    (tmp_path / "weights.txt").write_text("1\n" * ROWS)
    with pytest.raises(RequestError, match=r"weights\.txt has changed since the run was started"):
        resume(tmp_path / "run", quiet=True)


@pytest.fixture(scope="module")
def undisturbed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The model of a cross-validated path that nobody disturbs."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train_regression(made / "logistic", run, "logistic", folds=3, seed=4, **PATH)
    return model_bytes(run)


def test_the_model_does_not_depend_on_workers_and_memory(made, tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr("samplers.regression.data.features._LEAST", 1)
    how = {**PATH, "workers": 3, "memory_bytes": 600_000_000}
    train_regression(made / "logistic", tmp_path / "run", "logistic", folds=3, seed=4, **how)
    assert model_bytes(tmp_path / "run") == undisturbed


@pytest.mark.long
def test_the_model_does_not_depend_on_the_threads_of_a_blas(tmp_path):
    """They split the sums of as many rows as these."""
    random = np.random.default_rng(2)
    x = random.standard_normal((30_000, 12))
    source, options = write("npz-csc", x, (x[:, 0] + random.standard_normal(len(x)) > 0).astype(float), tmp_path)
    ingested("npz", source, tmp_path / "design", **options)
    command = [
        sys.executable,
        "-m",
        "ooc",
        *["train", "logistic", "design", "--path", "5", "--workers", "1", "--quiet"],
    ]
    for threads in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads}
        subprocess.run([*command[:6], threads, *command[6:]], cwd=tmp_path, env=environment, check=True)
    assert model_bytes(tmp_path / "1") == model_bytes(tmp_path / "2")


def test_a_run_stopped_after_every_step_ends_with_the_same_bytes(made, tmp_path, undisturbed, monkeypatch):
    """Also within a lambda, where some folds are done and others not."""
    stops: list[int] = []

    class StopAfterRegressionStep(training_loop.StopRequest):
        def reason(self) -> str | None:
            stops.append(0)
            return "SIGTERM" if len(stops) % 2 == 0 else None

    monkeypatch.setattr(regression_training, "StopRequest", StopAfterRegressionStep)
    with pytest.raises(Interrupted, match=r"stopped by SIGTERM after \d of 12 values of lambda; everything is saved"):
        train_regression(made / "logistic", tmp_path / "run", "logistic", folds=3, seed=4, **PATH)
    workers = 1
    while not (tmp_path / "run" / "model").exists():
        workers = 3 - workers
        try:
            resume(tmp_path / "run", workers=workers, quiet=True)
        except Interrupted:
            continue
    assert len(stops) > 2 * 5
    assert model_bytes(tmp_path / "run") == undisturbed
    assert [line["iteration"] for line in Run(tmp_path / "run").metrics()] == list(range(1, 13))
    assert leftovers(tmp_path / "run") == []


def test_a_killed_run_ends_with_the_same_bytes(made, tmp_path, undisturbed):
    """Killed whenever a new generation is there."""
    with pytest.raises(Interrupted):
        train_regression(made / "logistic", tmp_path / "run", "logistic", folds=3, seed=4, max_time=1e-9, **PATH)
    for generation in (3, 5, 7):
        kill_while_resuming(tmp_path / "run", f"state/{generation:06}.h5")
    resume(tmp_path / "run", quiet=True)
    assert model_bytes(tmp_path / "run") == undisturbed
    assert [line["iteration"] for line in Run(tmp_path / "run").metrics()] == list(range(1, 13))
    assert leftovers(tmp_path / "run") == []


def test_a_damaged_generation_is_given_up_for_the_one_before(made, tmp_path, undisturbed):
    train_regression(made / "logistic", tmp_path / "run", "logistic", folds=3, seed=4, **PATH)
    state = tmp_path / "run" / "state"
    newest = max(state.glob("*.h5"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    resume(tmp_path / "run", quiet=True)
    assert model_bytes(tmp_path / "run") == undisturbed


ERROR_OF = {
    "squared": mean_squared_error,
    "logistic": lambda y, z: log_loss(y, expit(z), labels=[0, 1]),
    "poisson": lambda y, z: mean_poisson_deviance(y, np.exp(z)),
}


@pytest.mark.parametrize("kind", LOSS_OF)
def test_cross_validation_is_that_of_regressions_without_each_fold(made, tmp_path, kind):
    loss = LOSS_OF[kind]
    train_regression(made / kind, tmp_path / "run", loss, folds=4, seed=9, **PATH)
    model, problem = model_of(tmp_path / "run"), problem_of(made / kind, loss)
    classes = problem.y if loss == "logistic" else None
    drawn = draw_folds(ROWS, 4, 9, classes)
    lambdas = model.arrays["lambdas"]
    errors = np.empty((lambdas.size, 4))
    for fold in range(4):
        rest, own = drawn != fold, drawn == fold
        alone = SparseRegression(
            features_of_matrix(np.asfortranarray(problem.x[rest])), problem.y[rest], loss, standardize=True
        )
        share = rest.mean()
        for number, solution in enumerate(alone.path(share * lambdas, 1e-10)):
            found = alone.model(solution)
            z, y = problem.x[own] @ found.coefficients + found.intercept, problem.y[own]
            errors[number, fold] = ERROR_OF[loss](y, z)
    sizes = np.bincount(drawn)
    mean = errors @ sizes / ROWS
    standard = np.sqrt((errors - mean[:, None]) ** 2 @ sizes / ROWS / 3)
    np.testing.assert_allclose(model.arrays["held_out_errors"], mean, rtol=1e-4)
    np.testing.assert_allclose(model.arrays["standard_errors"], standard, rtol=1e-3)
    best = mean.argmin()
    assert model.manifest["best"] == best
    assert model.chosen == np.flatnonzero(mean <= mean[best] + standard[best])[0] < best


def test_blocks_without_candidates_are_not_read(made, tmp_path):
    """The last of a path is allowed by what is known of columns but for a few: their blocks, and no others."""
    train_regression(made / "lasso", tmp_path / "run", "squared", **{**PATH, "length": 60, "tolerance": 1e-4})
    lines, entries = Run(tmp_path / "run").metrics(), Design(made / "lasso").entries
    assert lines[0]["bytes_read"] < 2 * 8 * entries
    assert sum(line["lambda_bytes_read"] for line in lines) == lines[-1]["bytes_read"]
    assert min(line["lambda_bytes_read"] for line in lines) < 8 * entries / 10


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"level": -1.0}, "--lambda must be a finite number above 0, got -1"),
    ({"level": 1.0, "ratio": 0.5}, "--lambda and --lambda-ratio are mutually exclusive"),
    ({"ratio": 0.0}, "--lambda-ratio must be a finite number above 0, got 0"),
    ({"ratio": 0.5, "least": 0.1}, "--lambda-min-ratio can only be used with a path"),
    ({"length": 1}, "--path must be at least 2, got 1"),
    ({"least": 1.0}, "--lambda-min-ratio must be between 0 and 1, got 1"),
    ({"tolerance": 0.0}, "--tolerance must be between 0 and 1, got 0"),
    ({"share": 0.0}, "--l1-ratio must be above 0 and at most 1, got 0"),
    ({"folds": 1}, "--cross-validate must be at least 2, got 1"),
    ({"folds": 81}, "must be from 2 to 80, the number of rows; got 81"),
    ({"unpenalized": ["400"]}, "has no column '400'"),
    ({"unpenalized": ["x"]}, "has no column 'x'"),
    ({"weights": Path("none.npy")}, "none.npy: there is no such file"),
    ({"workers": 0}, "--workers must be at least 1, got 0"),
    ({"memory_bytes": 10**8}, "is too small for 400 columns: it must be at least"),
    ({"loss": "logistic"}, "y must have 2 values for a logistic regression, got 80: "),
    ({"loss": "poisson"}, "y must be at least 0 for a Poisson regression, but is -"),
    (
        {"positive": True, "unpenalized": ["3"]},
        "--positive and --unpenalized are mutually exclusive: only penalized coefficients can be restricted",
    ),
    (
        {"positive": True, "ratio": 0.5, "schedule": "cyclic"},
        "--schedule cyclic cannot be used with --positive",
    ),
]


@pytest.mark.parametrize(("wrong", "told"), REFUSED)
def test_wrong_options_are_refused_before_anything_is_written(made, tmp_path, wrong, told):
    with pytest.raises(RequestError, match=told.replace("(", "[(]")):
        train_regression(made / "lasso", tmp_path / "run", **{"loss": "squared", "quiet": True, **wrong})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("y", "loss", "told"),
    [
        (None, "squared", "x has no target y"),
        ([2.0, 2, 2], "squared", "y is 2 in all rows"),
        ([2.0, 2, 2], "logistic", "y must have 2 values for a logistic regression, got 1: 2"),
        ([1.0, 2, 3], "logistic", "y must have 2 values for a logistic regression, got 3: 1, 2, 3"),
        ([0.0, 0, 0], "poisson", "y is 0 in all rows"),
        ([4.0, 0, -2], "poisson", "y must be at least 0 for a Poisson regression, but is -2 in row 3 of "),
    ],
)
def test_labels_that_say_nothing_are_refused(tmp_path, y, loss, told):
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csc_matrix(np.eye(3)))
    options = {} if y is None else {"target": str(tmp_path / "y.npy")}
    if y is not None:
        np.save(tmp_path / "y.npy", y)
    ingested("npz", tmp_path / "x.npz", tmp_path / "x", **options)
    with pytest.raises(RequestError, match=told):
        train_regression(tmp_path / "x", tmp_path / "run", loss, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_lambda_above_the_largest_is_told_of(made, tmp_path, capsys):
    train_regression(made / "lasso", tmp_path / "run", "squared", level=1e6, workers=1)
    assert "lambda 1e+06 is above" in capsys.readouterr().err
    ((_, model),) = dense_models(tmp_path / "run")
    assert not model.coefficients.any()


def test_a_path_that_comes_to_no_end_names_its_lambda(made, tmp_path):
    with pytest.raises(
        WorkFailed, match=r"lambda [0-9.]+: did not converge: the duality gap stays at .* above the target"
    ):
        train_regression(made / "lasso", tmp_path / "run", "squared", **{**PATH, "tolerance": 1e-300})
