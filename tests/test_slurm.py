"""What a batch scheduler tells a job: when to stop, how many ranks there are, where the node has a disk."""

from __future__ import annotations

import time

import pytest

from blocks import RequestError
from ooc import slurm
from ooc.cli.session import CommandSession


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch):
    for name in ("SLURM_JOB_END_TIME", "SLURM_STEP_NUM_TASKS", "SLURM_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_said(monkeypatch):
    assert slurm.time_to_train() is None
    monkeypatch.setenv("SLURM_JOB_END_TIME", "Unknown")
    assert slurm.time_to_train() is None
    slurm.check_ranks(1)


@pytest.mark.parametrize(("left", "trains"), [(100, 40), (3000, 2700), (100_000, 99_400)])
def test_time_is_left_to_stop(monkeypatch, left, trains):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left)))
    assert slurm.time_to_train() == pytest.approx(trains, abs=2)


@pytest.mark.parametrize("left", [-5, 30])
def test_too_little_time_is_refused(monkeypatch, left):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left)))
    with pytest.raises(RequestError, match="the job ends in"):
        slurm.time_to_train()


def test_the_shorter_limit_holds():
    limits = {(None, None): None, (5.0, None): 5.0, (None, 4.0): 4.0, (5.0, 4.0): 4.0}
    assert {(given, asked): CommandSession(time=given).limit(asked) for given, asked in limits} == limits


def test_tasks_that_do_not_know_of_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    slurm.check_ranks(4)
    with pytest.raises(RequestError, match="srun started 4 tasks"):
        slurm.check_ranks(1)


def test_the_disk_of_the_node(monkeypatch, tmp_path):
    with pytest.raises(RequestError, match="--scratch node"):
        slurm.node_directory()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "gone"))
    assert slurm.node_directory() == tmp_path
