"""`ooc train lasso` and `logistic` by rounds of the dynamic engine: what they come to, and what they cannot do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import leftovers, model_bytes
from designs import ingested, write
from regression_runs import LOSS_OF, dense_models, make_designs, model_of, problem_of
from regressions import gap, objective

from blocks import Interrupted, RequestError
from blocks.errors import WorkFailed
from ooc import training_loop
from ooc.runs.run import Run
from samplers.regression import training as regression_training
from samplers.regression.training import train_regression
from samplers.resume import resume

ROUNDS: dict[str, Any] = {"ratio": 0.3, "parallelism": 8, "schedule": "priority", "quiet": True, "workers": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_designs(tmp_path_factory.mktemp("designs"))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("lasso", {}),
        ("lasso", {"schedule": "cyclic", "share": 0.5, "standardize": False}),
        ("lasso", {"schedule": "random", "parallelism": 2, "intercept": False}),
        ("logistic", {"intercept": False}),
    ],
    ids=str,
)
def test_rounds_come_to_what_working_sets_do(made, tmp_path, kind, given):
    """The gap is told after each pass, and small enough in the end, also by an independent implementation."""
    rounds = {**ROUNDS, **given}
    last = train_regression(made / kind, tmp_path / "run", LOSS_OF[kind], **rounds)
    options = {name: rounds[name] for name in ("ratio", "share", "standardize", "intercept", "quiet") if name in rounds}
    expected = train_regression(made / kind, tmp_path / "other", LOSS_OF[kind], workers=1, tolerance=1e-9, **options)
    assert last["lambda"] == expected["lambda"]
    assert last["objective"] == pytest.approx(expected["objective"], rel=2e-6)
    same = {name: given[name] for name in ("share", "standardize", "intercept") if name in given}
    ((lam, model),), problem = dense_models(tmp_path / "run"), problem_of(made / kind, LOSS_OF[kind], **same)
    nothing = objective(problem, model._replace(intercept=0.0, coefficients=np.zeros(model.coefficients.size)), 0.0)
    assert last["objective"] == pytest.approx(objective(problem, model, lam), rel=1e-9)
    assert gap(problem, model, lam) <= 1e-4 * nothing  # of the last residual alone
    lines = Run(tmp_path / "run").metrics()
    assert [line["iteration"] for line in lines] == list(range(1, len(lines) + 1))
    assert last == {**lines[-1], "schedule": rounds["schedule"]}
    assert lines[0]["duality_gap"] > lines[-1]["duality_gap"]
    assert lines[-1]["samples_processed"] > lines[0]["samples_processed"] > 0
    assert Run(tmp_path / "run").config["iterations"] == len(lines) > 1


def test_a_run_stopped_after_every_step_ends_with_the_same_bytes(made, tmp_path, monkeypatch):
    train_regression(made / "lasso", tmp_path / "whole", "squared", **ROUNDS)
    passes = len(Run(tmp_path / "whole").metrics())

    class StopAfterRoundStep(training_loop.StopRequest):
        asked = 0

        def reason(self) -> str | None:
            self.asked += 1
            return "SIGTERM" if self.asked % 4 == 0 else None

    monkeypatch.setattr(regression_training, "StopRequest", StopAfterRoundStep)
    with pytest.raises(Interrupted, match="stopped by SIGTERM after 3 passes of rounds; everything is saved"):
        train_regression(made / "lasso", tmp_path / "run", "squared", **ROUNDS)
    workers, stops = 1, 1
    while not (tmp_path / "run" / "model").exists():
        workers = 3 - workers
        try:
            resume(tmp_path / "run", workers=workers, quiet=True)
        except Interrupted:
            stops += 1
    assert stops >= 2
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    assert [line["iteration"] for line in Run(tmp_path / "run").metrics()] == list(range(1, passes + 1))
    assert leftovers(tmp_path / "run") == []


def test_rounds_that_diverge_name_their_lambda(tmp_path):
    """Many updates at random of columns that are nearly the same."""
    random = np.random.default_rng(1)
    x = random.normal(size=(60, 1)) + 0.1 * random.normal(size=(60, 300))
    source, options = write("npz-C", x, x[:, 0] + random.normal(size=60), tmp_path)
    ingested("npz", source, tmp_path / "design", **options)
    rounds = {**ROUNDS, "ratio": 0.1, "schedule": "random", "parallelism": 64}
    with pytest.raises(
        WorkFailed, match=r"lambda [0-9.]+: --schedule random with rounds of 64 updates diverges: the objective is"
    ) as failed:
        train_regression(tmp_path / "design", tmp_path / "run", "squared", **rounds)
    assert "Reduce --parallelism or --rho, use --schedule priority, or omit --schedule." in failed.value.remedy
    calm = {**rounds, "schedule": "priority", "tolerance": 0.05}
    train_regression(tmp_path / "design", tmp_path / "calm", "squared", **calm)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("lasso", {"ratio": None}, "--schedule priority cannot be used with a path"),
    ("lasso", {"folds": 2}, "--schedule priority cannot be used with --cross-validate"),
    ("lasso", {"unpenalized": ["3"]}, "--schedule priority cannot be used with --unpenalized"),
    ("logistic", {}, "cannot be used with an intercept of a logistic regression"),
    ("logistic", {"intercept": False, "share": 0.5}, "--l1-ratio of a logistic regression"),
    ("lasso", {"schedule": "magic"}, "--schedule: unknown schedule 'magic'"),
    ("lasso", {"parallelism": 0}, "--parallelism must be at least 1, got 0"),
    ("lasso", {"schedule": None}, "--parallelism can only be used with --schedule"),
    ("lasso", {"rho": -1.0}, "--rho must be above 0, got -1.0"),
    ("lasso", {"memory_bytes": 180_000_000}, "or omit --schedule, which holds all columns in memory."),
]


@pytest.mark.parametrize(("kind", "wrong", "told"), REFUSED)
def test_what_rounds_cannot_do_is_refused(made, tmp_path, kind, wrong, told):
    with pytest.raises(RequestError, match=re.escape(told)):
        train_regression(made / kind, tmp_path / "run", LOSS_OF[kind], **{**ROUNDS, **wrong})
    assert not (tmp_path / "run").exists()


def test_rounds_at_the_command_line(made: Path, tmp_path, ooc):
    words = ["--lambda-ratio", 0.5, "--schedule", "priority", "--parallelism", 4, "--rho", 0.3, "--workers", 1]
    done = ooc("train", "lasso", made / "lasso", "run", *words)
    assert done.returncode == 0, done.stderr
    assert " passes in " in done.stdout
    assert model_of(tmp_path / "run").coefficients().values.size > 0
