"""Launching over ssh: what is asked for, who fits together, how processes end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from launches import nobody_left
from rings import until

from blocks import RequestError, WorkFailed
from ooc.launch.hosts import HostsFileLine, read_hosts
from ooc.launch.preflight import RankDescription, check, check_addresses, own_packages, own_version
from ooc.launch.rank_reports import RankReport, first_cause

# Files of hosts


def hosts_of(path: Path, text: str) -> list[HostsFileLine]:
    (path / "hosts.txt").write_text(text)
    return read_hosts(path / "hosts.txt")


def test_a_file_of_hosts(tmp_path):
    text = """
    # the first rank writes the model
    big.example:2222 dir='/data/my run' cores=16 memory=64GB
    me@10.0.0.7 address=192.168.1.7 python=.venv/bin/python  # behind a router
    [fe80::1]:22
    big.example port=40000
    little.example port=40000-40010
    """
    assert hosts_of(tmp_path, text) == [
        HostsFileLine("big.example", port=2222, directory="/data/my run", cores=16, memory=64 * 10**9),
        HostsFileLine("10.0.0.7", "me", address="192.168.1.7", python=".venv/bin/python"),
        HostsFileLine("fe80::1", port=22),
        HostsFileLine("big.example", ports=range(40000, 40001)),
        HostsFileLine("little.example", ports=range(40000, 40011)),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "lists no hosts"),
        ("-oProxyCommand=x", "is not the name of a host"),
        ("a@-x", "is not the name of a host"),
        ("host:0", "is not the name of a host"),
        ("host:99999", "is not the name of a host"),
        ("host dir", "unknown field 'dir'"),
        ("host disk=3", "unknown field 'disk=3'"),
        ("host cores=0", "cores=0"),
        ("host cores=x", "cores=x"),
        ("host cores=1 cores=2", "is given twice"),
        ("host memory=much", "memory="),
        ("host port=0", "port= 0: expected a port or two ports"),
        ("host port=2-1", "port= 2-1: expected a port or two ports"),
        ("host address=nowhere", "address=nowhere"),
        ("host dir='", "closing quotation"),
    ],
)
def test_what_is_no_file_of_hosts(tmp_path, line, said):
    with pytest.raises(RequestError) as refused:
        hosts_of(tmp_path, f"good\n{line}" if line else "# nothing\n")
    assert said.lower() in refused.value.what.lower()
    assert "hosts.txt" in refused.value.what
    assert not line or "line 2" in refused.value.what


# What is refused before anything is started


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "synthetic", "b"], "cannot run on several machines"),
        (["ingest", "jsonl", "a"], "Missing argument"),
        (["topics", "run"], "cannot run on several machines"),
        (["train", "mf", "data", "run", "--rank", "3", "--schedule", "bsp"], "--schedule bsp"),
        (["train", "mf", "data", "run", "--rank", "3", "--transport", "mpi"], "--transport"),
        (["train", "lda", "data", "run", "--topics", "3", "--update", "rotation"], "--update rotation"),
        (["train", "lda", "data", "run", "--topics", "3", "--transport", "mpi"], "--transport"),
        (["train", "lasso", "data", "run", "--transport", "mpi"], "--transport"),
        (["train", "lda", "data", "run"], "--topics"),
        (["ingest", "text", "in", "out", "--skip-existing"], "--skip-existing can only be used on one machine"),
        (["train", "lda", "data", "run", "--topics", "3", "--watch"], "--watch can only be used on one machine"),
        (["train", "lda", "data", "run", "--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["resume", "run", "--nonsense"], "--nonsense"),
    ],
)
def test_what_cannot_be_launched(ooc, tmp_path, arguments, said):
    (tmp_path / "hosts.txt").write_text("nowhere.invalid\n" * 2)
    done = ooc("launch", "--hosts", "hosts.txt", "--", *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_the_command_needs_no_dashes_before_it(ooc, tmp_path):
    (tmp_path / "hosts.txt").write_text("nowhere.invalid\n")
    done = ooc("launch", "--hosts", "hosts.txt", "train", "lda", "data", "run", "--topics", "3", "--watch")
    assert done.returncode == 2
    assert "--watch can only be used on one machine" in done.stderr


def test_a_tunnel_needs_no_ports(ooc, tmp_path):
    (tmp_path / "hosts.txt").write_text("nowhere.invalid\n")
    done = ooc("launch", "--hosts", "hosts.txt", "--tunnel", "--ports", "40000-40010", "--", "resume", "run")
    assert done.returncode == 2
    assert "--tunnel and --ports are mutually exclusive" in done.stderr


def test_staleness_is_for_rings(ooc):
    done = ooc("train", "lda", "data", "run", "--topics", 3, "--staleness", 0)
    assert done.returncode == 2
    assert "--staleness" in done.stderr


# Who fits together


def hello(**told: Any) -> RankDescription:
    usual = {
        "version": own_version(),
        "packages": own_packages(),
        "hostname": "h",
        "group": 1,
        "supervisor": 2,
        "address": "10.0.0.1",
    }
    usual |= {"port": 5, "free": 10, "needed": 5, "clock": 0.0, "data": "data", "shard": None}
    return RankDescription(**(usual | told))


def shard(number: int, whole: str = "a") -> dict[str, Any]:
    return {"number": number, "shards": 2, "whole": {"identity": whole}}


def refusal(*hellos: RankDescription, clocks: tuple[float, ...] = (0.0, 0.0)) -> str:
    with pytest.raises((RequestError, WorkFailed)) as refused:
        check(hellos, [f"rank {rank} (host{rank})" for rank in range(len(hellos))], clocks[: len(hellos)])
    return refused.value.what


def test_who_fits_together():
    good = [hello(shard=shard(0)), hello(shard=shard(1))]
    assert check(good, ["rank 0", "rank 1"], [0.0, 1.0]) == []
    assert "rank 1 is 60 s behind" in check(good, ["rank 0", "rank 1"], [0.0, -60.0])[0]
    assert check([hello()], ["rank 0"], [0.0]) == []


def test_who_does_not():
    first, second = hello(shard=shard(0)), hello(shard=shard(1))
    assert "rank 1 (host1) has ooc 0.0.1" in refusal(first, second._replace(version="0.0.1"))
    other = {**first.packages, "numba": "0.1"}
    here = first.packages["numba"]
    assert f"rank 1 (host1) has numba 0.1, rank 0 (host0) has {here}" in refusal(first, second._replace(packages=other))
    assert "rank 1 (host1): the run needs" in refusal(first, second._replace(needed=11))
    assert "host1): data and" in refusal(first, hello(shard=shard(1, "b")))
    assert "are both shard 0" in refusal(first, hello(shard=shard(0)))
    assert "rank 0 (host0): data is shard 1" in refusal(second, first)
    assert "shard 1 of 2 is missing" in refusal(first)
    assert "expected a shard" in refusal(first, hello())
    assert "the clock of rank 0 (host0) is 7200 s ahead" in refusal(first, second, clocks=(7200.0, 0.0))


@pytest.mark.parametrize(
    ("addresses", "hostnames", "is_refused"),
    [
        (["127.0.0.1", "10.0.0.1"], ["a", "b"], True),
        (["127.0.0.1", "127.0.0.1"], ["a", "b"], True),
        (["127.0.0.1", "127.0.0.1"], ["a", "a"], False),
        (["10.0.0.1", "10.0.0.2"], ["a", "b"], False),
    ],
)
def test_addresses_that_other_machines_cannot_reach(addresses, hostnames, is_refused):
    refusing = pytest.raises(RequestError, match=r"^rank 0 is at 127\.0\.0\.1, which other machines cannot reach$")
    with refusing if is_refused else contextlib.nullcontext():
        check_addresses(addresses, hostnames, ["rank 0", "rank 1"], "")


# What the others failed by


@pytest.mark.parametrize("code", [75, 130])
def test_the_cause(code):
    """What a rank says of itself, or that it ended without a word; or whom most blame; or that all were asked to."""
    full = RankReport(1, "the disk is full")
    blamed, other = RankReport(1, "rank 1 is silent", ring=True), RankReport(1, "rank 0 is silent", ring=True)
    stopped, bare = RankReport(code, "stopped", "go on"), RankReport(code, "interrupted")

    def found(*reports: RankReport | None, signalled: bool = False) -> RankReport | None:
        chosen = first_cause([(None, report) for report in reports], signalled=signalled)  # type: ignore[misc]
        return chosen[1] if chosen else RankReport(0)

    assert found() == RankReport(0)
    assert found(blamed, full) == full
    assert found(blamed, None) is None
    assert found(other, blamed, blamed) == blamed
    assert found(blamed, stopped) == blamed
    assert found(stopped, blamed) == stopped
    assert found(blamed, bare, stopped, signalled=True) == stopped
    assert found(stopped, full, signalled=True) == full


# Guards

WARD = """
import sys, time, subprocess, os, signal
from ooc.launch.supervisor import become_supervised
become_supervised()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), flush=True)
print(sys.stdin.readline(), end="", flush=True)
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    while True:
        time.sleep(0.1)  # a signal that comes just before a sleep is heard only after it
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def guarded(tmp_path):
    """A ward with a child of its own, and what it may be told."""
    with nobody_left(tmp_path):
        started = []

        def start(kind: str = "") -> tuple[subprocess.Popen[str], int]:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": tmp_path, "text": True}
            process = subprocess.Popen([sys.executable, "-c", WARD, kind], **pipes)  # type: ignore[call-overload]
            started.append(process)
            ward = int(process.stdout.readline())
            tell(process, '\n"hello"\n')
            assert process.stdout.readline() == '"hello"\n'
            return process, ward

        yield start
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def tell(process: subprocess.Popen[str], text: str) -> None:
    process.stdin.write(text)
    process.stdin.flush()


def test_a_ward_is_stopped_and_ended(guarded):
    process, _ = guarded()
    tell(process, '"stop"\n')
    assert process.wait(30) == 130
    process, _ = guarded("deaf")
    tell(process, '"stop"\n')
    tell(process, '"end"\n')
    assert process.wait(30) == 128 + signal.SIGKILL


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["", pytest.param("deaf", marks=pytest.mark.long), "stopped"])
def test_a_ward_does_not_outlive_who_started_it(guarded, how):
    process, ward = guarded(how)
    if how == "stopped":
        os.kill(ward, signal.SIGSTOP)
    process.stdin.close()
    assert process.wait(30) in (130, 128 + signal.SIGKILL)


def test_a_ward_does_not_outlive_its_guard(guarded):
    process, ward = guarded()
    child = psutil.Process(ward).children()[0]
    process.kill()
    process.wait()
    until(lambda: not psutil.pid_exists(ward))
    child.kill()  # real workers see that their caller has gone
