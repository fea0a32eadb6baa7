"""Connections between ranks that somebody else repeats, changes or cuts."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import rings

from ooc.ring import handshake, tcp
from ooc.ring.credentials import RankCredentials, issue_credentials
from ooc.ring.handshake import Authentication, ConnectionAcceptor

Place = tuple[str, int]


@pytest.fixture(params=[True, False], ids=["plain", "encrypted"])
def insecure(request) -> bool:
    return request.param


class MeddlingProxy:
    """Hands on what rank 0 and rank 1 of two say to each other, on the connections that rank 0 makes.

    said: what rank 0 said, by connection. spoil: (connection, byte) to be changed. cut: the connection on which nothing
    more is handed on.
    """

    def __init__(self, place: Place, spoil: tuple[int, int] = (-1, 0)) -> None:
        self.said: list[bytearray] = []
        self.cut: int | None = None
        self._to, self._spoil = place, spoil
        self._listening = handshake.listen(rings.HOST)
        self.place = self._listening.getsockname()[:2]
        self._threads = ThreadPoolExecutor(5)
        self._sockets: list[socket.socket] = [self._listening]
        self._threads.submit(self._accept)

    def _accept(self) -> None:
        for number in range(2):
            guest, host = self._listening.accept()[0], socket.create_connection(self._to)
            self._sockets += [guest, host]
            self.said.append(bytearray())
            self._threads.submit(self._hand_on, guest, host, number)
            self._threads.submit(self._hand_on, host, guest, -1)

    def _hand_on(self, source: socket.socket, sink: socket.socket, number: int) -> None:
        with suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                if number >= 0:
                    before = len(self.said[number])
                    self.said[number] += data
                    if number == self._spoil[0] and before <= self._spoil[1] < before + len(data):
                        data[self._spoil[1] - before] ^= 4
                if self.cut is None or self.cut != number:
                    sink.sendall(data)
        for end in (source, sink):
            handshake.hang_up(end)

    def close(self) -> None:
        for end in self._sockets:
            handshake.hang_up(end)
        self._threads.shutdown()
        for end in self._sockets:
            end.close()


@contextmanager
def through_between(
    credentials: Sequence[RankCredentials], *, insecure: bool, patience: float = 8.0, **given: Any
) -> Iterator[tuple[Any, Any]]:
    """A ring of two, and who stands between."""
    doors = [handshake.listen(rings.HOST) for _ in range(2)]
    between = MeddlingProxy(doors[1].getsockname()[:2], **given)
    places = [doors[0].getsockname()[:2], between.place]
    join = [
        lambda rank=rank: tcp.join(rank, places, doors[rank], credentials[rank], insecure=insecure, patience=patience)
        for rank in range(2)
    ]
    ring = rings.in_all(join)
    try:
        yield ring, between
    finally:
        rings.in_all([member.close for member in ring])
        between.close()


def test_what_was_said_before_lets_nobody_in_again(insecure):
    credentials = issue_credentials(2, insecure=insecure)
    with through_between(credentials, insecure=insecure) as (ring, between):
        rings.in_all([lambda member=member: rings.pass_slices(member, [50_000]) for member in ring])
    listening = handshake.listen(rings.HOST)
    with ConnectionAcceptor(listening, Authentication(1, 2, credentials[1], insecure=insecure)) as door:
        for said in between.said:
            assert len(said) > 100
            with socket.create_connection(listening.getsockname()[:2], rings.LONG) as again, suppress(OSError):
                again.sendall(said)
                while again.recv(1000):
                    pass
        assert not door.inside


def test_a_slice_that_was_changed_on_the_way_is_noticed(insecure):
    credentials = issue_credentials(2, insecure=insecure)
    with through_between(credentials, insecure=insecure, spoil=(1, 200_000)) as (ring, _):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(rings.told, ring[0].send, 0, memoryview(bytes(500_000)))
            told = rings.told(ring[1].receive, memoryview(bytearray(500_000)))
        assert told.startswith("rank 0 (127.0.0.1) sent ")
        undecrypted = r"cannot be decrypted: (DECRYPTION_FAILED|RECORD_LAYER_FAILURE)"  # as OpenSSL calls it
        assert re.search("whose checksum does not match" if insecure else undecrypted, told)
        rings.until(lambda: rings.told(ring[0].barrier) == told)


@pytest.mark.few(1)
def test_a_cut_of_the_connection_of_slices_alone_is_noticed(insecure):
    """As by a firewall that has forgotten it; a rank that is slow to receive, or has nothing to send, is not blamed."""
    with through_between(issue_credentials(2, insecure=insecure), insecure=insecure, patience=1.0) as (ring, between):
        rings.in_all([lambda member=member: rings.pass_slices(member, [50_000]) for member in ring])
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(ring[1].receive, memoryview(bytearray(9)))
            time.sleep(2.5)
            ring[0].send(0, memoryview(bytes(9)))
            assert waiting.result() == (0, 9)
            ring[0].send(1, memoryview(bytes(9)))
            time.sleep(2.5)
            assert ring[1].receive(memoryview(bytearray(9))) == (1, 9)
            between.cut = 1
            ring[0].send(2, memoryview(bytes(500_000)))
            told = rings.told(ring[1].receive, memoryview(bytearray(500_000)))
        assert told == "rank 0 (127.0.0.1) sent slices that did not arrive within 1 s"
        rings.until(lambda: rings.told(ring[0].barrier) == told)


def test_a_cut_of_the_control_connection_alone_is_noticed(insecure):
    """Two ranks have two of them, and heartbeats on the other one say nothing of this one."""
    with through_between(issue_credentials(2, insecure=insecure), insecure=insecure, patience=1.0) as (ring, between):
        rings.in_all([lambda member=member: rings.pass_slices(member, [50_000]) for member in ring])
        between.cut = 0
        waiting = [lambda member=member: rings.told(member.receive, memoryview(bytearray(9))) for member in ring]
        assert rings.in_all(waiting) == ["rank 0 (127.0.0.1) has not responded for 1 s"] * 2
