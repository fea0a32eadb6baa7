"""The example for Ray, on a cluster of this machine: the same bits as one process, also when a rank is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from corpora import model_bytes
from launches import LONG, OPTIONS, expected, shards_of
from rings import until

from ooc.runs.run import Run

pytest.importorskip("ray", reason="NO RAY IS TESTED: install ray")
pytestmark = pytest.mark.long
EXAMPLE = Path(__file__).resolve().parent.parent / "examples/pipelines/ray_ring.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def model(folder) -> dict[str, bytes]:
    return expected(folder / "expected", shards_of(folder, 2))


def start(folder: Path, run: str) -> subprocess.Popen[str]:
    places = folder / "shard-{rank}", folder / run
    words = [sys.executable, EXAMPLE, 2, "train", "lda", *places, *OPTIONS[:-2]]
    return subprocess.Popen([*map(str, words)], cwd=folder, stderr=subprocess.PIPE, text=True)


def test_actors_train_the_model_that_one_process_does(folder, model):
    training = start(folder, "run-{rank}")
    told = training.communicate(timeout=LONG)[1]
    assert training.returncode == 0, told
    assert model_bytes(folder / "run-0") == model


def test_a_rank_that_is_killed_is_started_again_and_the_run_goes_on(folder, model):
    training = start(folder, "lost-{rank}")
    until(lambda: (folder / "lost-1/config.json").exists() and len(Run(folder / "lost-1").metrics()) >= 3)
    below = psutil.Process(training.pid).children(recursive=True)
    next(each for each in reversed(below) if "--ring-rank=1" in each.cmdline()).kill()
    told = training.communicate(timeout=LONG)[1]
    assert training.returncode == 0, told
    assert "starting again" in told
    assert model_bytes(folder / "lost-0") == model
