"""Let the ranks of a ring meet without ssh: rank 0 listens at an address, and all who have its key come there.

Schedulers start the processes. Each derives the private key of a certificate authority from the key that all share, and
certifies itself, so TLS 1.3 proves to both ends of a connection that the other has the key, which is never sent. A rank
introduces itself, rank 0 waits for all, checks that they fit together, and answers with the addresses of all ranks and
with credentials of this run, as `ooc launch` does through ssh. From there on it is the same ring.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import random
import re
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from blocks import stderr
from blocks.errors import OocError, RequestError, WorkFailed
from ooc.launch.key_file import read_key
from ooc.launch.place import place
from ooc.launch.preflight import check_addresses, check_clocks, check_packages, own_packages, own_version
from ooc.launch.rendezvous_messages import (
    OTHER_VERSION,
    Introduction,
    answer,
    read_answer,
    read_introduction,
    refusal,
    send,
)
from ooc.ring import tcp
from ooc.ring.credentials import NO_CHECK_TIME, Credentials, issue, of_holders
from ooc.ring.handshake import MANNERS, Acceptor, Address, listen, listen_at, ready
from ooc.ring.ring import PATIENCE, LocalRing, Ring

JOIN_TIMEOUT = 600.0  # seconds for all ranks to come
_LONGER = 5.0  # seconds that others wait longer than rank 0, which knows who is missing
_GLANCE = 0.2  # seconds until rank 0 looks who is there
_FIRST_NOTE, _NOTES = 10.0, 60.0  # seconds until a rank that waits says so, and between its notes
_RETRY, _MOST_RETRY = 0.1, 2.0  # seconds until rank 0 is looked for again
_NAME = "rendezvous"  # in the certificates
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]]+)):(?P<port>[0-9]{1,5})")
_BUSY = "TLSV1_UNRECOGNIZED_NAME"  # answer of a rank that is connecting to its neighbours
_REMEDY = (
    ". Each rank listens at the port of --rendezvous, or at another one if that is taken on its machine. If the address"
    " is wrong, give --rendezvous an address of rank 0 in the network of all ranks."
)


class Rendezvous(NamedTuple):
    """Where ranks meet. key: 32 bytes that all ranks have, and nobody else. join_timeout: seconds for all to come.
    patience: see `tcp.join`."""

    host: str
    port: int
    key: bytes
    rank: int
    ranks: int
    join_timeout: float = JOIN_TIMEOUT
    patience: float = PATIENCE

    def __repr__(self) -> str:
        return f"Rendezvous({self.at}, rank {self.rank} of {self.ranks})"  # keep the key out of output and logs

    @property
    def at(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def rendezvous(
    address: str,
    key_file: str | Path,
    rank: int | None = None,
    ranks: int | None = None,
    *,
    join_timeout: float = JOIN_TIMEOUT,
    patience: float = PATIENCE,
) -> Rendezvous:
    """Return where this process meets the other ranks. address: host:port of rank 0. rank, ranks: see `place`."""
    host, port = _host_and_port(address)
    for name, seconds in (("join-timeout", join_timeout), ("patience", patience)):
        if not 1 <= seconds <= 86400:
            raise RequestError(f"--{name} must be from 1 to 86400 seconds, got {seconds:g}")
    rank, ranks = place(rank, ranks)
    return Rendezvous(host, port, read_key(Path(key_file)), rank, ranks, join_timeout, patience)


def _host_and_port(address: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    try:
        if found and 0 < int(found["port"]) < 1 << 16:
            host = found["name"] or str(ipaddress.IPv6Address(found["ipv6"]))
            host.encode("idna")  # as `socket` does; it refuses an empty label
            return host, int(found["port"])
    except ValueError:
        pass
    raise RequestError(
        f"--rendezvous {address}: expected HOST:PORT",
        "Give the host of rank 0 and a free port: node1:29400, or [2001:db8::1]:29400 for IPv6.",
    )


def join(meeting: Rendezvous) -> Ring:
    """Return the ring of all ranks, which call this function and wait for each other.

    Raises RequestError if they do not fit together, WorkFailed if some do not come in time, RingFailed if neighbours
    cannot connect.
    """
    if meeting.ranks == 1:
        return LocalRing()
    come = _receive_all if meeting.rank == 0 else _introduce
    listening, addresses, credentials = come(meeting, of_holders(meeting.key, _NAME))
    return tcp.join(meeting.rank, addresses, listening, credentials, patience=meeting.patience, remedy=_REMEDY)


def _own(meeting: Rendezvous, address: str, port: int) -> Introduction:
    packages = {"ooc": own_version(), **own_packages()}
    return Introduction(
        meeting.rank, meeting.ranks, socket.gethostname(), os.getpid(), packages, address, port, time.time()
    )


class Notes:
    """Say now and then what a rank is waiting for."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _FIRST_NOTE

    def say(self, text: str) -> None:
        if (now := time.monotonic()) > self._next:
            self._next = now + _NOTES
            stderr.note(text)


# Rank 0


class Reception:
    """Authenticate ranks that come to rank 0, and read their introductions, by the number of their connection."""

    def __init__(self, shared: Credentials) -> None:
        self.introductions: dict[int, Introduction | str] = {}  # str: host of a process that is not understood
        self._context = _at_any_time(shared.context(ssl.PROTOCOL_TLS_SERVER))
        self._numbers = itertools.count()

    def receive(self, stranger: socket.socket) -> socket.socket:
        """Return the encrypted connection to a peer that has connected; nothing is exchanged yet."""
        stranger.getpeername()  # if the peer is gone, the ssl module would leave an open socket behind
        return self._context.wrap_socket(stranger, server_side=True, do_handshake_on_connect=False)

    def greet(self, connection: socket.socket) -> tuple[int, bytes]:
        """Verify an accepted connection; returns its number, and nothing to answer yet."""
        assert isinstance(connection, ssl.SSLSocket)
        until = time.monotonic() + MANNERS
        connection.settimeout(MANNERS)
        try:
            connection.do_handshake()
        except ssl.SSLError as error:
            raise PermissionError(f"it does not have the key ({error.reason})") from None
        if (found := read_introduction(connection, until)) is not None:
            found = found._replace(clock=found.clock - time.time())
        number, host = next(self._numbers), _plain(connection.getpeername()[0])
        self.introductions[number] = found or host
        return number, b""


def _receive_all(meeting: Rendezvous, shared: Credentials) -> Met:
    """Wait for all ranks and answer them."""
    reception = Reception(shared)
    listening = _listen(meeting)
    with contextlib.ExitStack() as unused:
        again = unused.enter_context(listening.dup())  # the last rank connects to the same port
        with Acceptor(listening, reception) as door:
            try:
                there = _all_ranks(door, reception, meeting)
                addresses = _addresses(meeting, {rank: each[0] for rank, each in there.items()}, _local(there))
            except OocError as error:
                _refuse_all(door, error, meeting.ranks - 1)
                raise
            credentials = issue(meeting.ranks)
            for rank, (_, connection) in there.items():
                with contextlib.suppress(OSError):  # the ring notices who is gone
                    send(connection, answer(addresses, credentials[rank]))
        unused.pop_all()
    return again, addresses, credentials[0]


def _listen(meeting: Rendezvous) -> socket.socket:
    """Return the socket of rank 0: at the given IP address if this machine has it, else at all of its addresses.

    A name is not enough to choose one: on Debian a machine's own name is 127.0.1.1 to itself.
    """
    try:
        ipaddress.ip_address(meeting.host)
        with contextlib.suppress(OSError):
            return listen(meeting.host, meeting.port)
    except ValueError:
        pass
    try:
        return listen("", meeting.port)
    except OSError as error:
        raise RequestError(
            f"--rendezvous {meeting.at}: rank 0 cannot listen on this port: {os.strerror(error.errno or 0)}",
            "Choose a free port. If another process is rank 0 here, give each its own --ring-rank.",
        ) from None


Met = tuple[socket.socket, list[Address], Credentials]  # where a rank listens, and what it has to know to join
Present = Mapping[int, tuple[Introduction, socket.socket]]  # by rank


def _all_ranks(door: Acceptor, reception: Reception, meeting: Rendezvous) -> Present:
    """Wait for all other ranks. Raises WorkFailed if some do not come, RequestError if one does not fit."""
    others, until, notes = meeting.ranks - 1, time.monotonic() + meeting.join_timeout, Notes()
    own = _own(meeting, "", 0)
    while True:
        door.wait(lambda inside: len(inside) >= others, min(until, time.monotonic() + _GLANCE))
        there = _present(door, reception, own)
        if len(there) == others:
            return there
        missing = [rank for rank in range(1, meeting.ranks) if rank not in there]
        names = f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(map(str, missing[:8]))}"
        told = f"{names}{' and others' if len(missing) > 8 else ''} of {meeting.ranks}"
        if time.monotonic() > until:
            raise WorkFailed(
                f"{told} did not come to {meeting.at} within {meeting.join_timeout:g} s{door.refusal}",
                "Look for the messages of these ranks. If there is a firewall, open this port."
                " --join-timeout gives them more time.",
            )
        notes.say(f"waiting at {meeting.at} for {told}{door.refusal}")


def _present(door: Acceptor, reception: Reception, own: Introduction) -> dict[int, tuple[Introduction, socket.socket]]:
    """Return the ranks whose connections are open. Raises RequestError if two are the same, or one does not fit."""
    there: dict[int, tuple[Introduction, socket.socket]] = {}
    for number, connection in door.accepted().items():
        each = reception.introductions[number]
        if isinstance(each, str):
            raise RequestError(f"a process on {each} introduces itself as another version of ooc does", OTHER_VERSION)
        if _is_closed(connection):
            door.drop(number)
            continue
        _check_fits(own, each)
        if each.rank in there:
            other = there[each.rank][0]
            raise RequestError(
                f"two processes are rank {each.rank}: process {other.process} on {other.hostname} and process"
                f" {each.process} on {each.hostname}",
                "Give each process its own number, from 0: --ring-rank, or RANK in its environment.",
            )
        there[each.rank] = each, connection
    return there


def _check_fits(own: Introduction, other: Introduction) -> None:
    if other.ranks != own.ranks:
        raise RequestError(
            f"{own.name} was told of {own.ranks} ranks, but {other.name} of {other.ranks}",
            "Start all ranks with the same --ring-size.",
        )
    if not 0 < other.rank < own.ranks:
        raise RequestError(f"{other.name} came to rank 0, but ranks are from 0 to {own.ranks - 1}")
    check_packages([own.name, other.name], [own.packages, other.packages])


def _addresses(meeting: Rendezvous, there: Mapping[int, Introduction], own_address: Address) -> list[Address]:
    """Return the addresses of all ranks, once these are checked. own_address: of rank 0."""
    found = [_own(meeting, *own_address), *(there[rank] for rank in range(1, meeting.ranks))]
    names = [each.name for each in found]
    check_addresses(
        [each.address for each in found],
        [each.hostname for each in found],
        names,
        "Give --rendezvous the IP address of rank 0 in the network of all ranks, not its name.",
    )
    for warning in check_clocks(names[1:], [each.clock for each in found[1:]]):
        stderr.warn(warning)
    return [(each.address, each.port) for each in found]


def _refuse_all(door: Acceptor, error: OocError, others: int) -> None:
    """Tell the other ranks why rank 0 ends; if the request is wrong, also those that are just about to come."""
    until = time.monotonic() + (_LONGER if isinstance(error, RequestError) else 0.0)
    told = 0
    while True:
        for connection in door.take().values():
            told += 1
            with connection, contextlib.suppress(OSError):
                send(connection, refusal(error))
        if told >= others or not door.wait(bool, until):
            return


def _local(there: Present) -> Address:
    """Return the address and port at which the last rank reached this one."""
    address, port = there[max(there)][1].getsockname()[:2]
    return _plain(address), int(port)


# Other ranks


def _introduce(meeting: Rendezvous, shared: Credentials) -> Met:
    """Go to rank 0, and return its answer.

    If rank 0 is not there, or leaves, it may be about to start again: it is looked for until the time is over.
    """
    context = _at_any_time(shared.context(ssl.PROTOCOL_TLS_CLIENT))
    began, notes, pause = time.monotonic(), Notes(), _RETRY
    until = began + meeting.join_timeout + _LONGER
    obstacle: object = "the time was over"
    while time.monotonic() < until:
        try:
            return _ask(meeting, context, until)
        except ssl.SSLCertVerificationError:
            raise RequestError(
                f"the process at {meeting.at} does not have the key of this rank",
                "Give all ranks the same key file, and each run a port of its own.",
            ) from None
        except OSError as error:
            busy = getattr(error, "reason", None) == _BUSY
            obstacle = "the ranks of another start are just connecting there" if busy else error
        notes.say(f"waiting for rank 0 at {meeting.at}: {obstacle}")
        time.sleep(min(pause * random.uniform(0.5, 1.0), max(until - time.monotonic(), 0.0)))
        pause = min(2 * pause, _MOST_RETRY)
    raise WorkFailed(
        f"rank {meeting.rank} could not join the ring at {meeting.at} within {time.monotonic() - began:.0f} s:"
        f" {obstacle}",
        "Look for the message of rank 0, which has to run on this host. If there is a firewall, open this port."
        " --join-timeout gives all ranks more time.",
    )


def _ask(meeting: Rendezvous, context: ssl.SSLContext, until: float) -> Met:
    with socket.create_connection((meeting.host, meeting.port), MANNERS) as plain:
        address = _plain(plain.getsockname()[0])
        if (listening := listen_at(address, (meeting.port, 0))) is None:
            raise RequestError(f"rank {meeting.rank} cannot listen at {address}, nor at other addresses")
        with contextlib.ExitStack() as unused:
            unused.enter_context(listening)
            with context.wrap_socket(plain, server_hostname=_NAME) as connection:
                ready(connection)
                send(connection, _own(meeting, address, listening.getsockname()[1])._asdict())
                addresses, credentials = read_answer(connection, meeting.ranks, until)
            unused.pop_all()
    return listening, addresses, credentials


# Connections


def _at_any_time(context: ssl.SSLContext) -> ssl.SSLContext:
    """Accept the certificates of this machine's clock or any other: they prove nothing but the key."""
    context.verify_flags |= NO_CHECK_TIME
    return context


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other end has closed a connection on which it has nothing to say."""
    try:
        socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _plain(address: str) -> str:
    """Return an IP address, in which IPv4 is not written as IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found)
