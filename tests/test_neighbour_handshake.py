"""How ranks find each other over TCP, and who is not let in."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import rings
from cryptography import x509

from blocks import RequestError, WorkFailed
from ooc.ring import handshake, tcp
from ooc.ring.authority import CertificateAuthority
from ooc.ring.control_connection import FrameChannel, InvalidFrame
from ooc.ring.credentials import RankCredentials, issue_credentials
from ooc.ring.handshake import MAX_PENDING, Authentication, ConnectionAcceptor
from ooc.ring.ring import RingFailed

Place = tuple[str, int]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with rings.nothing_left():
        yield


@pytest.fixture(params=[True, False], ids=["plain", "encrypted"])
def insecure(request) -> bool:
    return request.param


def join_all(
    credentials: Sequence[RankCredentials],
    *,
    insecure: bool,
    absent: Sequence[int] = (),
    late: float = 0.0,
    **given: Any,
) -> list[str]:
    """Have ranks join, the first of them late; what each that is not absent is told."""
    doors = [handshake.listen(rings.HOST) for _ in credentials]
    places = [door.getsockname()[:2] for door in doors]

    def join(rank: int) -> str:
        time.sleep(late if rank == 0 else 0.0)
        try:
            ring = tcp.join(
                rank, places, doors[rank], credentials[rank], insecure=insecure, **{"deadline": rings.LONG, **given}
            )
        except RingFailed as error:
            return error.what
        try:
            rings.pass_slices(ring, [0, 100_000])
        finally:
            ring.close()
        return "nothing"

    present = [rank for rank in range(len(doors)) if rank not in absent]
    found = rings.in_all([lambda rank=rank: join(rank) for rank in present])
    for rank in absent:
        doors[rank].close()
    return found


@pytest.mark.few(1)
def test_ranks_may_come_late(insecure):
    assert join_all(issue_credentials(3, insecure=insecure), insecure=insecure, late=1.0) == ["nothing"] * 3


@pytest.mark.few(1)
def test_a_rank_that_does_not_come_is_named_at_all_others(insecure):
    told = join_all(issue_credentials(4, insecure=insecure), insecure=insecure, absent=[2], deadline=1.5)
    assert re.match(r"rank 1 \(127\.0\.0\.1\) cannot reach rank 2 \(127\.0\.0\.1\) at 127\.0\.0\.1 port \d+: ", told[1])
    assert re.match(r"rank 2 \(127\.0\.0\.1\) did not connect to port \d+ of rank 3 in time", told[2])
    assert told[0] in told[1:]


@pytest.mark.few(1)
def test_ranks_agree_on_who_cannot_reach_the_next(insecure):
    """Each tells, and all end, before anybody waits in vain for a rank that cannot come."""
    own = issue_credentials(3, insecure=insecure)
    doors = [handshake.listen(rings.HOST) for _ in own]
    places = [door.getsockname()[:2] for door in doors]
    places[1] = (rings.HOST, 1)  # where nobody listens
    problems: dict[int, str] = {}
    all_told = threading.Barrier(3)

    def join(rank: int) -> None:
        def agree(problem: str) -> None:
            problems[rank] = problem
            all_told.wait(rings.LONG)
            raise WorkFailed("refused")

        with pytest.raises(WorkFailed, match="refused"):
            tcp.join(
                rank,
                places,
                doors[rank],
                own[rank],
                insecure=insecure,
                deadline=1.5,
                names=["a", "b", "c"],
                agree=agree,
            )

    rings.in_all([lambda rank=rank: join(rank) for rank in range(3)])
    assert problems == {0: "cannot reach rank 1 (b) at 127.0.0.1 port 1: connection refused", 1: "", 2: ""}


def test_the_door_is_closed_once_the_ring_is_there():
    with rings.tcp_rings(2, insecure=False) as ring:
        for member in ring:
            place = member._in.getsockname()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(place)


# Who comes with the wrong papers.


def self_made(own: RankCredentials) -> RankCredentials:
    """The right token and authority, and a certificate that somebody else has signed."""
    return RankCredentials(own.token, own.authority, *CertificateAuthority().certify("rank-1"))


@pytest.mark.few(1)
def test_credentials_of_another_run_are_refused(insecure):
    credentials = issue_credentials(2, insecure=insecure)
    told = join_all([credentials[0], issue_credentials(2, insecure=insecure)[1]], insecure=insecure, deadline=1.0)
    assert "nothing" not in told


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", [self_made, "those of rank 2"])
def test_a_rank_with_the_wrong_certificate_does_not_get_in(wrong):
    first, second, third = issue_credentials(3)
    shown = third if wrong == "those of rank 2" else wrong(second)
    assert "nothing" not in join_all([first, shown, third], insecure=False, deadline=1.0)


def test_papers_that_do_not_fit_together_are_refused_at_once():
    own = issue_credentials(2)[0]
    with pytest.raises(ssl.SSLError):
        join_all([own._replace(certificate=own.authority)] * 2, insecure=False)


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.create_server((rings.HOST, 0)) as listening:
        right = socket.create_connection(listening.getsockname())
        return listening.accept()[0], right


def introduced(door: Authentication, guest: Authentication) -> list[object]:
    """What becomes of it at the door and at the guest: a purpose and a connection, or errors."""
    left, right = pair()

    def greet() -> object:
        connection = door.receive(left)
        try:
            purpose, welcome = door.greet(connection)
            connection.sendall(welcome)
            return purpose
        except OSError as error:
            return error
        finally:
            connection.close()

    def introduce() -> object:
        right.settimeout(5)
        try:
            with guest.introduce(right, 1, time.monotonic() + 5):
                return "welcome"
        except OSError as error:
            return error

    return rings.in_all([greet, introduce])


@pytest.fixture
def three() -> list[RankCredentials]:
    return issue_credentials(3)


def test_both_sides_look_at_who_the_other_is(three):
    """Rank 0 comes to rank 1, of three; each of them with the papers of somebody else."""
    stranger = issue_credentials(3)
    tokens = [own._replace(token="00" * 32) for own in three]
    guest, door = Authentication(0, 3, three[0]), Authentication(1, 3, three[1])
    assert introduced(door, guest) == [1, "welcome"]
    at_door, at_guest = introduced(Authentication(1, 3, stranger[1]), guest)
    assert "CERTIFICATE_VERIFY_FAILED" in str(at_guest)
    at_door, _ = introduced(door, Authentication(0, 3, stranger[0]._replace(authority=three[0].authority)))
    assert "CERTIFICATE_VERIFY_FAILED" in str(at_door)
    at_door, _ = introduced(door, Authentication(0, 3, three[2]))
    assert str(at_door) == "it is rank-2, not rank-0"
    _, at_guest = introduced(Authentication(1, 3, three[2]), guest)
    assert "Hostname mismatch" in str(at_guest)
    at_door, _ = introduced(door, Authentication(0, 3, tokens[0]))
    assert str(at_door) == "it does not have the token of this run"
    at_door, _ = introduced(door, Authentication(0, 4, three[0]))
    assert str(at_door) == "it is rank 0 of 4, not 0 of 3"


def test_a_token_is_asked_of_both_sides_without_encryption():
    (own, *_), (other, *_) = issue_credentials(2, insecure=True), issue_credentials(2, insecure=True)
    assert introduced(Authentication(1, 2, own, insecure=True), Authentication(0, 2, own, insecure=True)) == [
        1,
        "welcome",
    ]
    at_door, at_guest = introduced(Authentication(1, 2, own, insecure=True), Authentication(0, 2, other, insecure=True))
    assert str(at_door) == "it does not have the token of this run"
    assert isinstance(at_guest, ConnectionError)
    left, right = pair()
    with left, ThreadPoolExecutor(1) as thread:  # somebody who lets everybody in
        left.sendall(bytes(64))
        guest = Authentication(0, 2, own, insecure=True)
        with pytest.raises(PermissionError, match="the process there does not have the token"):
            thread.submit(guest.introduce, right, 0, time.monotonic() + 5).result()


# Strangers.


@contextmanager
def trickle(place: Place) -> Iterator[None]:
    ended = threading.Event()

    def send() -> None:
        with suppress(OSError), socket.create_connection(place) as connection:
            while not ended.wait(0.02):
                connection.sendall(b"\x16")

    with ThreadPoolExecutor(1) as thread:
        thread.submit(send)
        yield
        ended.set()


@contextmanager
def saying(place: Place, data: bytes) -> Iterator[None]:
    def send(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.settimeout(rings.LONG)
            connection.sendall(data)

    with socket.create_connection(place) as connection, ThreadPoolExecutor(1) as thread:
        thread.submit(send, connection)
        yield
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def hundreds(place: Place) -> Iterator[None]:
    """Half of a handshake, and silence, from so many that not all can wait to be accepted."""
    with ExitStack() as stack:
        for _ in range(300):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(place)
        yield


@contextmanager
def resetting(place: Place) -> Iterator[None]:
    for _ in range(20):
        with socket.create_connection(place) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    yield


STRANGERS: dict[str, Callable[[Place], Any]] = {
    "silent": lambda place: saying(place, b""),
    "random bytes": lambda place: saying(place, os.urandom(100_000)),
    "a browser": lambda place: saying(place, b"GET / HTTP/1.1\r\nHost: ring\r\n\r\n"),
    "a million bytes of header": lambda place: saying(place, b"\xff" * 1_000_000),
    "a record of TLS that is too long": lambda place: saying(place, b"\x16\x03\x01\xff\xff" + bytes(1_000_000)),
    "a byte at a time": trickle,
    "resetting": resetting,
    "hundreds": hundreds,
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_strangers_do_not_keep_ranks_from_meeting(insecure, stranger):
    """They are there before, and cost a bounded number of threads."""
    credentials = issue_credentials(2, insecure=insecure)
    doors = [handshake.listen(rings.HOST) for _ in credentials]
    places = [door.getsockname()[:2] for door in doors]
    most = 0

    def join(rank: int) -> list[int]:
        ring = tcp.join(rank, places, doors[rank], credentials[rank], insecure=insecure, deadline=rings.LONG)
        sent = [rings.pass_slices(ring, [10, 1_000_000])]
        ring.close()
        return sent

    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        for place in places:
            stack.enter_context(STRANGERS[stranger](place))
        joining = [threads.submit(join, rank) for rank in range(2)]
        while not all(future.done() for future in joining):
            standing = sum(thread.name == "ring-stranger" for thread in threading.enumerate())
            most = max(most, standing)
            time.sleep(0.002)
        assert [future.result() for future in joining] == [[1_000_010]] * 2
    assert most <= 2 * MAX_PENDING


@pytest.mark.parametrize("data", [b"", os.urandom(10_000)], ids=["silent", "random"])
def test_who_does_not_prove_who_it_is_is_turned_away(insecure, data, monkeypatch):
    monkeypatch.setattr(handshake, "MANNERS", 0.3)
    own = issue_credentials(2, insecure=insecure)[0]
    listening = handshake.listen(rings.HOST)
    with ConnectionAcceptor(listening, Authentication(0, 2, own, insecure=insecure)) as door:
        with socket.create_connection(listening.getsockname()[:2], rings.LONG) as stranger, suppress(OSError):
            stranger.sendall(data)
            while stranger.recv(1000):
                pass
        rings.until(lambda: door.refusal != "")
        assert not door.wait(bool, time.monotonic())
    assert door.refusal.startswith("; a connection from 127.0.0.1 was refused: ")


# Those who stand between two ranks.


# Papers, and frames.


def test_credentials_travel_as_json_and_are_not_shown():
    for insecure in (True, False):
        own = issue_credentials(2, insecure=insecure)[1]
        assert RankCredentials(**orjson.loads(orjson.dumps(own._asdict()))) == own
        assert own.token not in f"{own} {own!r} {[own]}"
    with pytest.raises(RequestError, match="have no certificate"):
        Authentication(0, 2, issue_credentials(2, insecure=True)[0])


def test_certificates_are_of_one_run_and_hold_for_a_day():
    first, second = issue_credentials(2)
    certificate = x509.load_pem_x509_certificate(first.certificate.encode())
    assert certificate.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=1)
    assert first.authority == second.authority != issue_credentials(1)[0].authority
    assert first.key != second.key
    assert "PRIVATE" not in first.authority


def test_frames_may_come_in_pieces_and_never_wait():
    left, right = socket.socketpair()
    with left, right:
        sender, receiver = FrameChannel(left, 0), FrameChannel(right, 1)
        for number in range(3000):
            sender.put(3, bytes([number % 256]) * 1000)
        found: list[tuple[int, bytes]] = []
        while sender.unsent:  # the buffers between them hold fewer
            sender.flush()
            found += receiver.arrived()
        assert found == [(3, bytes([number % 256]) * 1000) for number in range(3000)]
        left.close()
        assert not list(receiver.arrived())
        assert not receiver.open


@pytest.mark.parametrize("frame", [b"\xff\xff\xff\xff\x03", b"\0\0\0\0\x09", b"\x09\0\0\0\0", b"\x01\x10\0\0\x01"])
def test_frames_that_no_rank_sends_are_refused_before_they_are_read(frame):
    """Too long for their kind, or of none."""
    left, right = socket.socketpair()
    with left, right:
        left.sendall(frame)
        with pytest.raises(InvalidFrame):
            list(FrameChannel(right, 0).arrived())


def test_a_neighbour_that_sends_no_sense_breaks_the_ring():
    with rings.tcp_rings(3, insecure=True) as ring:
        ring[0]._next.connection.send(b"\xff" * 100)
        for member in ring:
            assert rings.until_told(member.barrier) == "rank 0 (127.0.0.1) sent an invalid message"
