"""What a launch does when the ssh of a rank ends early, does not end, or leaves something behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from launches import LaunchProcess, nobody_left, processes_in, serving
from rings import until

SLOW_THREADS = """
import threading, time
start = threading.Thread.start
def late(thread):
    time.sleep(0.5)
    start(thread)
threading.Thread.start = late
"""


NOWHERE = "nowhere.invalid"
HERE = 'for last; do :; done; cd /; exec sh -c "$last"'  # what ssh would have a shell do elsewhere


class FakeSshLaunch:
    """`ooc launch` where `ssh` is a shell script.

    script: lines of the script.
    hosts: host of each rank.
    fields: fields of all hosts.
    late: whether every thread starts half a second late.
    """

    def __init__(
        self, place: Path, script: str, hosts: Sequence[str] = (NOWHERE,), *, fields: str = "", late: bool = False
    ) -> None:
        (place / "bin").mkdir()
        (place / "bin" / "ssh").write_text(f"#!/bin/sh\n{script}\n")
        (place / "bin" / "ssh").chmod(0o755)
        (place / "hosts.txt").write_text("".join(f"{name} {fields}\n" for name in hosts))
        if late:
            (place / "sitecustomize.py").write_text(SLOW_THREADS)
        environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(place)}
        environment["HOME"] = str(place)
        words = [sys.executable, "-m", "ooc", "launch", "--hosts", "hosts.txt", "--", "resume", "run"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(words, cwd=place, env=environment, **pipes)  # type: ignore[call-overload]

    def end(self, within: float = 30.0) -> str:
        """What it says on standard error, with an exit code that is none of success."""
        try:
            message = self.process.communicate(timeout=within)[1]
        finally:
            self.process.kill()
        assert self.process.returncode not in (0, -signal.SIGKILL)
        assert "Traceback" not in message, message
        return str(message)


@pytest.mark.long
def test_an_ssh_that_ends_at_once_is_heard_on_a_busy_machine(tmp_path):
    message = FakeSshLaunch(tmp_path, "echo no such host >&2; exit 255", [NOWHERE] * 3, late=True).end()
    assert "could not be reached: no such host" in message
    assert message.splitlines()[-1].endswith("Check with: ssh -- nowhere.invalid true")


@pytest.mark.long
def test_an_ssh_that_leaves_a_process_with_its_output_is_heard(tmp_path):
    """As a script does that is killed while what it called goes on."""
    with nobody_left(tmp_path):
        message = FakeSshLaunch(tmp_path, "sleep 4 & echo gone >&2; exit 255").end()
    assert "could not be reached: gone" in message


@pytest.mark.few(1)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_launch_whose_ssh_does_not_listen(tmp_path, signum):
    """At once if it comes twice."""
    with nobody_left(tmp_path):
        launched = FakeSshLaunch(
            tmp_path, "trap '' TERM INT HUP; echo ready >&2; cat > /dev/null; while :; do sleep 1; done"
        )
        while "ready" not in launched.process.stderr.readline():
            assert launched.process.poll() is None
        launched.process.send_signal(signum)
        time.sleep(0.3)
        launched.process.send_signal(signum)
        assert "stopped immediately, without saving" in launched.end()


CROWDED = """
cd {place}
mkdir coming/$$
if [ $(ls coming | wc -l) -gt 10 ] || mkdir first 2> /dev/null || mkdir second 2> /dev/null; then
    rmdir coming/$$
    echo "kex_exchange_identification: Connection closed by remote host" >&2
    exit 255
fi
sleep 0.3
rmdir coming/$$
touch in/$$
echo
exec cat > /dev/null
"""


def test_many_ranks_come_a_few_at_a_time_and_again_if_they_are_turned_away(tmp_path):
    """By an sshd that has ten at its door at most, and turns away the first two as others are there."""
    (tmp_path / "coming").mkdir()
    (tmp_path / "in").mkdir()
    with nobody_left(tmp_path):
        launched = FakeSshLaunch(tmp_path, CROWDED.format(place=tmp_path), [f"host-{rank}" for rank in range(24)])
        until(lambda: len(list((tmp_path / "in").iterdir())) == 24)
        for _ in range(2):
            launched.process.terminate()
            time.sleep(0.3)
        assert launched.end().count("kex_exchange") == 2


@pytest.mark.ring
def test_ranks_on_one_host_share_connections(tmp_path):
    with serving(tmp_path, 12):
        log = next(tmp_path.glob("sshd-*.log"))
        before = log.read_text().count("Accepted publickey")
        done = LaunchProcess(tmp_path, "--", "resume", "run-{rank}").done()
        assert done.returncode == 2
        assert "there is no such file or directory" in done.stderr
        assert log.read_text().count("Accepted publickey") == before + 2  # eight ranks and four ranks


@pytest.mark.ring
def test_the_loss_of_a_shared_connection_ends_its_ranks(tmp_path):
    (tmp_path / "slow").write_text("#!/bin/sh\necho waiting >&2\nexec cat > /dev/null\n")
    (tmp_path / "slow").chmod(0o755)
    with serving(tmp_path, 3):
        (tmp_path / "hosts.txt").write_text(f"one python={tmp_path}/slow\n" * 3)
        launched = LaunchProcess(tmp_path, "--", "resume", "run-{rank}")
        while "waiting" not in launched.process.stderr.readline():
            assert launched.process.poll() is None
        shared = [process for process in processes_in(tmp_path) if "ControlMaster=yes" in process.cmdline()]
        assert len(shared) == 1
        shared[0].kill()
        done = launched.done()
    assert done.returncode == 1
    assert "(one) could not be reached" in done.stderr


# What a shell says and does elsewhere.


def test_a_prompt_without_a_new_line_is_no_part_of_what_a_rank_says(tmp_path):
    message = FakeSshLaunch(tmp_path, f"printf 'user@host> '; {HERE}").end()
    assert "[0] user@host>\n" in message
    assert "ooc: rank 0 (nowhere.invalid): run" in message


def test_a_directory_may_be_in_a_home(tmp_path):
    (tmp_path / "my data" / "run").mkdir(parents=True)
    message = FakeSshLaunch(tmp_path, HERE, fields="'dir=~/my data'").end()
    assert "ooc: rank 0 (nowhere.invalid): run is not a run" in message, message


@pytest.mark.parametrize(
    ("fields", "what", "remedy"),
    [
        ("dir=/nowhere", "cannot change to the directory /nowhere", "dir=PATH"),
        ("python=/nowhere/python", "cannot run the Python /nowhere/python", "python=PATH"),
        ("python=~/without", "ended with exit code 1: ", "python=PATH"),
    ],
)
def test_what_a_host_does_not_have_is_said(tmp_path, fields, what, remedy):
    (tmp_path / "without").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / "without").chmod(0o755)
    message = FakeSshLaunch(tmp_path, HERE, fields=fields).end()
    assert f"ooc: rank 0 (nowhere.invalid) {what}" in message
    assert message.splitlines()[-1].endswith(remedy)
