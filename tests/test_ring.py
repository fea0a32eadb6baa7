"""One contract for rings over TCP, plain and encrypted, and over MPI; then what breaks them."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import psutil
import pytest
import rings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rings import RankProcesses, ThreadRings, mpiexec

from blocks import WorkFailed
from ooc.ring import authority, collectives, control_connection, message_relay, tcp
from ooc.ring.ring import FirstRingFailure, HeartbeatSilence, LocalRing, RingFailed

PATIENCE = 1.5  # seconds, of ranks whose neighbours are stopped
needs_mpi = pytest.mark.skipif(mpiexec() is None, reason="THERE IS NO MPIEXEC: the ring over MPI is not tested")


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> Iterator[RankProcesses]:
    """Five processes under mpiexec."""
    pytest.importorskip("mpi4py", reason="THERE IS NO MPI4PY: the ring over MPI is not tested")
    fleet = RankProcesses(tmp_path_factory.mktemp("mpi"), 5, mpi=True)
    yield fleet
    fleet.close()


@pytest.fixture(params=["plain", "encrypted", pytest.param("mpi", marks=needs_mpi)])
def transport(request) -> ThreadRings | RankProcesses:
    """What makes rings."""
    return request.getfixturevalue("mpi") if request.param == "mpi" else ThreadRings(insecure=request.param == "plain")


@pytest.fixture(autouse=True)
def nothing_is_left(request) -> Iterator[None]:
    """No thread, socket or other file of a ring outlives its test."""
    if "transport" in request.fixturenames:
        request.getfixturevalue("transport")
    with rings.nothing_left():
        yield


# What every transport does.


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_slices_arrive_whole_and_in_order(transport, ranks):
    sizes = [0, 1, 7, 4096, 100_000, 3_000_001, 0, 5_000_000, 65_536]
    with transport.ring(ranks) as do:
        assert do(rings.pass_slices, sizes) == [sum(sizes)] * ranks


@pytest.mark.few(1)
@pytest.mark.parametrize(("size", "count"), [(4_000_000, 40), (100, 300)])
def test_a_rank_that_does_not_receive_holds_back_the_one_before(transport, size, count):
    """What is on the way is bounded in bytes: a system's buffers for TCP, one slice for MPI."""
    with transport.ring(2) as do:
        sent = do(rings.hold_back, size, count)
    assert all(number * size < 80e6 for number in sent)
    assert isinstance(transport, ThreadRings) or sent == [0, 0]


def test_a_ring_of_one_holds_one_slice():
    ring = LocalRing()
    assert rings.hold_back(ring, 1000, 30) == 1
    assert rings.told(ring.all_reduce, np.zeros(3)) == "nothing"


kinds = st.sampled_from(["int64", "float64"])
lengths = st.integers(0, 40) | st.sampled_from([16_383, 16_384, 16_385, 150_001])


def drawn(ranks: int, seed: int, size: int, kind: str) -> list[np.ndarray]:
    """Arrays whose sum depends on the order, if they are of floating point; integers overflow."""
    random = np.random.default_rng(seed)
    if kind == "int64":
        return [random.integers(-(2**62), 2**62, size) for _ in range(ranks)]
    return [random.standard_normal(size) * 10.0 ** random.integers(-16, 16, size) for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_sums_are_those_in_the_order_of_ranks_bit_for_bit(transport, ranks):
    with transport.ring(ranks) as do:

        @settings(max_examples=15, suppress_health_check=list(HealthCheck))
        @given(seed=st.integers(0, 2**32), size=lengths, kind=kinds)
        def check(seed: int, size: int, kind: str) -> None:
            arrays = drawn(ranks, seed, size, kind)
            expected = functools.reduce(np.add, arrays).tobytes()
            assert [found.tobytes() for found in do(rings.reduce, arrays)] == [expected] * ranks

        check()


def test_the_order_of_ranks_shows_in_these_sums():
    first, second, third = drawn(3, 1, 100, "float64")
    assert ((first + second) + third).tobytes() != (first + (second + third)).tobytes()


def test_a_million_numbers_and_arrays_of_any_shape(transport):
    big = [np.arange(1_000_000) * rank for rank in range(3)]
    with transport.ring(3) as do:
        assert all(np.array_equal(found, np.arange(1_000_000) * 3) for found in do(rings.reduce, big))
        assert all(
            np.array_equal(found, np.full((3, 5), 6.0)) for found in do(rings.reduce, [np.full((3, 5), 2.0)] * 3)
        )


def test_sums_of_more_chunks_than_are_on_their_way_at_a_time():
    ranks = 6
    size = (collectives.window(ranks) + 3) * collectives.CHUNK // 8 + 1
    with ThreadRings(insecure=True).ring(ranks) as do:
        assert all((found == 15).all() for found in do(rings.reduce, [np.full(size, rank) for rank in range(ranks)]))


@pytest.mark.long
def test_keys_are_renewed_before_they_have_encrypted_too_much(monkeypatch):
    """While slices and sums go round, and after certificates have ended."""
    monkeypatch.setattr(tcp, "MOST_RECORDS", 40)
    monkeypatch.setattr(control_connection, "MOST_RECORDS", 40)
    monkeypatch.setattr(authority, "_VALID", timedelta(seconds=3))
    with rings.tcp_rings(3, insecure=False) as ring:
        time.sleep(3.5)
        before = [connection for member in ring for connection in connections_of(member)]
        sizes = [400_000] * 20 + [3] * 50
        found = rings.in_all([lambda member=member: rings.slices_and_sums(member, sizes, 40_000) for member in ring])
        after = [connection for member in ring for connection in connections_of(member)]
    assert found == [70] * 3
    assert all(new is not old for new, old in zip(after, before, strict=True))


def connections_of(ring: tcp.TcpRing) -> list[Any]:
    return [ring._in, ring._out, ring._previous.connection, ring._next.connection]


def test_a_message_without_end_is_a_failure(monkeypatch):
    """Memory is not filled with what a rank sends."""
    monkeypatch.setattr(message_relay, "_MOST_UNCHECKED", 2 << 20)
    monkeypatch.setattr(message_relay, "available_memory", lambda: 10 << 20)

    def collect(ring) -> str:
        if ring.rank == 1:
            return rings.until_told(ring.send, message_relay._MORE, memoryview(bytes(1 << 20)))
        with pytest.raises(WorkFailed) as failed:
            list(message_relay.collect_messages(ring, [], [0, 1]))
        ring.fail(failed.value.what)
        return failed.value.what

    found = rings.on_ring(2, collect)
    assert found[0] == "a message from another rank is larger than 6 MB, half of the free memory"
    assert found[1].endswith(f"stopped: {found[0]}")


@pytest.mark.parametrize("kind", rings.UNFIT)
def test_what_cannot_be_added_up_is_refused(transport, kind):
    with transport.ring(2) as do:
        assert all("cannot sum" in found for found in do(rings.refused_sum, kind))
        assert do(rings.pass_slices, [5]) == [5, 5]  # the ring is as it was


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_bytes_of_all_ranks_are_gathered_in_their_order(transport, ranks):
    data = [os.urandom(size) for size in (3, 0, 70_001, 8)][:ranks]
    with transport.ring(ranks) as do:
        assert do(rings.gather, data) == [data] * ranks
        assert do(rings.gather, [b""] * ranks) == [[b""] * ranks] * ranks


def test_too_many_bytes_to_gather_are_refused_at_all_ranks(transport):
    with transport.ring(2) as do:
        found = do(rings.gather, [b"", bytes(collectives.MOST_GATHERED + 1)])
        assert all(text.startswith("rank 1 sent 1048577 bytes") for text in found)
        assert do(rings.gather, [b"a", b"b"]) == [[b"a", b"b"]] * 2


@pytest.mark.parametrize("ranks", [2, 5])
def test_nobody_leaves_a_barrier_before_all_have_come(transport, ranks):
    with transport.ring(ranks) as do:
        for _ in range(3):
            times = do(rings.wait_for_all)
            assert max(came for came, _ in times) <= min(left for _, left in times)


@pytest.mark.parametrize("ranks", [2, 3])
def test_slices_and_sums_do_not_get_into_each_others_way(transport, ranks):
    with transport.ring(ranks) as do:
        assert do(rings.slices_and_sums, [400_000] * 10 + [3] * 10, 40_000) == [20] * ranks


# What breaks a ring is told to all.


@pytest.mark.few(3)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_reason_of_a_failure_reaches_every_call_of_every_rank(transport, ranks):
    with transport.ring(ranks) as do:
        found = do(rings.block_everywhere, 1, "the disk is\nfull")
    for number, texts in enumerate(found):
        host, expected = texts[0].partition("(")[2].partition(")")[0], "stopped: the disk is full"
        assert {text.replace("\n", " ") for text in texts} == {f"rank 1 ({host}) {expected}"}, number


@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_of_unlike_arrays_are_a_failure(transport, ranks):
    with transport.ring(ranks) as do:
        found = do(rings.add_up_unlike)
    assert all("bytes of type d in its call" in text for text in found), found
    assert len(set(found)) == 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_slice_that_does_not_fit_is_a_failure(transport, ranks):
    with transport.ring(ranks) as do:
        found = do(rings.send_too_much)
    assert all("rank 0" in text and "sent a slice of 11 bytes to a rank that has room for 10" in text for text in found)


def test_a_ring_that_was_left_is_of_no_more_use(transport):
    with transport.ring(2) as do:
        for texts in do(rings.close_and_go_on):
            assert [text.endswith("has left the ring") for text in texts] == [True, True, True, False]


def test_a_ring_of_one_fails_and_ends_too():
    for end, reason in ((lambda ring: ring.fail("no"), "stopped: no"), (LocalRing.close, "has left the ring")):
        ring = LocalRing()
        waiting = threading.Timer(0.1, end, [ring])
        waiting.start()
        assert rings.told(ring.receive, memoryview(bytearray(1))) == f"rank 0 (this host) {reason}"
        assert rings.told(ring.barrier) == f"rank 0 (this host) {reason}"
        waiting.join()
    ring = LocalRing()
    ring.send(0, memoryview(b"12"))
    with pytest.raises(RingFailed, match="2 bytes to a rank that has room for 1"):
        ring.receive(memoryview(bytearray(1)))


# Processes that die or stand still.


@pytest.fixture
def fleet(tmp_path) -> Iterator[RankProcesses]:
    """Four processes, for a ring over TCP."""
    with closing(RankProcesses(tmp_path, 4, mpi=False)) as ranks:
        yield ranks
        for pid in ranks.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("insecure", [True, False], ids=["plain", "encrypted"])
def test_a_rank_that_is_killed_is_named_at_once(fleet, insecure):
    """Long before it would be for its silence."""
    fleet.join_tcp(insecure=insecure, patience=60.0)
    for rank in (0, 1, 3):
        fleet.tell(rank, "do", "wait_for_failure")
    os.kill(fleet.pids[2], signal.SIGKILL)
    for rank in (0, 1, 3):
        assert set(fleet.answer(rank)) == {"rank 2 (127.0.0.1) closed the connection"}


@pytest.mark.few(1)
@pytest.mark.parametrize("insecure", [True, False], ids=["plain", "encrypted"])
def test_a_rank_that_stands_still_is_named_and_learns_of_it(fleet, insecure):
    fleet.join_tcp(insecure=insecure, patience=PATIENCE)
    for rank in (0, 1, 3):
        fleet.tell(rank, "do", "wait_for_failure")
    os.kill(fleet.pids[2], signal.SIGSTOP)
    silent = {"rank 2 (127.0.0.1) has not responded for 1.5 s"}
    for rank in (0, 1, 3):
        assert set(fleet.answer(rank)) == silent
    os.kill(fleet.pids[2], signal.SIGCONT)
    assert set(fleet.ask([2], "do", lambda _: ("wait_for_failure",))[0]) == silent


@pytest.mark.long
def test_ranks_that_all_stand_still_go_on_together(tmp_path):
    """A machine that sleeps, or a job that is suspended, is no failure."""
    with closing(RankProcesses(tmp_path, 3, mpi=False)) as fleet:
        fleet.join_tcp(insecure=True, patience=6.0)
        for signum, seconds in ((signal.SIGSTOP, 7.0), (signal.SIGCONT, 0.5)):
            for pid in fleet.pids:
                os.kill(pid, signum)
            time.sleep(seconds)
        assert fleet.ask(range(3), "do", lambda _: ("pass_slices", [1000])) == [1000] * 3
        fleet.ask(range(3), "close")


@pytest.mark.few(1)
@needs_mpi
@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL])
def test_mpi_leaves_nobody_waiting_for_a_rank_that_is_gone(tmp_path, signum):
    """One that stands still is named. mpiexec ends all ranks if one is killed, and the ranks do in the end."""
    pytest.importorskip("mpi4py")
    with closing(RankProcesses(tmp_path, 3, mpi=True)) as fleet:
        fleet.ask(range(3), "join_mpi", lambda _: (3, PATIENCE))
        os.kill(fleet.pids[2], signum)
        if signum == signal.SIGSTOP:
            for found in fleet.ask([0, 1], "do", lambda _: ("wait_for_failure",)):
                assert [text.partition(") ")[2] for text in found] == ["has not responded for 1.5 s"] * 2
                assert all(text.startswith("rank 2 (") for text in found)
    assert fleet.processes[0].returncode != 0
    rings.until(lambda: not any(psutil.pid_exists(pid) for pid in fleet.pids))


# Parts of it.


def test_the_first_reason_is_the_one_that_stays():
    failure = FirstRingFailure(["a", "b"])
    failure.check()
    assert failure.record(1, "was late")
    assert not failure.record(0, "was later")
    with pytest.raises(RingFailed, match=r"^rank 1 \(b\) was late\nAll ranks stop"):
        failure.check()
    assert FirstRingFailure(["x"] * 2).unpacked(failure.packed()) == (1, "was late")


def test_what_other_ranks_tell_is_short_and_fit_to_be_shown():
    failure = FirstRingFailure(["a", "b"])
    failure.record(0, "\x1b[31mred\n" + "é" * 5000)
    rank, reason = failure.unpacked(failure.packed())
    assert (rank, reason[:9]) == (0, " [31mred ")
    assert len(reason.encode()) < 2100
    for senseless in (b"", b"abc", b"\2\0\0\0reason"):
        with pytest.raises(ValueError, match="unknown rank"):
            failure.unpacked(senseless)


@pytest.mark.long
def test_silence_counts_from_the_last_sign_of_life_while_awake():
    silence = HeartbeatSilence([1, 3], patience=4.0, allowance=3.0)
    assert silence.pass_time(3600.0) == []  # this rank was stopped: a quarter of the patience
    silence.heard(1)
    assert [silence.pass_time(0.9) for _ in range(4)] == [[]] * 4
    assert silence.pass_time(0.5) == [1]  # of 3 there is still the allowance
    silence.leave(1)
    assert [silence.pass_time(0.9) for _ in range(3)] == [[], [], [3]]
