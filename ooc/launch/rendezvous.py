"""Rendezvous of the ranks of a ring without ssh: rank 0 listens at an address, and all ranks that have the key connect
to it.

A scheduler starts the processes. Each process derives the private key of a certificate authority from the shared key
and issues itself a certificate, so TLS 1.3 proves to both ends of a connection that the peer has the key, which is
never sent. Each rank introduces itself; rank 0 waits for all ranks, checks that their requests are compatible, and
answers with all addresses and with credentials for this run, as `ooc launch` does through ssh. The ring that follows is
the same.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import re
import socket
import ssl
import time
from pathlib import Path

from blocks.errors import RequestError, WorkFailed
from ooc.launch.key_file import read_key
from ooc.launch.ports import listen_on, parse_ports
from ooc.launch.rank_number import place
from ooc.launch.rank_reception import receive_all
from ooc.launch.rendezvous_messages import (
    reached,
    read_answer,
    read_go,
    refusal,
    send,
)
from ooc.launch.rendezvous_settings import (
    JOIN_TIMEOUT,
    LONGER,
    NAME,
    JoinArguments,
    Rendezvous,
    WaitingNotes,
    at_any_time,
    plain_address,
)
from ooc.ring import tcp
from ooc.ring.credentials import RankCredentials, key_credentials
from ooc.ring.handshake import MANNERS, listen_at, prepare_socket
from ooc.ring.ring import PATIENCE, LocalRing, Ring

_RETRY, _MOST_RETRY = 0.1, 2.0  # first and maximum number of seconds between attempts to reach rank 0
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]]+)):(?P<port>[0-9]{1,5})")
_BUSY = "TLSV1_UNRECOGNIZED_NAME"  # answer of a rank that is connecting to its neighbours


def rendezvous(
    address: str,
    key_file: str | Path,
    rank: int | None = None,
    ranks: int | None = None,
    *,
    join_timeout: float = JOIN_TIMEOUT,
    patience: float = PATIENCE,
    ports: str | None = None,
) -> Rendezvous:
    """Return the rendezvous of this process.

    address: host:port of rank 0.
    rank, ranks: see `place`.
    """
    host, port = _host_and_port(address)
    for name, seconds in (("join-timeout", join_timeout), ("patience", patience)):
        if not 1 <= seconds <= 86400:
            raise RequestError(f"--{name} must be from 1 to 86400 seconds, got {seconds:g}")
    rank, ranks = place(rank, ranks)
    own = parse_ports(ports, "--ports") if ports else None
    return Rendezvous(host, port, read_key(Path(key_file)), rank, ranks, join_timeout, patience, own)


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
        "Use the host of rank 0 and a free port: node1:29400, or [2001:db8::1]:29400 for IPv6.",
    )


def join(meeting: Rendezvous) -> Ring:
    """Return the ring of all ranks. Every rank must call this function, which blocks until all ranks have called it.

    Raises RequestError if the ranks are not compatible, WorkFailed if some do not arrive in time or cannot reach the
    next rank.
    """
    if meeting.ranks == 1:
        return LocalRing()
    come = receive_all if meeting.rank == 0 else _introduce
    with contextlib.ExitStack() as connections:
        met = come(meeting, key_credentials(meeting.key, NAME), connections)
        return tcp.join(
            meeting.rank,
            met.addresses,
            met.listening,
            met.credentials,
            patience=meeting.patience,
            names=met.names,
            agree=met.agree,
        )


def _introduce(meeting: Rendezvous, shared: RankCredentials, connections: contextlib.ExitStack) -> JoinArguments:
    """Connect to rank 0, introduce this rank, and return the answer of rank 0.

    connections: stack that closes the connection to rank 0, which stays open.

    If rank 0 cannot be reached or closes the connection, it may be restarting: this rank retries until the timeout.
    """
    context = at_any_time(shared.context(ssl.PROTOCOL_TLS_CLIENT))
    began, notes, pause = time.monotonic(), WaitingNotes(), _RETRY
    deadline = began + meeting.join_timeout + LONGER
    obstacle: object = "the timeout was reached"
    while time.monotonic() < deadline:
        try:
            return _ask(meeting, context, deadline, connections)
        except ssl.SSLCertVerificationError:
            raise RequestError(
                f"the process at {meeting.at} does not have the key of this rank",
                "Use the same --key-file on all ranks, and a different port for each run.",
            ) from None
        except OSError as error:
            busy = getattr(error, "reason", None) == _BUSY
            obstacle = "the ranks of another start are connecting there right now" if busy else error
        notes.say(f"waiting for rank 0 at {meeting.at}: {obstacle}")
        time.sleep(min(pause * random.uniform(0.5, 1.0), max(deadline - time.monotonic(), 0.0)))
        pause = min(2 * pause, _MOST_RETRY)
    raise WorkFailed(
        f"rank {meeting.rank} could not join the ring at {meeting.at} within {time.monotonic() - began:.0f} s:"
        f" {obstacle}",
        "Check the output of rank 0, which must run on this host. If there is a firewall, open this port."
        " --join-timeout gives all ranks more time.",
    )


def _ask(
    meeting: Rendezvous, context: ssl.SSLContext, deadline: float, connections: contextlib.ExitStack
) -> JoinArguments:
    with contextlib.ExitStack() as unused:
        plain = unused.enter_context(socket.create_connection((meeting.host, meeting.port), MANNERS))
        address = plain_address(plain.getsockname()[0])
        connection = unused.enter_context(context.wrap_socket(plain, server_hostname=NAME))
        prepare_socket(connection)
        try:
            listening = unused.enter_context(_listen_beside(meeting, address))
        except RequestError as error:
            with contextlib.suppress(OSError):
                send(connection, refusal(error))
                read_answer(connection, meeting.ranks, time.monotonic() + LONGER)  # rank 0 ends with the same error
            raise
        send(connection, meeting.introduction(address, listening.getsockname()[1])._asdict())
        addresses, names, credentials = read_answer(connection, meeting.ranks, deadline)
        unused.pop_all()
    connections.enter_context(connection)

    def agree(problem: str) -> None:
        try:
            send(connection, reached(problem))
            read_go(connection, time.monotonic() + tcp.DEADLINE + 2 * LONGER)
        except OSError as error:
            raise WorkFailed(f"rank 0 ({names[0]}) was lost before all ranks were connected: {error}") from None

    return JoinArguments(listening, addresses, names, credentials, agree)


def _listen_beside(meeting: Rendezvous, address: str) -> socket.socket:
    """Return the socket on which a rank other than 0 listens.

    address: address of this machine at which other ranks can reach it.

    Raises RequestError, which names this rank, if no port is free.
    """
    name = f"rank {meeting.rank} ({socket.gethostname()})"
    try:
        if meeting.ports:
            return listen_on(address, meeting.ports)
    except RequestError as error:
        raise RequestError(f"{name}: {error.what}", error.remedy) from None
    if (listening := listen_at(address, (meeting.port, 0))) is None:
        raise RequestError(f"{name} cannot listen at {address} or at any other address")
    return listening
