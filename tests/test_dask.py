"""`ooc.dask.train` on a cluster of this machine: the same bits as one process, also when a worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpora import model_bytes
from launches import ITERATIONS, PRIORS, TOPICS, expected, nobody_left, shards_of

from blocks import RequestError
from ooc import dask as ooc_dask
from ooc.runs.run import Run

distributed = pytest.importorskip("distributed", reason="NO DASK IS TESTED: install ooc[dask]")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask's own


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("dask")


@pytest.fixture(scope="module")
def model(folder) -> dict[str, bytes]:
    return expected(folder / "expected", shards_of(folder, 2))


@pytest.fixture(scope="module")
def client(folder) -> Iterator[Any]:
    with (
        nobody_left(folder),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="2GB", dashboard_address=None, local_directory=folder
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def options() -> dict[str, Any]:
    return {"topics": TOPICS, "iterations": ITERATIONS, **PRIORS}


def test_workers_train_the_model_that_one_process_does(folder, model, client, capfd):
    lines: list[dict[str, Any]] = []
    last = ooc_dask.train(
        client, "lda", folder / "shard-{rank}", folder / "run-{rank}", callback=lines.append, **options()
    )
    assert model_bytes(folder / "run-0") == model
    assert last == {"run": str(folder / "run-0"), **Run(folder / "run-0").last_metrics()}
    assert lines == Run(folder / "run-0").metrics()
    assert "[0] training on " in capfd.readouterr().err


@pytest.mark.long
def test_a_worker_that_is_killed_is_replaced_and_the_run_goes_on(folder, model, client, capfd):
    killed, pids = [], sorted(client.run(os.getpid).values())

    def kill(line: dict[str, Any]) -> None:
        if line["iteration"] >= 3 and not killed:
            killed.append(pids[0])
            os.kill(killed[0], signal.SIGKILL)

    ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "lost-{rank}", callback=kill, **options())
    assert killed
    assert model_bytes(folder / "lost-0") == model
    assert "restart 1 of 3" in capfd.readouterr().err


def test_a_request_that_cannot_be_is_refused_with_its_message(folder, client):
    with pytest.raises(RequestError, match=r"rank [01]: --topics must be from 1"):
        ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "wrong-{rank}", topics=-1)
    with pytest.raises(RequestError, match="tcp://here:1 is not a worker of the cluster"):
        ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "wrong-{rank}", addresses=["tcp://here:1"])
    assert not list(folder.glob("wrong-*"))
