"""Ranks that meet by a shared key, as threads: who is late, different, malformed or a stranger."""

from __future__ import annotations

import os
import resource
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from launches import LONG
from rings import HOST, in_all, nothing_left, pass_slices, until

from benchmarks.sshd import free_port
from blocks import RequestError, WorkFailed
from ooc.launch import rank_number as places
from ooc.launch import rendezvous as joining
from ooc.launch import rendezvous_messages as messages
from ooc.launch import rendezvous_settings
from ooc.launch.rendezvous import join
from ooc.launch.rendezvous_settings import Rendezvous
from ooc.ring import handshake, tcp
from ooc.ring.credentials import key_credentials
from ooc.ring.handshake import MAX_PENDING

VARIABLES = [name for pair in places._VARIABLES for name in pair if name]


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch) -> None:
    for name in (*VARIABLES, "SLURM_JOB_END_TIME", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)


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
    shared = key_credentials(meeting.key, "rendezvous")
    context = rendezvous_settings.at_any_time(shared.context(ssl.PROTOCOL_TLS_CLIENT))
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
    assert found == [f"ranks 2, 3 of 4 did not connect to {first.at} within 2 s"] * 2


def test_a_rank_0_that_does_not_come_is_missed(threads, monkeypatch):
    monkeypatch.setattr(joining, "LONGER", 0.0)
    assert "Connection refused" in told(meetings(2, join_timeout=1.0)[1])


def test_two_processes_of_one_number_are_named_everywhere(threads):
    first, second, _ = meetings(3)
    found = all_told(first, second, second)
    assert len(set(found)) == 1
    assert found[0].startswith(f"two processes have the rank 1: process {os.getpid()} on {socket.gethostname()} and ")


def test_other_numbers_of_ranks_are_named_everywhere(threads):
    first, second = meetings(2)
    found = all_told(first, second._replace(ranks=3))
    assert len(set(found)) == 1
    assert "expects 2 ranks, but rank 1 " in found[0]
    assert found[0].endswith(" expects 3")


@pytest.mark.parametrize("package", ["ooc", "numpy"])
def test_other_versions_are_named_everywhere(threads, monkeypatch, package):
    own = Rendezvous.introduction

    def other(meeting: Rendezvous, address: str, port: int) -> Any:
        found = own(meeting, address, port)
        return found._replace(packages=found.packages | ({package: "0.0"} if meeting.rank else {}))

    monkeypatch.setattr(Rendezvous, "introduction", other)
    found = all_told(*meetings(2))
    assert len(set(found)) == 1
    assert f"has {package} 0.0, rank 0" in found[0]


def test_a_clock_that_is_far_off_is_named_everywhere(threads, monkeypatch):
    own = Rendezvous.introduction

    def other(meeting: Rendezvous, address: str, port: int) -> Any:
        found = own(meeting, address, port)
        return found._replace(clock=found.clock + 7200 * meeting.rank)

    monkeypatch.setattr(Rendezvous, "introduction", other)
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
    assert found[0].startswith(f"rank 1 of 2 did not connect to {first.at} within 2 s; a connection from 127.0.0.1 was")
    assert "it does not have the key" in found[0]


def test_a_rank_that_was_started_again_takes_its_place(threads):
    """Its first process is gone, and two others come late."""
    ranks = meetings(3)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(told, ranks[0])
        with holder(ranks[1]) as connection:
            messages.send(connection, ranks[1].introduction(HOST, 1)._asdict())
            time.sleep(0.5)
        others = [pool.submit(told, each) for each in ranks[1:]]
        assert [future.result() for future in (first, *others)] == ["nothing"] * 3


def test_a_rank_of_the_next_start_waits_while_those_of_this_one_connect(threads, monkeypatch):
    monkeypatch.setattr(joining, "LONGER", 0.0)
    first, second = meetings(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told, first)
        listening = handshake.listen(HOST)
        with holder(first) as connection:
            messages.send(connection, second.introduction(HOST, listening.getsockname()[1])._asdict())
            addresses, _, credentials = messages.read_answer(connection, 2, time.monotonic() + LONG)
            late = told(second._replace(join_timeout=2.0))

            def agree(problem: str) -> None:
                messages.send(connection, messages.reached(problem))
                messages.read_go(connection, time.monotonic() + LONG)

            with closing(tcp.join(1, addresses, listening, credentials, agree=agree)) as ring:
                pass_slices(ring, [0, 100_000])
        assert waiting.result() == "nothing"
    assert late.startswith(f"rank 1 could not join the ring at {first.at} within 2 s: the ranks of another start are")


def test_pairs_that_cannot_reach_each_other_are_named_everywhere_with_what_helps(threads, monkeypatch):
    monkeypatch.setattr(tcp, "join", partial(tcp.join, deadline=1.5))
    introduction = Rendezvous.introduction

    def elsewhere(meeting: Rendezvous, address: str, port: int) -> Any:
        return introduction(meeting, address, port if meeting.rank == 0 else meeting.rank)  # where nobody listens

    monkeypatch.setattr(Rendezvous, "introduction", elsewhere)
    ranks = meetings(3)

    def refused(meeting: Rendezvous) -> tuple[str, str]:
        with pytest.raises(WorkFailed) as failed:
            join(meeting)
        return failed.value.what, failed.value.remedy

    found = in_all([lambda each=each: refused(each) for each in ranks])
    here = socket.gethostname()
    pairs = [
        f"rank {rank} ({here}) cannot reach rank {rank + 1} ({here}) at 127.0.0.1 port {rank + 1}: connection refused"
        for rank in range(2)
    ]
    remedy = (
        f"Open TCP port 1, 2 on rank 1 ({here}), rank 2 ({here}); --ports FIRST-LAST chooses the ports on which ranks"
        " listen. If an address is wrong, set --rendezvous to an address of rank 0 in the network of all ranks."
    )
    assert found == [("; ".join(pairs), remedy)] * 3


def test_a_rank_that_is_lost_before_all_are_connected_is_named(threads, monkeypatch):
    monkeypatch.setattr(tcp, "join", partial(tcp.join, deadline=0.5))
    first, second = meetings(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told, first)
        with handshake.listen(HOST) as listening, holder(first) as connection:
            messages.send(connection, second.introduction(HOST, listening.getsockname()[1])._asdict())
            messages.read_answer(connection, 2, time.monotonic() + LONG)
        lost = f"rank 1 ({socket.gethostname()}) was lost before all ranks were connected: it closed the connection"
        assert waiting.result() == lost


def test_a_rank_whose_ports_are_all_taken_is_named_everywhere(threads):
    """Nobody waits until --join-timeout for a rank that has ended."""
    first, second, third = meetings(3)
    with socket.create_server((HOST, port := free_port())):
        found = all_told(first, second._replace(ports=range(port, port + 1)), third)
    assert found == [f"rank 1 ({socket.gethostname()}): port {port} is not free at {HOST}"] * 3


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
            messages.send(connection, third.introduction(HOST, 1)._asdict() | change)
            with pytest.raises(RequestError, match=r"a process on 127[.]0[.]0[.]1 has an incompatible version of ooc"):
                messages.read_answer(connection, 3, time.monotonic() + LONG)
        found = [future.result() for future in waiting]
    assert found == ["a process on 127.0.0.1 has an incompatible version of ooc"] * 2


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
    shared = key_credentials(first.key, "rendezvous")
    context = shared.context(ssl.PROTOCOL_TLS_SERVER)
    with socket.create_server((HOST, first.port)) as listening, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(told, second)
        with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
            messages.send(connection, reply)
            assert asking.result() == "rank 0 has an incompatible version of ooc"


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
