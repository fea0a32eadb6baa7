"""`ooc.dask.train` on a cluster of this machine: the same bits as one process, also when a worker is killed."""

from __future__ import annotations

import importlib
import os
import signal
import socket
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
pytestmark = [pytest.mark.ring, pytest.mark.filterwarnings("ignore")]  # warnings of Dask's own


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

    places = folder / "shard-{rank}", folder / "lost-{rank}"
    ooc_dask.train(client, "lda", *places, callback=kill, overwrite=True, **options())
    assert killed
    assert model_bytes(folder / "lost-0") == model
    assert "restart 1 of 3" in capfd.readouterr().err


@pytest.mark.long
def test_a_port_that_was_taken_since_it_was_chosen_is_no_end(folder, client, monkeypatch):
    warnings: list[str] = []
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ooc_dask, "free_port", lambda: port)
        monkeypatch.setattr(ooc_dask.stderr, "warn", lambda text: (warnings.append(text), taken.close()))
        places = folder / "shard-{rank}", folder / "port-{rank}"
        last = ooc_dask.train(client, "lda", *places, patience=3, **options() | {"iterations": 2})
    assert last["iteration"] == 2
    assert "rank 0 cannot listen on this port: Address already in use; restart 1 of 3" in warnings[0]


@pytest.mark.long
def test_a_run_that_was_there_is_not_continued_by_a_restart(folder, client, monkeypatch):
    places = folder / "shard-{rank}", folder / "there-{rank}"
    ooc_dask.train(client, "lda", *places, **options() | {"iterations": 2})
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ooc_dask, "free_port", lambda: port)
        monkeypatch.setattr(ooc_dask.stderr, "warn", lambda text: taken.close())
        with pytest.raises(RequestError, match=r"there-[01]"):
            ooc_dask.train(client, "lda", *places, patience=3, **options() | {"iterations": 2})


def test_a_request_that_cannot_be_is_refused_with_its_message(folder, client):
    with pytest.raises(RequestError, match=r"rank [01]: --topics must be from 1"):
        ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "wrong-{rank}", topics=-1)
    with pytest.raises(RequestError, match="tcp://here:1 is not a worker of the cluster"):
        ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "wrong-{rank}", addresses=["tcp://here:1"])
    assert not list(folder.glob("wrong-*"))


def test_workers_without_ooc_are_named(folder, client, monkeypatch, tmp_path):
    (tmp_path / "another_ooc.py").write_text("def free_port():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ooc_dask, "free_port", importlib.import_module("another_ooc").free_port)
    with pytest.raises(RequestError, match=r"rank 0: the Dask worker tcp:.* cannot run ooc: .*No module named"):
        ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "wrong-{rank}")


def test_a_worker_may_be_in_this_process(folder):
    with (
        distributed.LocalCluster(processes=False, n_workers=1, dashboard_address=None, local_directory=folder) as one,
        distributed.Client(one) as client,
        pytest.raises(RequestError, match="rank 0: --topics must be from 1"),
    ):
        ooc_dask.train(client, "lda", folder / "shard-{rank}", folder / "wrong-{rank}", topics=-1)
