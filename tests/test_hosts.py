"""Launches on several machines that fail in every way: each is named, leaves nobody, and goes on to the same bytes.

Machines are network namespaces, which need root: see `benchmarks.namespaces`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from corpora import model_bytes
from launches import (
    OPTIONS,
    LaunchProcess,
    copy_shards,
    expected,
    interrupt,
    nobody_left,
    processes_in,
    rank_in,
    shards_of,
)

from benchmarks.namespaces import NamespaceMachines, possible
from benchmarks.sshd import SSHD, client_config, serve, wait_for

pytestmark = [
    pytest.mark.ring,
    pytest.mark.timeout(900),
    pytest.mark.skipif(SSHD is None or not possible(), reason="needs root, sshd and network namespaces"),
]
NOTICED = 40.0  # seconds until all have stopped: ten to notice, and on a machine as busy as this one some to end
TRAIN = ("--", "train", "lda", "data", "run", *OPTIONS)


@pytest.fixture(scope="module", params=[3])
def machines(request, tmp_path_factory):
    """Machines with a shard each, as `data`."""
    made = NamespaceMachines(tmp_path_factory.mktemp("machines"), request.param)
    with made.running():
        yield made


@pytest.fixture(scope="module")
def model(machines, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("shards")
    shards = shards_of(folder, machines.count)
    copy_shards(shards, machines.places)
    return expected(folder / "expected", shards)


@pytest.fixture
def launch(machines, model):
    """Starts launches of new runs; nobody works on any machine afterwards."""
    with nobody_left(machines.folder):

        def start(*arguments: object) -> LaunchProcess:
            return LaunchProcess(machines.folder, *arguments, prefix=machines.launcher)

        yield start
    for place in machines.places:
        shutil.rmtree(place / "run", ignore_errors=True)


def assert_failed(launch: LaunchProcess, said: list[str], run: str = "run") -> None:
    began = time.monotonic()
    done = launch.done()
    print(done.stderr, f"{time.monotonic() - began:.1f} s until all had stopped")
    assert done.returncode == 1, done.stderr
    *_, what, remedy, last = done.stderr.strip().splitlines()
    assert any(each in what + remedy for each in said), done.stderr
    assert f"-- resume {run}" in last
    assert time.monotonic() - began < NOTICED


def assert_goes_on(
    launch: Callable[..., LaunchProcess], machines: NamespaceMachines, model: dict[str, bytes], run: str = "run"
) -> None:
    done = launch("--", "resume", run).done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(machines.places[0] / run) == model


@pytest.mark.parametrize("machines", [2, 3, 4], indirect=True)
@pytest.mark.parametrize("encrypted", [True, False])
def test_several_machines_train_the_model_that_one_process_does(machines, model, launch, encrypted):
    done = launch(*([] if encrypted else ["--insecure"]), *TRAIN).done()
    assert done.returncode == 0, done.stderr
    assert ("--insecure" in done.stderr) is not encrypted
    assert model_bytes(machines.places[0] / "run") == model
    metrics = [(place / "run" / "metrics.jsonl").read_text() for place in machines.places]
    assert len({text.count("\n") for text in metrics}) == 1


def test_a_rank_that_is_killed(machines, model, launch):
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    rank_in(machines.places[1]).kill()
    assert_failed(training, ["rank 1 (host-1) was killed by SIGKILL"])
    assert_goes_on(launch, machines, model)


def test_a_machine_whose_processes_are_all_killed(machines, model, launch):
    training = launch(*TRAIN)
    training.until_trained(machines.places[2] / "run")
    for process in processes_in(machines.places[2]):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends with the one before
            process.kill()
    assert_failed(
        training, ["rank 2 (host-2) lost its connection or was killed", "rank 2 (host-2) was killed by SIGKILL"]
    )
    assert_goes_on(launch, machines, model)


@pytest.mark.parametrize("guard", [False, True])
def test_a_rank_that_hangs(machines, model, launch, guard):
    """guard: who watches it hangs, too."""
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    rank = rank_in(machines.places[1])
    for process in [rank, *([rank.parent()] if guard else [])]:
        process.suspend()
    assert_failed(training, ["rank 1 (host-1) has not responded for 8 s"])
    assert_goes_on(launch, machines, model)


def test_a_launch_that_restarts_outlives_an_outage(machines, model, launch):
    """It tries again while the machine is away, and while what was left there still holds the run."""
    training = launch("--restarts", 8, *TRAIN)
    training.until_trained(machines.places[1] / "run")
    machines.plug(1, in_=False)
    time.sleep(20)
    machines.plug(1, in_=True)
    done = training.done()
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 8 in 2 s" in done.stderr
    assert model_bytes(machines.places[0] / "run") == model


def assert_unreachable(launch: LaunchProcess, pairs: list[str], remedy: str) -> None:
    done = launch.done()
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-2:] == [f"ooc: {'; '.join(pairs)}", remedy]


def test_two_ranks_that_cannot_reach_each_other(machines, model, launch):
    """As behind a firewall: both are named, with the port, and not who waits in vain for the other."""
    machines.let_through(0, 1, goes=False)
    try:
        assert_unreachable(
            launch("--ports", "40000-40010", *TRAIN),
            ["rank 0 (host-0) cannot reach rank 1 (host-1) at 10.77.0.2 port 40000: no route to host"],
            "Open TCP ports 40000-40010 on rank 1 (host-1), or use --tunnel. If an address is wrong, add address=IP to"
            " the host's line of --hosts.",
        )
    finally:
        machines.let_through(0, 1, goes=True)


def test_where_only_ssh_is_open_every_pair_is_named_and_a_tunnel_helps(machines, model, launch):
    """One host is reached through another: the launcher has no way to it."""
    machines.write_hosts(host_0="port=40000", host_1="port=40001", host_2="port=40002")
    jump = machines.folder / "jump"
    jump.write_text(f"Host host-1\nProxyJump host-0\n{(machines.folder / 'config').read_text()}")
    machines.let_through("launcher", 1, goes=False)
    try:
        with machines.firewall():
            pairs = [
                f"rank {rank} (host-{rank}) cannot reach rank {after} (host-{after}) at 10.77.0.{after + 1}"
                f" port 4000{after}: network is unreachable"
                for rank, after in ((0, 1), (1, 2), (2, 0))
            ]
            assert_unreachable(
                launch("--ssh-config", jump, *TRAIN),
                pairs,
                "Open TCP ports 40000, 40001, 40002 on rank 1 (host-1), rank 2 (host-2), rank 0 (host-0), or use"
                " --tunnel. If an address is wrong, add address=IP to the host's line of --hosts.",
            )
            done = launch("--ssh-config", jump, "--tunnel", *TRAIN).done()
    finally:
        machines.write_hosts()
        machines.let_through("launcher", 1, goes=True)
    assert done.returncode == 0, done.stderr
    assert model_bytes(machines.places[0] / "run") == model


def test_a_rank_that_is_killed_behind_a_tunnel(machines, model, launch):
    with machines.firewall():
        training = launch("--tunnel", *TRAIN)
        training.until_trained(machines.places[1] / "run")
        rank_in(machines.places[1]).kill()
        assert_failed(training, ["rank 1 (host-1) was killed by SIGKILL"])
        done = launch("--tunnel", "--", "resume", "run").done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(machines.places[0] / "run") == model


@pytest.mark.parametrize(
    ("forbidden", "what"),
    [
        ("AllowTcpForwarding no", "--tunnel: the sshd of rank 2 (strict) does not forward ports: "),
        pytest.param(
            "PermitOpen none",
            "rank 1 (host-1) cannot reach rank 2 (strict) at 127.0.0.1 port ",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_host_that_forwards_no_ports_is_named(machines, model, launch, forbidden, what):
    hosts = dict(zip(machines.names, [(address, 22) for address in machines.addresses], strict=False))
    strict = (machines.addresses[2], 2222)
    with serve(machines.folder, *strict, machines.inside(2), f"{forbidden}\n"):
        wait_for(client_config(machines.folder, {**hosts, "strict": strict}), ["strict"], machines.launcher)
        text = (machines.folder / "hosts.txt").read_text()
        (machines.folder / "hosts.txt").write_text(text.replace("host-2 dir", "strict dir"))
        try:
            done = launch("--tunnel", *TRAIN).done()
        finally:
            machines.write_hosts()
            client_config(machines.folder, hosts)
    assert done.returncode == 1, done.stderr
    said, remedy = done.stderr.strip().splitlines()[-2:]
    assert said.startswith(f"ooc: {what}"), done.stderr
    assert "AllowTcpForwarding yes" in remedy


def test_a_rank_that_is_cut_off(machines, model, launch):
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    machines.plug(1, in_=False)
    try:
        assert_failed(
            training, ["rank 1 (host-1) has not responded for", "rank 1 (host-1) lost its connection or was killed"]
        )
        with nobody_left(machines.places[1], within=60):  # it cannot be told
            pass
    finally:
        machines.plug(1, in_=True)
    assert_goes_on(launch, machines, model)


def test_a_disk_that_is_full(machines, model, launch):
    with machines.small_disk(1, "disk", "8m") as disk:
        training = launch(*(word if word != "run" else "disk/run" for word in TRAIN))
        training.until_trained(disk / "run")
        free = shutil.disk_usage(disk).free
        with (disk / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, free)
        assert_failed(training, ["the disk is full"], "disk/run")
        (disk / "filler").unlink()
        assert_goes_on(launch, machines, model, "disk/run")


def test_ctrl_c_stops_all(machines, model, launch):
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    interrupt(training)
    done = training.done()
    assert done.returncode == 130, done.stderr
    assert "everything is saved" in done.stderr
    assert_goes_on(launch, machines, model)


def test_a_second_ctrl_c_ends_all_at_once(machines, model, launch):
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    rank_in(machines.places[1]).suspend()
    interrupt(training)
    time.sleep(0.5)
    interrupt(training)
    assert training.done().returncode == 130
    assert_goes_on(launch, machines, model)


@pytest.mark.parametrize("stopped", [False, True])
def test_nobody_outlives_the_launcher(machines, model, launch, stopped):
    """stopped: not even a rank that hangs."""
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    if stopped:
        rank_in(machines.places[1]).suspend()
    assert len(processes_in(machines.folder)) > 3 * machines.count  # guards, ranks and workers
    training.process.kill()
    training.done()
    with nobody_left(machines.folder):
        pass
    assert_goes_on(launch, machines, model)


def test_another_signal_to_one_rank_stops_all(machines, model, launch):
    training = launch(*TRAIN)
    training.until_trained(machines.places[1] / "run")
    rank_in(machines.places[2]).send_signal(signal.SIGTERM)
    assert training.done().returncode == 130
    assert_goes_on(launch, machines, model)


def assert_refused(launch: LaunchProcess, said: str, code: int = 2) -> None:
    done = launch.done()
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_who_does_not_fit_is_refused(machines, model, launch, tmp_path):
    machines.write_hosts(host_2="python=/bin/true")
    try:
        assert_refused(launch(*TRAIN), "rank 2 (host-2) ended with exit code 0", 1)
    finally:
        machines.write_hosts()
    here, there = (machines.places[number] / "data" for number in (0, 1))
    here.rename(tmp_path / "data")
    there.rename(here)
    (tmp_path / "data").rename(there)
    try:
        assert_refused(launch(*TRAIN), "rank 0 (host-0): data is shard 1")
    finally:
        here.rename(tmp_path / "data")
        there.rename(here)
        (tmp_path / "data").rename(there)
    other = Path(shutil.copytree(machines.places[1], machines.folder / "other"))
    shutil.rmtree(other / "data")
    lines = (machines.folder / "hosts.txt").read_text().splitlines()
    (machines.folder / "hosts.txt").write_text("\n".join([*lines[:2], f"host-2 dir={other}\n"]))
    try:
        assert_refused(launch(*TRAIN), "rank 2 (host-2): data: there is no such file or directory")
    finally:
        machines.write_hosts()
    assert not any((place / "run").exists() for place in machines.places)


def test_another_version_is_refused(machines, model, launch, tmp_path):
    """A copy of the sources on one host, changed in one byte."""
    root = Path(__file__).resolve().parent.parent
    for package in ("blocks", "ooc", "samplers"):
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "samplers" / "lda.py").open("a") as file:
        file.write("#\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    machines.write_hosts(host_1=f"python={python}")
    try:
        assert_refused(launch(*TRAIN), "rank 1 (host-1) has ooc 0.1.0 (")
    finally:
        machines.write_hosts()
