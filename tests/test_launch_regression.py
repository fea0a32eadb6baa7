"""Regressions launched over ssh, and started by MPI, as real processes, one of which is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import model_bytes
from designs import ingested, write
from launches import LaunchProcess, interrupt, nobody_left, rank_in, serving
from rings import mpiexec

from blocks.shards.splitting import make_shards
from ooc.runs.run import Run
from samplers.models import open_any_model
from samplers.regression.model import RegressionModel
from samplers.regression.training import train_regression

LENGTH, LEAST = 600, 0.2
OPTIONS = ("--path", LENGTH, "--lambda-min-ratio", LEAST, "--tolerance", 1e-9, "--workers", 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A design, and its shards for two ranks."""
    folder, random = tmp_path_factory.mktemp("launch"), np.random.default_rng(8)
    x = random.normal(size=(90, 300)) * (random.random((90, 300)) < 0.5)
    y = (x[:, :5].sum(axis=1) + random.normal(size=90) > 0).astype(float)
    source, options = write("npz-csc", x, y, folder)
    design = ingested("npz", source, folder / "whole", block_bytes=20_000, **options)
    make_shards(design.path, f"{folder}/shard-{{rank}}", 2)
    with serving(folder, 2):
        yield folder


def train(place: Path, run: str, *options: object) -> LaunchProcess:
    return LaunchProcess(place, "--", "train", "logistic", "shard-{rank}", run, *OPTIONS, *options)


def model_of(run: Path) -> RegressionModel:
    model = open_any_model(run)
    assert isinstance(model, RegressionModel)
    return model


@pytest.fixture(scope="module")
def model(place) -> dict[str, bytes]:
    """Of a launch that nobody disturbs."""
    done = train(place, "run-{rank}").done()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{LENGTH} lambdas in") == 1
    assert "[1] training on " in done.stderr
    assert not (place / "run-1" / "model").exists()
    return model_bytes(place / "run-0")


@pytest.mark.long
def test_a_launch_comes_to_the_path_of_one_machine(place, model):
    given = {"length": LENGTH, "least": LEAST, "tolerance": 1e-9, "workers": 1}
    train_regression(place / "whole", place / "one", "logistic", quiet=True, **given)  # type: ignore[arg-type]
    found, one = model_of(place / "run-0").arrays, model_of(place / "one").arrays
    np.testing.assert_allclose(found["lambdas"], one["lambdas"], rtol=1e-12)
    np.testing.assert_allclose(found["objectives"], one["objectives"], rtol=2e-9)
    again = train(place, "run-{rank}").done()
    assert again.returncode == 2
    assert "-- resume run-{rank}" in again.stderr
    assert "--scratch node" in train(place, "other-{rank}", "--scratch", "node").done().stderr


@pytest.mark.long
def test_a_run_stopped_and_then_killed_goes_on_to_the_same_bytes(place, model):
    """It ends at all ranks, and the one that was killed is named."""
    with nobody_left(place):
        launch = train(place, "killed-{rank}")
        launch.until_trained(place / "killed-1")
        interrupt(launch)
        stopped = launch.done()
        assert stopped.returncode == 130, stopped.stderr
        assert "values of lambda; everything is saved" in stopped.stderr
        assert "-- resume killed-{rank}" in stopped.stderr
        before = len(Run(place / "killed-1").metrics())
        launch = LaunchProcess(place, "--", "resume", "killed-{rank}")
        launch.until_trained(place / "killed-1", before + 1)
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "(one) was killed by SIGKILL" in done.stderr
    assert "-- resume killed-{rank}" in done.stderr
    went_on = LaunchProcess(place, "--", "resume", "killed-{rank}", "--workers", 2).done()
    assert went_on.returncode == 0, went_on.stderr
    assert model_bytes(place / "killed-0") == model
    lines = [[line["iteration"] for line in Run(place / f"killed-{rank}").metrics()] for rank in range(2)]
    assert lines == [list(range(1, LENGTH + 1))] * 2


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_that_mpi_starts(place, model):
    pytest.importorskip("mpi4py")
    command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc", "train", "logistic", "shard-{rank}"]
    command += ["mpi-{rank}", *map(str, OPTIONS), "--transport", "mpi"]
    done = subprocess.run(command, check=False, cwd=place, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{LENGTH} lambdas in") == 1
    assert model_bytes(place / "mpi-0") == model
