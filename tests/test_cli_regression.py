"""Regressions at the command line: train, predict, evaluate, export, interrupt and resume."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from commands import assert_refused
from corpora import kill_while_resuming, model_bytes
from designs import ingested
from regression_runs import ROWS, dense_models, make_designs, model_of, problem_of
from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance

from samplers.regression.training import train_regression


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_designs(tmp_path_factory.mktemp("designs"))


def test_from_the_command_line_to_predictions(made, tmp_path, ooc):
    done = ooc("train", "logistic", made / "logistic", "run", "--path", 5, "--l1-ratio", 0.9, "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("run: 5 lambdas in ")
    assert "ooc predict run" in done.stdout
    announced = re.search(r"path of 5 lambdas, 1 worker, up to ([0-9,]+) MB of memory", done.stderr)
    assert announced
    taken = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["memory_bytes"]
    assert taken / 1e6 <= int(announced[1].replace(",", "")) < 250  # not all that the machine has
    facts = json.loads(ooc("info", "run", "--json").stdout)
    assert (facts["iterations"], facts["finished"]) == ({"planned": 5, "done": 5}, True)
    assert "no damage found" in ooc("verify", "run").stdout
    problem, models = problem_of(made / "logistic", "logistic"), list(dense_models(tmp_path / "run"))
    for given, (_, model) in (((), models[-1]), (("--lambda", models[2][0] * 1.01), models[2])):
        done = ooc("predict", "run", made / "logistic", "out.csv", "--overwrite", *given)
        assert done.returncode == 0, done.stderr
        header, *lines = (tmp_path / "out.csv").read_text().splitlines()
        assert header == "row,probability,class"
        expected = 1 / (1 + np.exp(-(problem.x @ model.coefficients + model.intercept)))
        told = np.array([line.split(",") for line in lines], float)
        np.testing.assert_array_equal(told[:, 0], np.arange(1, ROWS + 1))
        np.testing.assert_allclose(told[:, 1], expected, rtol=1e-6)
        np.testing.assert_array_equal(told[:, 2], np.where(expected > 0.5, 3, 1))
    for given, said in (
        ("min", "lambda 'min' needs cross-validation, and this path was trained without it"),
        ("least", "--lambda must be a number above 0, min or 1se, got 'least'"),
        ("-1", "--lambda must be a number above 0, min or 1se, got '-1'"),
    ):
        done = ooc("predict", "run", made / "logistic", "other.csv", "--lambda", given)
        assert (done.returncode, (tmp_path / "other.csv").exists()) == (2, False)
        assert said in done.stderr
    told = json.loads(ooc("evaluate", "run", made / "logistic", "--json").stdout)
    right = (problem.x @ models[-1][1].coefficients + models[-1][1].intercept > 0) == problem.y
    assert told["accuracy"] == pytest.approx(right.mean())
    assert ooc("export", "run", "out.npz").returncode == 0
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_array_equal(arrays["lambdas"], [lam for lam, _ in models])
    (tmp_path / "run" / "model" / "coefficients.h5").write_bytes(b"")
    assert ooc("verify", "run").returncode == 1


def test_counts_from_the_command_line_to_predictions(made, tmp_path, ooc):
    """Killed on the way, with the same bytes at the end."""
    path = ["--path", 8, "--cross-validate", 3, "--positive", "--workers", 1, "--quiet"]
    assert ooc("train", "poisson", made / "poisson", "run", *path).returncode == 0
    assert ooc("train", "poisson", made / "poisson", "stopped", *path, "--max-time", 1e-9).returncode == 75
    kill_while_resuming(tmp_path / "stopped", "state/000003.h5")
    assert ooc("resume", "stopped", "--quiet", "--workers", 2).returncode == 0
    assert model_bytes(tmp_path / "stopped") == model_bytes(tmp_path / "run")
    problem, found = problem_of(made / "poisson", "poisson"), model_of(tmp_path / "run")
    model = dict(dense_models(tmp_path / "run"))[found.arrays["lambdas"][found.chosen]]
    assert 0 == model.coefficients.min() < model.coefficients.max()
    means = np.exp(problem.x @ model.coefficients + model.intercept)
    assert ooc("predict", "run", made / "poisson", "out.csv").returncode == 0
    assert (tmp_path / "out.csv").read_text().startswith("row,prediction\n")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)[:, 1], means, rtol=1e-6)
    told = json.loads(ooc("evaluate", "run", made / "poisson", "--json").stdout)
    assert told["mean_deviance"] == pytest.approx(mean_poisson_deviance(problem.y, means))
    assert told["deviance_explained"] == pytest.approx(d2_tweedie_score(problem.y, means, power=1))


def test_an_interrupted_command_is_resumed(made, tmp_path, ooc):
    command = [sys.executable, "-m", "ooc", "train", "lasso", str(made / "lasso"), "run"]
    command += ["--path", "2000", "--lambda-min-ratio", "0.5"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "run" / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert "everything is saved\nContinue with: ooc resume run" in told
    refused = ooc("resume", "run", "--iterations", 3)
    assert_refused(refused, "--iterations cannot be used for a regression: its lambdas are fixed")
    stopped = ooc("resume", "run", "--quiet", "--workers", 1, "--max-time", 1e-3)
    assert stopped.returncode == 75
    assert stopped.stderr.startswith("ooc: stopped by --max-time after ")


def test_designs_with_other_columns_are_not_predicted(made, tmp_path, ooc):
    train_regression(made / "lasso", tmp_path / "run", "squared", ratio=0.5, quiet=True, workers=1)
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csc_matrix(np.eye(3)))
    ingested("npz", tmp_path / "x.npz", tmp_path / "x")
    refused = ooc("predict", "run", "x", "out.csv")
    assert_refused(refused, "x has 3 columns, but the model has 400")
    assert not (tmp_path / "out.csv").exists()
