"""User programs of the dynamic engine: results of the examples, the same bytes in every setting, and error messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from commands import Ooc
from designs import read_back
from dynamic_programs import made  # noqa: F401  (a fixture)
from rings import mpiexec, on_ring, until
from sklearn.linear_model import LogisticRegression, MultiTaskLasso
from sklearn.svm import LinearSVC

from blocks import Design
from blocks.errors import OocError
from ooc import ProgramRun, fit
from ooc.dynamic.round_memory_plan import plan_rounds
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.workers.worker import ProgramSpec

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:  # noqa: F811
    """Make the examples and `more` importable, and change to a temporary working directory."""
    monkeypatch.chdir(tmp_path)
    for directory in (EXAMPLES, made):
        monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (EXAMPLES, made))))
    return made


def problem(design: Path) -> tuple[np.ndarray, np.ndarray]:
    opened = Design(design)
    assert opened.y is not None
    return read_back(opened), opened.y


def group_lasso(x: np.ndarray, y: np.ndarray, penalty: float, group: int) -> np.ndarray:
    """Return the group lasso's coefficients, by proximal gradient steps on all groups at once."""
    b, step = np.zeros(x.shape[1]), 1 / np.linalg.norm(x, 2) ** 2
    for _ in range(3000):
        goal = (b - step * x.T @ (x @ b - y)).reshape(-1, group)
        norms = np.linalg.norm(goal, axis=1, keepdims=True)
        b = (goal * np.maximum(1 - step * penalty / norms, 0)).reshape(-1)
    return b


def group_penalty(x: np.ndarray, y: np.ndarray, group: int) -> float:
    return float(np.linalg.norm((x.T @ y).reshape(-1, group), axis=1).max()) / 1.5


def model_bytes(run: str) -> bytes:
    return (Path(run) / "model" / "arrays.npz").read_bytes()


# Results of the programs


def test_non_negative_least_squares_is_that_of_scipy(place: Path, ooc: Ooc) -> None:
    """Train by the command `ooc train program`."""
    done = ooc("train", "program", "nnls:NNLS", place / "small", "run", "--iterations", "150", "--workers", 1)
    assert done.returncode == 0, done.stderr
    x, y = problem(place / "small")
    expected, norm = scipy.optimize.nnls(x, y)
    with np.load("run/model/arrays.npz") as found:
        assert np.allclose(found["b"], expected, atol=1e-8)
        assert np.allclose(found["residual"], x @ found["b"] - y)
    lines = Run(Path("run")).metrics()
    assert [line["iteration"] for line in lines] == list(range(1, 151))
    assert lines[-1]["objective"] == pytest.approx(norm**2 / 2, rel=1e-9)
    assert lines[-1]["nonzeros"] == np.count_nonzero(expected)
    assert lines[0]["samples_processed"] > 0


@pytest.mark.long
def test_group_lasso_is_that_of_a_proximal_loop_and_ends_by_its_gap(place: Path) -> None:
    x, y = problem(place / "small")
    options = {"penalty": group_penalty(x, y, 5), "tolerance": 1e-9}
    run = fit("group_lasso:GroupLasso", place / "small", "run", options=options, iterations=2000, workers=1, quiet=True)
    expected = group_lasso(x, y, options["penalty"], 5)
    assert np.allclose(run["b"], expected, atol=1e-4)
    assert 0 < np.count_nonzero(expected.reshape(-1, 5).any(axis=1)) < 4
    last, first = run.metrics()[-1], np.square(y).sum() / 2
    objective = np.square(y - x @ expected).sum() / 2
    objective += options["penalty"] * np.linalg.norm(expected.reshape(-1, 5), axis=1).sum()
    assert last["objective"] == pytest.approx(objective, rel=1e-8)
    assert last["converged"] and last["iteration"] < 2000
    assert 0 <= last["objective"] - objective + 1e-9 * first <= last["duality_gap"] + 2e-9 * first
    assert last["duality_gap"] <= 1e-9 * first < run.metrics()[-2]["duality_gap"]


@pytest.mark.long
def test_a_sparse_support_vector_machine_is_that_of_liblinear(place: Path) -> None:
    """Train by the script of the example."""
    x, y = problem(place / "small")
    script = [sys.executable, str(EXAMPLES / "sparse_svm.py"), str(place / "small"), "run", "0.1"]
    subprocess.run(script, check=True, capture_output=True, timeout=300)
    run = ProgramRun(Path("run"), "sparse_svm:SparseSVM")
    options = {"penalty": "l1", "dual": False, "C": 0.1, "fit_intercept": False, "tol": 1e-10, "max_iter": 100_000}
    expected = LinearSVC(**options).fit(x, y > 0).coef_[0]
    assert np.allclose(run["w"], expected, atol=1e-6)
    assert 0 < np.count_nonzero(expected) < expected.size


@pytest.mark.long
@pytest.mark.parametrize("data", ["small", "wide"])
def test_what_follows_from_the_residual_is_derived(place: Path, data: str) -> None:
    """Train from nonzero initial coefficients, too."""
    x, y = problem(place / data)
    penalty = float(np.abs(x.T @ np.sign(y)).max()) / 8
    options = {"penalty": penalty, "parallelism": 4}
    run = fit("more:Logistic", place / data, "run", options=options, iterations=300, workers=2, quiet=True)
    scikit = {"solver": "liblinear", "fit_intercept": False, "tol": 1e-8, "max_iter": 1_000_000, "l1_ratio": 1}
    expected = LogisticRegression(C=1 / penalty, **scikit).fit(x, y > 0).coef_[0]
    assert np.allclose(run["b"], expected, atol=1e-4)
    assert np.allclose(run["score"], x @ run["b"])
    assert "pull" not in run.model()
    assert run.metrics()[-1]["worst"] == pytest.approx(np.logaddexp(0, -np.sign(y) * run["score"]).max())


@pytest.mark.long
@pytest.mark.parametrize("data", ["small", "wide"])
def test_columns_may_have_several_coefficients(place: Path, data: str) -> None:
    x, y = problem(place / data)
    targets = np.column_stack((y, -y, y**2))
    np.save("targets.npy", targets)
    penalty = float(np.linalg.norm(x.T @ targets, axis=1).max()) / 4
    options = {"penalty": penalty, "targets": str(Path("targets.npy").absolute()), "parallelism": 4}
    run = fit("more:MultiTask", place / data, "run", options=options, iterations=200, workers=1, quiet=True)
    model = MultiTaskLasso(alpha=penalty / len(x), fit_intercept=False, tol=1e-14, max_iter=100_000)
    assert np.allclose(run["b"], model.fit(x, targets).coef_.T, atol=1e-6)
    assert np.count_nonzero(run["b"].any(axis=1)) < x.shape[1]


# The same bytes

OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "nnls": ("nnls:NNLS", {"parallelism": 8}),
    "group_lasso": ("group_lasso:GroupLasso", {"penalty": 30.0, "parallelism": 8}),
    "sparse_svm": ("sparse_svm:SparseSVM", {"cost": 0.1, "parallelism": 8}),
    "logistic": ("more:Logistic", {"penalty": 2.0, "parallelism": 8}),
}
EACH = [pytest.param(name, marks=[pytest.mark.long] if name != "group_lasso" else []) for name in OPTIONS]


@pytest.mark.parametrize("name", EACH)
def test_the_same_bytes_with_any_workers_memory_and_machines(name: str, place: Path) -> None:
    """Train in memory with one worker, in a file with two workers, and on two machines."""
    target, options = OPTIONS[name]
    common: dict[str, Any] = {"options": options, "iterations": 3, "quiet": True}
    fit(target, place / "wide", "alone", workers=1, **common)
    roomy = plan_rounds(Design(place / "wide"), ProgramSpec(target, options), 2, 1 << 40)
    fit(target, place / "wide", "filed", workers=2, memory=roomy.bytes - 1, **common)
    assert "in a file" in (Path("filed") / "log.txt").read_text()
    assert not (Path("filed") / "slices").exists()

    def train(ring: Ring) -> None:
        fit(target, place / "wide", f"run-{ring.rank}", workers=1, ring=ring, **common)

    on_ring(2, train)
    assert model_bytes("alone") == model_bytes("filed") == model_bytes("run-0")
    assert not Path("run-1/model").exists()
    lines = [Run(Path(run)).metrics()[-1] for run in ("alone", "filed", "run-0")]
    assert len({(line["objective"], line["nonzeros"], line["samples_processed"]) for line in lines}) == 1
    assert lines[2]["bytes_sent"] > 0


@pytest.mark.long
def test_a_machine_that_fails_is_told_to_the_others_while_they_wait_for_its_sums(place: Path) -> None:
    target, options = OPTIONS["group_lasso"]

    def train(ring: Ring) -> str:
        def fails(line: dict[str, Any]) -> None:
            if ring.rank == 1 and line["iteration"] == 2:
                raise ValueError("no more")

        common: dict[str, Any] = {"options": options, "iterations": 100_000, "workers": 1, "quiet": True, "ring": ring}
        with pytest.raises((ValueError, OocError)) as failed:
            fit(target, place / "wide", f"run-{ring.rank}", callback=fails, **common)
        return str(failed.value)

    first, second = on_ring(2, train)
    assert "rank 1" in first and "no more" in first
    assert second == "no more"


@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
@pytest.mark.long
def test_ranks_of_mpi_go_on_together(place: Path, ooc: Ooc) -> None:
    target, options = OPTIONS["group_lasso"]
    settings = [f"--set={name}={value}" for name, value in options.items()]
    train = ["train", "program", target, str(place / "wide")]
    assert ooc(*train, "alone", *settings, "--iterations=4", "--workers=1").returncode == 0
    ranks = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc"]
    more = ["resume", "r-{rank}", "--program", target, "--iterations=4", "--transport=mpi", "--workers=1"]
    for command in ([*train, "r-{rank}", *settings, "--iterations=1", "--transport=mpi", "--workers=1"], more):
        subprocess.run([*ranks, *command], check=True, timeout=300)
    assert model_bytes("alone") == model_bytes("r-0")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in OPTIONS])
def test_a_killed_program_ends_with_the_same_bytes(name: str, place: Path, ooc: Ooc) -> None:
    """Kill a run that has committed nothing but its start, and resume with another number of workers."""
    target, options = OPTIONS[name]
    settings = [f"--set={option}={value}" for option, value in (options | {"tolerance": 1e-300}).items()]
    train = ["train", "program", target, str(place / "wide")]
    command = [sys.executable, "-m", "ooc", *train, "run", *settings, "--iterations=100000", "--workers=1", "--quiet"]
    process = subprocess.Popen(command)
    until(lambda: Path("run/metrics.jsonl").exists() and Path("run/metrics.jsonl").stat().st_size > 1000)
    process.kill()
    process.wait()
    done = max(line["iteration"] for line in Run(Path("run"), target).metrics()) + 2
    assert ooc("resume", "run", "--program", target, "--iterations", done, "--workers", 2).returncode == 0
    assert ooc(*train, "copy", *settings, "--iterations", done, "--workers", 1).returncode == 0
    for command in (("info", "run"), ("verify", "run"), ("curves", "run", "-o", "curves.png")):
        assert ooc(*command).returncode == 0, command
    assert model_bytes("run") == model_bytes("copy")


# Mistakes
