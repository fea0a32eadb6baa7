"""Connect the ranks of a TCP ring to their neighbours with mutual authentication; refuse all other connections.

Each rank opens two connections to the next rank, which may start later, and accepts two from the previous rank. On each
connection, both ends prove their rank: by a certificate if the ring is encrypted, and by a keyed hash of the token and
fresh random numbers. When it is connected, the rank stops listening.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from ooc.ring.control_connection import farewell
from ooc.ring.credentials import NO_CHECK_TIME, RankCredentials, certified_name, rank_name
from ooc.ring.ring import FirstRingFailure

CONTROL, SLICES = PURPOSES = (0, 1)  # purposes of connections
MAX_PENDING = 32  # connections that are not authenticated yet
MANNERS = 4.0  # seconds for a pending connection to authenticate itself
_LONGER = 2.0  # seconds beyond the deadline in which the previous rank can still report why it cannot connect
_CONNECT = 10.0  # seconds to reach a port; a busy rank only takes long to reply, and the kernel connects meanwhile
_RETRY = 0.1  # seconds between attempts to connect
_GLANCE = 0.1  # seconds until the acceptor notices that it is to close
# Seconds of silence before the first probe, seconds between probes, number of probes.
_PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_NONCE = 32
_HELLO = struct.Struct(f"<8sIIB{_NONCE}s")  # version, rank, ranks, purpose, nonce
_VERSION = b"ooc-rng1"
_PROOF = 32

Address = tuple[str, int]


class NeighbourConnections(NamedTuple):
    """A rank's connections from the previous rank and to the next rank, each by purpose."""

    previous: dict[int, socket.socket]
    next: dict[int, socket.socket]


class NeighbourUnreachable(Exception):
    """A neighbour could not be reached. Arguments: the rank to name, and what it failed to do."""


def listen(host: str = "", port: int = 0) -> socket.socket:
    """Return a socket to which the previous rank can connect; `getsockname()[1]` is the port."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family)


def listen_at(address: str, ports: Iterable[int]) -> socket.socket | None:
    """Return a socket to which the previous rank can connect, on the first free port of `ports`; None if none is free.

    address: IP address of this machine; only a router may know this address.
    """
    for port, host in itertools.product(ports, (address, "")):
        with contextlib.suppress(OSError):
            return listen(host, port)
    return None


def connect_neighbours(
    manners: Authentication,
    listening: socket.socket,
    addresses: Sequence[Address],
    failure: FirstRingFailure,
    deadline: float,
    agree: Callable[[str], None],
) -> NeighbourConnections:
    """Connect to both neighbours.

    Raises RingFailed if a neighbour does not connect before the deadline; a neighbour that is already connected is
    told, so that it raises RingFailed, too.

    listening: socket, closed at the end.
    addresses: addresses of all ranks.
    deadline: when connecting must have succeeded, on the clock of `time.monotonic`.
    agree: see `tcp.join`.
    """
    made: dict[int, socket.socket] = {}
    with ExitStack() as unused, ConnectionAcceptor(listening, manners) as door:
        try:
            problem = ""
            try:
                for purpose in PURPOSES:
                    made[purpose] = unused.enter_context(_find(addresses[manners.next], manners, purpose, deadline))
            except OSError as error:
                host, port = addresses[manners.next]
                problem = f"cannot reach {failure.name(manners.next)} at {host} port {port}: {_why(error)}"
            agree(problem)
            if problem:
                raise NeighbourUnreachable(manners.rank, problem)
            if not door.wait(lambda inside: len(inside) == len(PURPOSES), max(deadline, time.monotonic()) + _LONGER):
                port = listening.getsockname()[1]
                what = f"did not connect to port {port} of rank {manners.rank} in time{door.refusal}"
                raise NeighbourUnreachable(manners.previous, what)
            links = NeighbourConnections(door.take(), made)
        except NeighbourUnreachable as absent:
            failure.record(*absent.args)
            for control in filter(None, (door.inside.get(CONTROL), made.get(CONTROL))):
                with contextlib.suppress(OSError):
                    control.sendall(farewell(failure))
            failure.check()
        unused.pop_all()
    return links


def _find(address: Address, manners: Authentication, purpose: int, deadline: float) -> socket.socket:
    """Connect to the next rank, which is listening; retry for a while.

    Raises OSError.
    """
    until_connected = min(deadline, time.monotonic() + _CONNECT)
    while True:
        now = time.monotonic()
        try:
            connection = socket.create_connection(address, max(min(until_connected - now, MANNERS), _RETRY))
            until_connected = deadline
            return manners.introduce(connection, purpose, min(deadline, time.monotonic() + MANNERS))
        except OSError:
            if time.monotonic() + _RETRY > until_connected:
                raise
        time.sleep(_RETRY)


def _why(error: OSError) -> str:
    """Return why a connection failed."""
    if isinstance(error, ssl.SSLError) or not error.errno:
        return "connection timed out" if isinstance(error, TimeoutError) else str(error)
    return os.strerror(error.errno).lower()


class Authentication:
    """Mutual authentication of a rank and its neighbours. Methods raise OSError if authentication fails."""

    def __init__(self, rank: int, ranks: int, credentials: RankCredentials, *, insecure: bool = False) -> None:
        self.rank, self.ranks = rank, ranks
        self.previous, self.next = (rank - 1) % ranks, (rank + 1) % ranks
        self._token = bytes.fromhex(credentials.token)
        self._server = None if insecure else credentials.context(ssl.PROTOCOL_TLS_SERVER)
        self._client = None if insecure else credentials.context(ssl.PROTOCOL_TLS_CLIENT)
        if self._server is not None:
            self._server.sni_callback = self._check_wanted

    def _check_wanted(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int | None:
        """Refuse a peer that asks for the name of another rank.

        A rank that tries to join the next rendezvous at this address thus gets an error that means "wait", not an
        unknown certificate.
        """
        return None if name == rank_name(self.rank) else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    def receive(self, stranger: socket.socket) -> socket.socket:
        """Return the (encrypted) connection to a peer that has connected; nothing is exchanged yet."""
        stranger.getpeername()  # if the peer is gone, the ssl module would leave an open socket behind
        if self._server is None:
            return stranger
        return self._server.wrap_socket(stranger, server_side=True, do_handshake_on_connect=False)

    def greet(self, connection: socket.socket) -> tuple[int, bytes]:
        """Verify an accepted connection; returns its purpose and the welcome message to reply with."""
        deadline = time.monotonic() + MANNERS
        if isinstance(connection, ssl.SSLSocket):
            connection.settimeout(MANNERS)
            connection.do_handshake()
            if certified_name(connection) != rank_name(self.previous):
                raise PermissionError(f"it is {certified_name(connection)}, not {rank_name(self.previous)}")
        nonce = os.urandom(_NONCE)
        connection.sendall(nonce)
        hello = read_exactly(connection, _HELLO.size, deadline)
        proof = read_exactly(connection, _PROOF, deadline)
        if not hmac.compare_digest(proof, self._proof(b"hello", nonce, hello)):
            raise PermissionError("it does not have the token of this run")
        version, rank, ranks, purpose, _ = _HELLO.unpack(hello)
        if (version, rank, ranks) != (_VERSION, self.previous, self.ranks) or purpose not in PURPOSES:
            raise PermissionError(f"it is rank {rank} of {ranks}, not {self.previous} of {self.ranks}")
        return purpose, self._proof(b"welcome", nonce, hello)

    def introduce(self, connection: socket.socket, purpose: int, deadline: float) -> socket.socket:
        """Authenticate to the next rank; returns the connection to use from now on. Closes it on failure."""
        try:
            if self._client is not None:
                connection = self._client.wrap_socket(connection, server_hostname=rank_name(self.next))
            nonce = read_exactly(connection, _NONCE, deadline)
            hello = _HELLO.pack(_VERSION, self.rank, self.ranks, purpose, os.urandom(_NONCE))
            connection.sendall(hello + self._proof(b"hello", nonce, hello))
            if not hmac.compare_digest(
                read_exactly(connection, _PROOF, deadline), self._proof(b"welcome", nonce, hello)
            ):
                raise PermissionError("the process there does not have the token of this run")
        except BaseException:
            connection.close()
            raise
        return prepare_socket(connection)

    def renew(self, connection: socket.socket, *, accepted: bool) -> ssl.SSLSocket:
        """Return a new TLS connection with new keys, after both ends have requested a renewal.

        accepted: whether the previous rank opened the connection. The caller does the handshake and calls
            `check_renewed`. One day after the start of the run, certificates expire for new connections, but not for
            renewals.
        """
        context = self._server if accepted else self._client
        assert context
        context.verify_flags |= NO_CHECK_TIME
        return context.wrap_socket(
            socket.socket(fileno=connection.detach()),
            server_side=accepted,
            server_hostname=None if accepted else rank_name(self.next),
            do_handshake_on_connect=False,
        )

    def check_renewed(self, connection: ssl.SSLSocket) -> None:
        """Raise PermissionError unless the peer is still the same rank."""
        rank = self.previous if connection.server_side else self.next
        if certified_name(connection) != rank_name(rank):
            raise PermissionError(f"it is {certified_name(connection)}, not {rank_name(rank)}")

    def _proof(self, *parts: bytes) -> bytes:
        return hmac.digest(self._token, b"".join(parts), "sha256")


class PeerAuthenticator(Protocol):
    """Protocol of objects that authenticate the peers of an `ConnectionAcceptor`; methods raise OSError or ValueError
    on failure.
    """

    def receive(self, stranger: socket.socket) -> socket.socket:
        """Return the connection to use with a peer that has connected; nothing is exchanged yet."""

    def greet(self, connection: socket.socket) -> tuple[int, bytes]:
        """Verify an accepted connection; returns its number and the welcome message to reply with."""


class ConnectionAcceptor:
    """Accepts connections that a greeter verifies, keeps the latest one for each number, and refuses all others.
    Pending handshakes are limited in number and time. If there are too many, the oldest is dropped, as a genuine rank's
    handshake takes hardly any time.

    refusal: end of an error message, about the last connection that was refused.
    """

    def __init__(self, listening: socket.socket, manners: PeerAuthenticator) -> None:
        self.inside: dict[int, socket.socket] = {}
        self.refusal = ""
        self._listening, self._manners = listening, manners
        self._crowd: dict[socket.socket, threading.Thread] = {}  # in order of arrival
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._open, name="ring-door", daemon=True)

    def __enter__(self) -> ConnectionAcceptor:
        self._thread.start()
        return self

    def wait(self, complete: Callable[[Mapping[int, socket.socket]], bool], deadline: float) -> bool:
        """Wait until `complete` returns True for the accepted connections, by number; returns False after a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: complete(self.inside), deadline - time.monotonic())

    def accepted(self) -> dict[int, socket.socket]:
        """Return the accepted connections by number."""
        with self._changed:
            return dict(self.inside)

    def take(self) -> dict[int, socket.socket]:
        """Return the accepted connections by number; the caller has to close them."""
        with self._changed:
            inside, self.inside = self.inside, {}
        return inside

    def drop(self, number: int) -> None:
        """Close an accepted connection."""
        with self._changed:
            self.inside.pop(number).close()

    def _open(self) -> None:
        self._listening.settimeout(_GLANCE)
        while not self._closed:
            try:
                stranger, address = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:  # the peer has gone, or too many files are open
                time.sleep(_GLANCE)
                continue
            try:
                self._admit(self._manners.receive(stranger), str(address[0]).removeprefix("::ffff:"))
            except OSError:
                stranger.close()

    def _admit(self, stranger: socket.socket, host: str) -> None:
        thread = threading.Thread(target=self._talk, args=(stranger, host), name="ring-stranger", daemon=True)
        leaving = None
        with self._changed:
            if len(self._crowd) == MAX_PENDING:
                longest = next(iter(self._crowd))
                leaving = self._crowd.pop(longest)
                hang_up(longest)
            self._crowd[stranger] = thread
        if leaving is not None:
            leaving.join()
        thread.start()

    def _talk(self, stranger: socket.socket, host: str) -> None:
        purpose, welcome = None, b""
        try:
            purpose, welcome = self._manners.greet(stranger)
        except (OSError, ValueError) as error:
            self.refusal = f"; a connection from {host} was refused: {error}"
        with self._changed:
            waited = self._crowd.pop(stranger, None) is not None and not self._closed
            if purpose is None or not waited:
                stranger.close()
                return
            if purpose in self.inside:  # the peer has given up its earlier connection
                self.inside[purpose].close()
            with contextlib.suppress(OSError):
                stranger.sendall(welcome)
            self.inside[purpose] = prepare_socket(stranger)
            self._changed.notify_all()

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._thread.join()
        self._listening.close()
        with self._changed:
            standing = dict(self._crowd)
            for connection in standing:
                hang_up(connection)
            for connection in self.inside.values():
                connection.close()
        for thread in standing.values():
            thread.join()


def hang_up(connection: socket.socket) -> None:
    """Shut down a socket to wake all threads that wait for it; bypasses TLS, as other threads may use its object."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def read_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Read exactly `size` bytes before a deadline."""
    data = bytearray(size)
    filled = 0
    while filled < size:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        got = connection.recv_into(memoryview(data)[filled:])
        filled += got
        if got == 0 or time.monotonic() > deadline:
            raise ConnectionError("it closed the connection" if got == 0 else "it took too long")
    return bytes(data)


def prepare_socket(connection: socket.socket) -> socket.socket:
    """Set the options of a connected socket.

    Buffer sizes are left to the kernel, which increases them to megabytes on fast connections. Keepalive probes keep
    firewalls from dropping the connection, and detect a peer that is gone. TCP_USER_TIMEOUT is not set, as it would
    also end the connection to a rank that is slow to receive.
    """
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        if hasattr(socket, option):  # some platforms lack some of these options
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
