"""Ranks that meet by a key, without ssh: what schedulers start, who does not fit, and who is not let in."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import model_bytes
from launches import LONG, OPTIONS, expected, nobody_left, shards_of
from rings import HOST, in_all, nothing_left, pass_slices, until

import ooc.ring
from benchmarks.sshd import free_port
from blocks import RequestError, WorkFailed
from blocks.corpus.dataset import Dataset
from ooc.launch import place as places
from ooc.launch import rendezvous as meeting_place
from ooc.launch import rendezvous_messages as messages
from ooc.launch.key_file import read_key
from ooc.launch.place import place
from ooc.launch.rendezvous import Rendezvous, join, rendezvous
from ooc.ring import handshake, tcp
from ooc.ring.handshake import MAX_PENDING
from ooc.runs.run import Run

VARIABLES = [name for pair in places._VARIABLES for name in pair if name]
SLURM = {"SLURM_PROCID": "{}", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "{}", "OOC_RING_SIZE": "2"}


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch) -> None:
    for name in (*VARIABLES, "SLURM_JOB_END_TIME", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A directory with two shards and a key."""
    made = tmp_path_factory.mktemp("rendezvous")
    shards_of(made, 2)
    return made


@pytest.fixture(scope="module")
def model(folder) -> dict[str, bytes]:
    return expected(folder / "expected", [Dataset(folder / f"shard-{rank}") for rank in range(2)])


def write_key(path: Path, text: str | None = None, mode: int = 0o600) -> Path:
    path.write_text(secrets.token_hex(32) + "\n" if text is None else text)
    path.chmod(mode)
    return path


class Job:
    """Processes of one command, as a scheduler starts them: each is told its number by variables."""

    def __init__(self, folder: Path, variables: dict[str, str], *command: object, ranks: int = 2) -> None:
        write_key(folder / "ring.key")
        meet = ("--rendezvous", f"{HOST}:{free_port()}", "--key-file", "ring.key", "--join-timeout", 60)
        words = [sys.executable, "-m", "ooc", *map(str, (*command, *meet))]
        self.processes = [
            subprocess.Popen(
                words,
                cwd=folder,
                env=os.environ | {name: value.format(rank) for name, value in variables.items()},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]

    def done(self) -> list[subprocess.CompletedProcess[str]]:
        found = []
        for process in self.processes:
            out, err = process.communicate(timeout=LONG)
            assert "Traceback" not in err, err
            found.append(subprocess.CompletedProcess([], process.returncode, out, err))
        return found


def train(run: str, *options: object) -> Sequence[object]:
    return ("train", "lda", "shard-{rank}", run, *OPTIONS, *options)


def codes(done: Sequence[subprocess.CompletedProcess[str]]) -> list[int]:
    return [each.returncode for each in done]


@pytest.mark.long
def test_a_job_whose_time_is_over_goes_on_in_the_next_one(folder, model, monkeypatch, tmp_path):
    """A minute is kept for the end."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 68)))
    with nobody_left(folder):
        first = Job(folder, SLURM, *train("slurm-{rank}", "--iterations", 100_000, "--resume")).done()
    assert codes(first) == [75, 75], first
    for each in first:
        assert "Continue with: srun -n 2 ooc resume slurm-{rank} --rendezvous 127.0.0.1:" in each.stderr
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    iterations = len(Run(folder / "slurm-0").metrics()) + 2
    again = Job(folder, SLURM, "resume", "slurm-{rank}", "--iterations", iterations).done()
    assert codes(again) == [0, 0], again
    shards = [Dataset(folder / f"shard-{rank}") for rank in range(2)]
    assert model_bytes(folder / "slurm-0") == expected(tmp_path / "expected", shards, iterations)


def test_a_pod_that_is_killed_ends_all_and_the_job_goes_on(folder, model):
    """Kubernetes starts the containers of all pods again, with the same command."""
    command = train("pod-{rank}", "--resume")
    with nobody_left(folder):
        job = Job(folder, {"OOC_RING_RANK": "{}", "OOC_RING_SIZE": "2"}, *command)
        until(lambda: (folder / "pod-1/config.json").exists() and len(Run(folder / "pod-1").metrics()) >= 3)
        job.processes[1].kill()
        killed = job.done()
    assert codes(killed) == [1, -signal.SIGKILL]
    assert "rank 1 (127.0.0.1) closed the connection" in killed[0].stderr, killed[0].stderr
    assert "continue with: ooc resume pod-{rank} --rendezvous 127.0.0.1:" in killed[0].stderr
    assert "--key-file ring.key --ring-rank 0 --ring-size 2" in killed[0].stderr
    again = Job(folder, KUBERNETES, *command).done()
    assert codes(again) == [0, 0], again
    assert again[0].stdout.count("60 iterations") == 1
    assert again[1].stdout == ""
    assert model_bytes(folder / "pod-0") == model
    assert not (folder / "pod-1/model").exists()
    assert (folder / "ring.key").read_text().strip() not in "".join(
        path.read_text(errors="replace") for path in folder.rglob("pod-*/*.t*")
    )


def test_different_commands_are_named_on_all_ranks(folder):
    variables = {"RANK": "{}", "WORLD_SIZE": "2", "OOC_TOPICS": "{}5"}
    words = [word for word in train("unlike-{rank}") if word not in ("--topics", 6)]
    done = Job(folder, variables, *words).done()
    assert codes(done) == [2, 2]
    assert {each.stderr.splitlines()[0] for each in done} == {
        f"ooc: OOC_TOPICS is 5 on rank 0 ({socket.gethostname()}), but 15 on rank 1 ({socket.gethostname()})"
    }
    assert not list(folder.glob("unlike-*"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--rendezvous", "here", "--key-file", "ring.key"], "--rendezvous here: expected HOST:PORT"),
        (["--rendezvous", "2001:db8::1", "--key-file", "ring.key"], "--rendezvous 2001:db8::1: expected HOST:PORT"),
        (["--rendezvous", "here:1"], "--rendezvous needs the key that all ranks share"),
        (["--ring-size", "2"], "--ring-size can only be used with --rendezvous"),
        (["--rendezvous", "here:1", "--transport", "mpi"], "--rendezvous and --transport are mutually exclusive"),
        (["--rendezvous", "here:1", "--watch"], "--watch can only be used on one machine"),
    ],
    ids=["address", "brackets", "key", "alone", "transport", "watch"],
)
def test_requests_that_cannot_be_are_refused(folder, ooc_in, options, what):
    write_key(folder / "ring.key")
    done = ooc_in(folder)(*train("refused", *options))
    assert done.returncode == 2
    assert what in done.stderr, done.stderr
    assert not (folder / "refused").exists()


def test_the_variable_for_launch_is_no_request_to_meet(folder, ooc_in, monkeypatch):
    monkeypatch.setenv("OOC_PATIENCE", "30")
    monkeypatch.setenv("RANK", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "--topics must be from 1" in ooc_in(folder)("train", "lda", "shard-0", "alone", "--topics", 0).stderr


# The number of a rank


@pytest.mark.parametrize(
    ("variables", "given", "found"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "9"}, {}, (1, 3)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4"}, {}, (2, 4)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8"}, {}, (2, 8)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6", "SLURM_PROCID": "0"}, {}, (5, 6)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, {}, (1, 2)),
        ({"JOB_COMPLETION_INDEX": "3"}, {"ranks": 4}, (3, 4)),
        ({"RANK": "7", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, {"ranks": 4}, (2, 4)),
        ({"RANK": "1", "WORLD_SIZE": "3"}, {"rank": 2}, (2, 3)),
        ({}, {"rank": 0, "ranks": 1}, (0, 1)),
    ],
)  # fmt: skip
def test_schedulers_tell_the_number_of_a_rank(monkeypatch, variables, given, found):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert place(**given) == found


@pytest.mark.parametrize(
    ("variables", "given", "what"),
    [
        ({}, {}, "cannot tell which rank it is"),
        ({"JOB_COMPLETION_INDEX": "1"}, {}, "cannot tell which rank it is"),
        ({}, {"rank": 1}, "cannot tell how many ranks there are"),
        ({"RANK": "x", "WORLD_SIZE": "3"}, {}, "RANK must be an integer, got 'x'"),
        ({"RANK": "3", "WORLD_SIZE": "3"}, {}, "this process is rank 3 of 3"),
        ({}, {"rank": -1, "ranks": 2}, "this process is rank -1 of 2"),
    ],
)
def test_a_rank_without_a_number_is_refused(monkeypatch, variables, given, what):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RequestError, match=what):
        place(**given)


# The key


def test_a_key_is_read_as_ssh_reads_it(tmp_path):
    text = secrets.token_hex(32)
    assert read_key(write_key(tmp_path / "key", text)) == bytes.fromhex(text)
    assert read_key(write_key(tmp_path / "upper", text.upper() + "\n", 0o400)) == bytes.fromhex(text)
    other = write_key(tmp_path / "other", text, 0o644)
    with pytest.raises(RequestError, match="0644 are too open"):
        read_key(other)
    if os.getuid() == 0:  # as a secret of Kubernetes, which belongs to root and is mounted for a group
        os.chown(other, 12345, 12345)
        assert read_key(other) == bytes.fromhex(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("correct horse battery staple", "64 hexadecimal digits"),
        ("ab" * 31, "64 hexadecimal digits"),
        ("ab" * 33, "64 hexadecimal digits"),
        ("ab" * 32, "the key is not random"),
        ("", "64 hexadecimal digits"),
    ],
)
def test_a_key_that_could_be_guessed_is_refused(tmp_path, text, what):
    with pytest.raises(RequestError, match=what):
        read_key(write_key(tmp_path / "key", text))


@pytest.mark.parametrize("address", ["a..b:1", "[a]:1", "[::1:1", ":1", "here:0", "here:65536", "here:1:1", "here:²"])
def test_an_address_that_cannot_be_is_refused(tmp_path, address):
    with pytest.raises(RequestError, match="expected HOST:PORT"):
        rendezvous(address, write_key(tmp_path / "key"), 0, 2)


def test_a_key_is_not_in_what_is_printed(tmp_path):
    meeting = rendezvous("[::1]:29400", write_key(tmp_path / "key"), 0, 2)
    assert repr(meeting) == "Rendezvous([::1]:29400, rank 0 of 2)"


def test_a_key_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RequestError, match="key cannot be read: No such file or directory"):
        rendezvous("here:1", tmp_path / "key", 0, 2)


# Who meets


@pytest.fixture
def threads() -> Iterator[None]:
    with nothing_left():
        yield


def meetings(ranks: int, host: str = HOST, **options: Any) -> list[Rendezvous]:
    port, key = free_port(), secrets.token_bytes(32)
    return [Rendezvous(host, port, key, rank, ranks, **{"join_timeout": LONG, **options}) for rank in range(ranks)]


@contextmanager
def holder(meeting: Rendezvous) -> Iterator[ssl.SSLSocket]:
    """A connection to rank 0 of a process that has the key, and may be anything else."""
    shared = meeting_place.of_holders(meeting.key, "rendezvous")
    context = meeting_place._at_any_time(shared.context(ssl.PROTOCOL_TLS_CLIENT))
    with socket.socket() as plain:
        until(lambda: plain.connect_ex((HOST, meeting.port)) == 0)
        with context.wrap_socket(plain, server_hostname="rendezvous") as connection:
            yield connection


def told(meeting: Rendezvous, late: float = 0.0) -> str:
    """What a rank is told that joins, and passes slices on if it can."""
    time.sleep(late)
    try:
        with closing(join(meeting)) as ring:
            pass_slices(ring, [0, 100_000])
    except (RequestError, WorkFailed) as error:
        return error.what
    return "nothing"


def all_told(*calls: Callable[[], str] | Rendezvous) -> list[str]:
    return in_all([call if callable(call) else lambda call=call: told(call) for call in calls])  # type: ignore[misc]


@pytest.mark.parametrize("late", [0, 2])
def test_ranks_may_come_late(threads, late):
    ranks = meetings(3)
    assert all_told(*(lambda each=each: told(each, each.rank == late) for each in ranks)) == ["nothing"] * 3


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_ranks_meet_by_other_addresses(threads, host):
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        assert all_told(*meetings(3, host)) == ["nothing"] * 3


def test_a_rank_that_does_not_come_is_named_everywhere(threads):
    first, second, *_ = meetings(4, join_timeout=2.0)
    found = all_told(first, second)
    assert found == [f"ranks 2, 3 of 4 did not come to {first.at} within 2 s"] * 2


def test_a_rank_0_that_does_not_come_is_missed(threads, monkeypatch):
    monkeypatch.setattr(meeting_place, "_LONGER", 0.0)
    assert "Connection refused" in told(meetings(2, join_timeout=1.0)[1])


def test_two_processes_of_one_number_are_named_everywhere(threads):
    first, second, _ = meetings(3)
    found = all_told(first, second, second)
    assert len(set(found)) == 1
    assert found[0].startswith(f"two processes are rank 1: process {os.getpid()} on {socket.gethostname()} and ")


def test_other_numbers_of_ranks_are_named_everywhere(threads):
    first, second = meetings(2)
    found = all_told(first, second._replace(ranks=3))
    assert len(set(found)) == 1
    assert "was told of 2 ranks, but rank 1 " in found[0]
    assert found[0].endswith(" of 3")


@pytest.mark.parametrize("package", ["ooc", "numpy"])
def test_other_versions_are_named_everywhere(threads, monkeypatch, package):
    own = meeting_place._own

    def other(meeting: Rendezvous, address: str, port: int) -> Any:
        found = own(meeting, address, port)
        return found._replace(packages=found.packages | ({package: "0.0"} if meeting.rank else {}))

    monkeypatch.setattr(meeting_place, "_own", other)
    found = all_told(*meetings(2))
    assert len(set(found)) == 1
    assert f"has {package} 0.0, rank 0" in found[0]


def test_a_clock_that_is_far_off_is_named_everywhere(threads, monkeypatch):
    own = meeting_place._own

    def other(meeting: Rendezvous, address: str, port: int) -> Any:
        found = own(meeting, address, port)
        return found._replace(clock=found.clock + 7200 * meeting.rank)

    monkeypatch.setattr(meeting_place, "_own", other)
    found = all_told(*meetings(2))
    assert found == [f"the clock of rank 1 ({socket.gethostname()}) is 7200 s ahead of this machine"] * 2


def test_a_port_that_is_taken_is_named(threads):
    first, _ = meetings(2)
    with socket.create_server((HOST, first.port)):
        assert told(first) == f"--rendezvous {first.at}: rank 0 cannot listen on this port: Address already in use"


def test_another_key_is_noticed_at_both_ends(threads):
    first, second = meetings(2, join_timeout=2.0)
    found = all_told(first, second._replace(key=secrets.token_bytes(32)))
    assert found[1] == f"the process at {first.at} does not have the key of this rank"
    assert found[0].startswith(f"rank 1 of 2 did not come to {first.at} within 2 s; a connection from 127.0.0.1 was")
    assert "it does not have the key" in found[0]


def test_a_rank_that_was_started_again_takes_its_place(threads):
    """Its first process is gone, and two others come late."""
    ranks = meetings(3)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(told, ranks[0])
        with holder(ranks[1]) as connection:
            messages.send(connection, meeting_place._own(ranks[1], HOST, 1)._asdict())
            time.sleep(0.5)
        others = [pool.submit(told, each) for each in ranks[1:]]
        assert [future.result() for future in (first, *others)] == ["nothing"] * 3


def test_a_rank_of_the_next_start_waits_while_those_of_this_one_connect(threads, monkeypatch):
    monkeypatch.setattr(meeting_place, "_LONGER", 0.0)
    first, second = meetings(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told, first)
        listening = handshake.listen(HOST)
        with holder(first) as connection:
            messages.send(connection, meeting_place._own(second, HOST, listening.getsockname()[1])._asdict())
            addresses, credentials = messages.read_answer(connection, 2, time.monotonic() + LONG)
        late = told(second._replace(join_timeout=2.0))
        with closing(tcp.join(1, addresses, listening, credentials)) as ring:
            pass_slices(ring, [0, 100_000])
        assert waiting.result() == "nothing"
    assert late.startswith(f"rank 1 could not join the ring at {first.at} within 2 s: the ranks of another start are")


def test_a_next_rank_that_cannot_be_reached_is_named_with_what_helps(threads, monkeypatch):
    monkeypatch.setattr(tcp, "join", partial(tcp.join, deadline=1.5))
    first, second = meetings(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(join, first)
        with holder(first) as connection:
            messages.send(connection, meeting_place._own(second, HOST, 1)._asdict())
            with pytest.raises(WorkFailed, match=r"rank 1 \(127.0.0.1\) could not be reached by rank 0 for") as failed:
                waiting.result()
    assert "open this port of rank 1 for rank 0. Each rank listens at the port of --rendezvous" in failed.value.remedy
    assert "ooc launch" not in failed.value.remedy


# Holders of the key that are another version of ooc, or anything else


@pytest.mark.parametrize(
    "change",
    [
        {"rank": "1"},
        {"rank": True},
        {"clock": "now"},
        {"address": "here"},
        {"port": 1 << 16},
        {"packages": {"ooc": 1}},
        {"hostname": "\x1b[2J"},
        {"more": 1},
    ],
    ids=str,
)
@pytest.mark.few(2)
def test_an_introduction_that_is_not_understood_ends_all(threads, change):
    first, second, third = meetings(3)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(told, each) for each in (first, second)]
        with holder(third) as connection:
            messages.send(connection, meeting_place._own(third, HOST, 1)._asdict() | change)
            with pytest.raises(RequestError, match="introduces itself as another version of ooc does"):
                messages.read_answer(connection, 3, time.monotonic() + LONG)
        found = [future.result() for future in waiting]
    assert found == ["a process on 127.0.0.1 introduces itself as another version of ooc does"] * 2


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x10\x27\0\0" + b"[" * 10_000, b"\2\0\0\0[]"])
@pytest.mark.few(1)
def test_what_is_no_message_is_refused(threads, data):
    first, second = meetings(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told, first)
        with holder(first) as connection:
            connection.sendall(data)
            with suppress(OSError):
                assert connection.recv(100) == b""
        assert told(second) == "nothing"
        assert waiting.result() == "nothing"


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"refused": 3, "code": 2},
        {"refused": ["what"], "code": 2},
        {"refused": ["what", ""], "code": []},
        {"addresses": [["here", 1], [HOST, 1]], "credentials": {"token": "ab"}},
        {"addresses": [[HOST, 1]], "credentials": {"token": "ab"}},
        {"addresses": [[HOST, 1], [HOST, 1]], "credentials": {"password": "ab"}},
    ],
    ids=str,
)
@pytest.mark.few(2)
def test_an_answer_that_is_not_understood_is_an_error(threads, reply):
    first, second = meetings(2)
    shared = meeting_place.of_holders(first.key, "rendezvous")
    context = shared.context(ssl.PROTOCOL_TLS_SERVER)
    with socket.create_server((HOST, first.port)) as listening, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(told, second)
        with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
            messages.send(connection, reply)
            assert asking.result() == "rank 0 answers as another version of ooc does"


def test_strangers_get_nothing_and_keep_nobody_out(threads):
    """Many that are silent, and many that send much: rank 0 neither waits for them nor holds what they send."""
    first, second = meetings(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(2) as pool, ExitStack() as crowd:
        waiting = pool.submit(told, first)
        heard = b""
        for number in range(4 * MAX_PENDING):
            stranger = crowd.enter_context(socket.socket())
            until(lambda stranger=stranger: stranger.connect_ex((HOST, first.port)) == 0)
            stranger.settimeout(0.05)
            with suppress(OSError):
                stranger.sendall(bytes(number % 2 << 16) or b"")
                heard += stranger.recv(1000) if number % 2 else b""
        assert told(second) == "nothing"
        assert waiting.result() == "nothing"
    assert len(heard) < 100 * 4 * MAX_PENDING  # TLS alerts
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


# From Python


def test_a_function_gets_the_ring(threads, tmp_path):
    where: dict[str, Any] = {"rendezvous": f"{HOST}:{free_port()}", "key_file": write_key(tmp_path / "ring.key")}

    def add_up(ring: ooc.ring.Ring) -> list[int]:
        array = np.array([ring.rank, 1])
        ring.all_reduce(array)
        return array.tolist()

    calls = [lambda rank=rank: ooc.ring.run(add_up, rank=rank, ranks=3, **where) for rank in range(3)]
    assert in_all(calls) == [[3, 3]] * 3


def test_a_function_that_fails_ends_all_ranks(threads, tmp_path):
    where: dict[str, Any] = {"rendezvous": f"{HOST}:{free_port()}", "key_file": write_key(tmp_path / "ring.key")}

    def fail(ring: ooc.ring.Ring) -> None:
        if ring.rank == 1:
            raise WorkFailed("the reason")
        ring.barrier()

    def call(rank: int) -> str:
        with pytest.raises(WorkFailed) as failed:
            ooc.ring.run(fail, rank=rank, ranks=2, **where)
        return failed.value.what

    assert in_all([lambda rank=rank: call(rank) for rank in range(2)]) == [
        "rank 1 (127.0.0.1) stopped: the reason",
        "the reason",
    ]


@pytest.mark.long
def test_a_command_runs_from_python(folder, model, monkeypatch):
    monkeypatch.chdir(folder)
    where: dict[str, Any] = {"rendezvous": f"{HOST}:{free_port()}", "key_file": write_key(folder / "python.key")}
    words = [str(word) for word in train("python-{rank}")]

    def call(rank: int) -> None:
        ooc.ring.run(words, rank=rank, ranks=2, **where)

    assert in_all([lambda rank=rank: call(rank) for rank in range(2)]) == [None, None]
    assert model_bytes(folder / "python-0") == model
    with pytest.raises(RequestError, match="`ooc train lda` on rank 0 ended with exit code 2"):
        ooc.ring.run(words, rank=0, ranks=1, **where)
