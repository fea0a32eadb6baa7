"""Worker processes: answers, errors that travel, deaths that are named, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from processes import PATIENCE, gone, until

from blocks import RequestError, WorkFailed, workers
from blocks.workers import WorkerDied, WorkerPool

pytestmark = pytest.mark.usefixtures("fresh_interpreters")


@pytest.fixture(scope="module")
def pair(fresh_interpreters):
    """Two workers that do what messages say; tests that spoil them make their own."""
    with WorkerPool("worker_targets:deeds", None, 2) as two:
        yield two


def ask(team: WorkerPool, worker: int, deed: str, argument: object = None) -> object:
    return team.ask(worker, (deed, argument))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 500])
def test_every_message_is_answered_once(pair, count):
    """Fewer messages than workers, and more than they may have waiting."""
    found = list(pair.map_unordered([("double", number) for number in range(count)]))
    assert Counter(found) == Counter((("double", number), 2 * number) for number in range(count))


def test_messages_and_answers_may_be_larger_than_what_sockets_hold(pair):
    """While a worker sends an answer it reads no message."""
    sizes = [size for number in range(6) for size in (1 << 21, number)]
    found = list(pair.map_unordered([("double", bytes(size)) for size in sizes]))
    assert Counter(len(answer) for _, answer in found) == Counter(2 * size for size in sizes)


def test_workers_are_closed_while_messages_are_sent():
    with WorkerPool("worker_targets:deeds", None, 1) as one:
        for _ in range(3):
            one.send(0, ("double", bytes(1 << 22)))
        pids = one.pids
    until(lambda: gone(pids))


def test_a_worker_answers_in_the_order_it_was_asked(pair):
    for number in range(5):
        pair.send(1, ("double", number))
    found = []
    while len(found) < 5:
        found += list(pair.receive())
    assert found == [(1, ("double", number), 2 * number) for number in range(5)]


def test_workers_are_processes_of_their_own(pair):
    pids = {ask(pair, worker, "pid") for worker in (0, 1)}
    assert pids == set(pair.pids[1:])
    assert os.getpid() not in pids


def test_workers_leave_signals_to_their_caller_and_keep_to_one_thread(pair):
    for pid in pair.pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert [ask(pair, worker, "double", 4) for worker in (0, 1)] == [8, 8]
    assert ask(pair, 0, "environment", "OMP_NUM_THREADS") == "1"


def test_an_explained_error_travels_as_it_is():
    with WorkerPool("worker_targets:deeds", None, 1) as one, pytest.raises(RequestError) as told:
        ask(one, 0, "refuse", "no")
    assert (told.value.what, told.value.remedy) == ("no", "Ask for something else.")


@pytest.mark.parametrize(
    ("deed", "argument", "named"), [("divide", 0, "ZeroDivisionError"), ("leave", 4, "SystemExit")]
)
def test_any_other_exception_travels_with_its_traceback(deed, argument, named):
    with WorkerPool("worker_targets:deeds", None, 1) as one, pytest.raises(WorkFailed, match=named) as told:
        ask(one, 0, deed, argument)
    (traceback,) = told.value.__notes__
    assert "worker_targets.py" in traceback or deed == "leave"
    assert "Traceback" in traceback


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("deed", "argument", "ending"),
    [
        ("kill", signal.SIGKILL, "killed by SIGKILL"),
        ("exit", 7, "exit status 7"),
        ("unpicklable", None, "exit status 1"),
    ],
)
def test_a_death_is_named_with_what_the_worker_was_at(deed, argument, ending):
    with WorkerPool("worker_targets:deeds", None, 2) as two:
        pids = two.pids
        with pytest.raises(WorkerDied, match=rf"worker 1 of 2 \(process {pids[2]}\) died: {ending}") as told:
            ask(two, 1, deed, argument)
        assert f"its task was ('{deed}'" in told.value.what
    assert gone(pids)


def test_a_message_to_a_dead_worker_names_its_death():
    with WorkerPool("worker_targets:deeds", None, 1) as one:
        os.kill(one.pids[1], signal.SIGKILL)
        until(lambda: gone(one.pids[1:]))
        with pytest.raises(WorkerDied, match="killed by SIGKILL"):
            for _ in range(2):
                one.send(0, ("double", 1))
            list(one.receive())


@pytest.mark.long
def test_a_hang_becomes_an_error_with_the_stacks(monkeypatch, capfd):
    monkeypatch.setattr(workers, "_GRACE", 0.2)
    with WorkerPool("worker_targets:deeds", None, 1) as one:
        one.send(0, ("nap", 60))
        pids = one.pids
        with pytest.raises(
            WorkFailed, match=r"no worker process has answered for 1 seconds; their tasks are \('nap', 60\)"
        ):
            list(one.receive(timeout=1.0))
        assert "in nap" in capfd.readouterr().err
    assert gone(pids)  # though it was still napping


def test_a_worker_that_gets_on_is_not_taken_for_hung():
    """It is waited for until it does not get on any more."""
    steps = iter(range(4))
    with WorkerPool("worker_targets:deeds", None, 1) as one:
        one.send(0, ("nap", 60))
        with pytest.raises(WorkFailed, match="no worker process has answered for"):
            list(one.receive(timeout=0.1, progress=lambda: next(steps, None)))
        assert next(steps, None) is None
        os.kill(one.pids[1], signal.SIGKILL)


STOPPED = """
import os, signal
from blocks import workers
workers._GLANCE = 0.1
with workers.WorkerPool("worker_targets:deeds", None, 1) as one:
    os.kill(one.pids[1], signal.SIGSTOP)
    one.send(0, ("nap", 0.5))
    print("asked", flush=True)
    print([answer for _, _, answer in one.receive(timeout=3.0)])
"""


@pytest.mark.long
def test_time_while_everybody_is_stopped_does_not_count():
    """As by Ctrl-Z, for longer than an answer may take, when the worker has not begun yet."""
    caller = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout
    assert caller.stdout.readline() == "asked\n"
    os.killpg(caller.pid, signal.SIGSTOP)
    time.sleep(3.5)
    os.killpg(caller.pid, signal.SIGCONT)
    told, _ = caller.communicate(timeout=PATIENCE)
    assert (caller.returncode, told) == (0, "['rested']\n")


def test_closing_ends_all_workers_and_frees_all_descriptors():
    """Three rounds: no process and no descriptor stays."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with WorkerPool("worker_targets:deeds", None, 2) as two:
            pids = two.pids
            two.send(0, ("nap", 0.1))
        assert gone(pids)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


ORPHANS = """
import sys, time
from blocks.workers import WorkerPool
team = WorkerPool("worker_targets:deeds", None, 2)
team.send(0, ("nap", 0.3))
print(*team.pids, flush=True)
time.sleep(600)
"""


def test_workers_go_when_their_caller_is_killed():
    """One is at work, one waits, when the caller gets SIGKILL."""
    caller = subprocess.Popen(
        [sys.executable, "-c", ORPHANS], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout
    pids = [int(pid) for pid in caller.stdout.readline().split()]
    assert len(pids) == 3
    assert not gone(pids)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    until(lambda: gone(pids))


@pytest.mark.long
def test_workers_that_are_stopped_before_their_caller_knows_them_go_with_it():
    """It has been interrupted while it waited for them."""
    command = [
        sys.executable,
        "-c",
        "from blocks.workers import WorkerPool; WorkerPool('worker_targets:stopping', None, 1)",
    ]
    found: list[psutil.Process] = []

    def are_stopped() -> bool:
        found[:] = psutil.Process(caller.pid).children(recursive=True)
        return len(found) == 2 and all(each.status() == psutil.STATUS_STOPPED for each in found)

    with subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) as caller:
        until(are_stopped)
        caller.send_signal(signal.SIGINT)
        caller.wait(PATIENCE)
    until(lambda: gone([each.pid for each in found]))


def test_a_caller_with_threads_may_have_workers():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with WorkerPool("worker_targets:deeds", None, 1) as one:
            assert ask(one, 0, "double", 4) == 8
    finally:
        done.set()
        thread.join()


def test_a_target_that_starts_threads_is_refused():
    with pytest.raises(WorkFailed, match="started threads; a process with threads cannot be forked"):
        WorkerPool("worker_targets:threaded", None, 1)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("argument", "kind", "named"),
    [
        ("refuse", RequestError, "no such thing"),
        ("odd", WorkFailed, "ValueError"),
        ("exit", WorkerDied, "did not start"),
    ],
)
def test_a_target_that_fails_is_told(argument, kind, named):
    with pytest.raises(kind, match=named):
        WorkerPool("worker_targets:failing", argument, 2)


def test_an_interpreter_that_was_started_ahead_is_used_once():
    """It has called what it was to call, before the workers were forked."""
    workers.start_first_interpreter("worker_targets:load")
    with WorkerPool("worker_targets:deeds", None, 1) as first, WorkerPool("worker_targets:deeds", None, 1) as second:
        assert ask(first, 0, "loaded") == [first.pids[0]]
        assert ask(second, 0, "loaded") == []


def test_workers_that_inherit_take_no_interpreter_that_was_started_ahead():
    workers.start_first_interpreter("worker_targets:load")
    with (
        Path(os.devnull).open() as file,
        WorkerPool("worker_targets:deeds", None, 1, inherit=[file.fileno()]) as one,
        WorkerPool("worker_targets:deeds", None, 1) as other,
    ):
        assert ask(one, 0, "loaded") == []
        assert ask(other, 0, "loaded") == [other.pids[0]]


def test_what_fails_ahead_is_told_by_the_workers():
    workers.start_first_interpreter("handlers_that_are_not:load")
    with WorkerPool("worker_targets:deeds", None, 1) as one:
        assert ask(one, 0, "double", 4) == 8
    workers.start_first_interpreter("handlers_that_are_not:load")
    with pytest.raises(WorkFailed, match="ModuleNotFoundError"):
        WorkerPool("handlers_that_are_not:deeds", None, 1)


UNUSED = """
from blocks import workers
workers.start_first_interpreter("worker_targets:doze")
print(workers._ahead[0][0].pid)
"""


def test_an_interpreter_that_nobody_used_ends_with_its_caller():
    caller = subprocess.run(
        [sys.executable, "-c", UNUSED], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert caller.stderr == ""
    assert gone([int(caller.stdout)])


def test_a_target_that_does_not_exist_is_told():
    with pytest.raises(WorkFailed, match="ModuleNotFoundError"):
        WorkerPool("handlers_that_are_not:deeds", None, 1)
