"""Factorizations by ranks on this machine: behind a real sshd, and by MPI."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from corpora import model_bytes
from factorizations import new_runs, planted, train_all, written
from launches import LaunchProcess, nobody_left, rank_in, serving
from rings import mpiexec

from blocks.ratings.matrix import Matrix
from blocks.shards.splitting import make_shards
from ooc.runs.run import Run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with hosts.txt for two ranks behind a real sshd."""
    folder = tmp_path_factory.mktemp("launch")
    with serving(folder, 2):
        yield folder


@pytest.fixture(scope="module")
def ratings(place) -> list[Matrix]:
    """Shards of ratings in ratings-0 and ratings-1; others by the same users in others-0, others-1, and others."""
    dense, known = planted(60, 30, 2, 0.5)
    dense -= dense.min() - 0.1
    whole = written(place, dense, known, grid=3)
    shards = make_shards(whole.path, str(place / "ratings-{rank}"), 2, workers=1)
    for base, name in zip([whole, *shards], ["others", "others-0", "others-1"], strict=True):
        (place / "new").mkdir()
        written(place / "new", dense, ~known, names_from=str(base.path)).path.rename(place / name)
        shutil.rmtree(place / "new")
    return shards  # type: ignore[return-value]


def factors(place: Path, shards: list[Matrix], method: str, iterations: int = 4) -> dict[str, bytes]:
    """The factorization that engines in one process come to."""
    runs = new_runs(place / f"expected-{method}", shards, method, iterations=iterations)
    train_all(runs)
    return model_bytes(runs[0].path)


_RATINGS = ("train", "mf", "ratings-{rank}")
FACTORIZE = (*_RATINGS, "--rank", "6", "--regularization", "0.02", "--seed", "7", "--workers", "1")


@pytest.mark.long
def test_a_launch_factorizes_as_one_process_does(place, ratings, ooc_in):
    """The model is of all users, and is used as any; what is told of held-out ratings is told of it afterwards, too."""
    held_out = ["--held-out", "others-{rank}", "--iterations", 4]
    done = LaunchProcess(place, "--", *FACTORIZE, "rated-{rank}", "--method", "ccd", *held_out).done()
    assert done.returncode == 0, done.stderr
    assert "RMSE" in done.stdout
    assert model_bytes(place / "rated-0") == factors(place, ratings, "ccd")
    told = Run(place / "rated-0").metrics()[-1]["held_out_rmse"]
    ooc = ooc_in(place)
    evaluated = json.loads(ooc("evaluate", "rated-0", "others", "--json").stdout)
    assert evaluated["rmse"] == pytest.approx(told, rel=1e-4)
    assert len(ooc("recommend", "rated-0", "--top", 3).stdout.splitlines()) == 3 * 60
    assert len(ooc("similar-items", "rated-0", "--item", 7, "--top", 3).stdout.splitlines()) == 3
    (place / "pairs").write_text("3,4\n59,29\n")
    for command in ("predict rated-0 pairs predicted", "export rated-0 out.npz", "verify rated-0"):
        assert ooc(*command.split()).returncode == 0
    refused = ooc("recommend", "rated-0", "--exclude-seen")
    assert refused.returncode == 2
    assert "does not contain all ratings that rated-0/model was trained on" in refused.stderr
    done = ooc("recommend", "rated-0", "--exclude-seen", "--data", "matrix", "--top", 3)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_factorization_goes_on_after_a_kill(place, ratings):
    """To fewer iterations than were planned."""
    with nobody_left(place):
        launch = LaunchProcess(place, "--", *FACTORIZE, "rating-{rank}", "--method", "als", "--iterations", 9**6)
        launch.until_trained(place / "rating-0")
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "(one) was killed by SIGKILL" in done.stderr
    iterations = max(len(Run(place / f"rating-{rank}").metrics()) for rank in range(2)) + 2
    done = LaunchProcess(place, "--", "resume", "rating-{rank}", "--iterations", iterations).done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(place / "rating-0") == factors(place, ratings, "als", iterations)


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_that_mpi_starts_factorize(place, ratings, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("TMPDIR", str(place))
    command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc", *FACTORIZE]
    options = ["--iterations", "4", "--transport", "mpi", "--scratch", "node"]
    common: dict[str, Any] = {"cwd": place, "capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run([*command, "mpi-rated-{rank}", *options], check=False, **common)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("4 iterations") == 1
    assert model_bytes(place / "mpi-rated-0") == factors(place, ratings, "sgd")
    assert not (place / "mpi-rated-0" / "slices").exists()
    refused = subprocess.run([*command, "refused-{rank}", *options, "--held-out", "others"], check=False, **common)
    assert refused.returncode != 0
    assert "--names-from" in refused.stderr
    assert not list(place.glob("refused-*"))
