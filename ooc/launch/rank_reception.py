"""Rank 0 of a rendezvous: wait for all ranks, check that they are compatible, and send them their answers."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from blocks import stderr
from blocks.errors import OocError, RequestError, WorkFailed
from ooc.launch.preflight import check_addresses, check_clocks, check_packages, check_reached, list_names
from ooc.launch.rendezvous_messages import (
    OTHER_VERSION,
    RankIntroduction,
    answer,
    go,
    read_introduction,
    read_reached,
    refusal,
    send,
)
from ooc.launch.rendezvous_settings import LONGER, JoinArguments, Rendezvous, WaitingNotes, at_any_time, plain_address
from ooc.ring import tcp
from ooc.ring.credentials import RankCredentials, issue_credentials
from ooc.ring.handshake import MANNERS, Address, ConnectionAcceptor, listen

_GLANCE = 0.2  # seconds between checks for new ranks

Present = Mapping[int, tuple[RankIntroduction, socket.socket]]  # by rank


class RankAuthenticator:
    """Authenticates the ranks that connect to rank 0, and reads their introductions. Attributes: `introductions`, by
    number of the connection.
    """

    def __init__(self, shared: RankCredentials) -> None:
        self.introductions: dict[int, RankIntroduction | OocError] = {}  # OocError: why the process cannot join
        self._context = at_any_time(shared.context(ssl.PROTOCOL_TLS_SERVER))
        self._numbers = itertools.count()

    def receive(self, stranger: socket.socket) -> socket.socket:
        """Return the encrypted connection to a peer that has connected; nothing is exchanged yet."""
        stranger.getpeername()  # if the peer is gone, the ssl module would leave an open socket behind
        return self._context.wrap_socket(stranger, server_side=True, do_handshake_on_connect=False)

    def greet(self, connection: socket.socket) -> tuple[int, bytes]:
        """Verify an accepted connection; returns its number, and nothing to answer yet."""
        assert isinstance(connection, ssl.SSLSocket)
        deadline = time.monotonic() + MANNERS
        connection.settimeout(MANNERS)
        try:
            connection.do_handshake()
        except ssl.SSLError as error:
            raise PermissionError(f"it does not have the key ({error.reason})") from None
        number, host = next(self._numbers), plain_address(connection.getpeername()[0])
        try:
            if (found := read_introduction(connection, deadline)) is None:
                raise RequestError(f"a process on {host} has an incompatible version of ooc", OTHER_VERSION)
            self.introductions[number] = found._replace(clock=found.clock - time.time())
        except OocError as error:
            self.introductions[number] = error
        return number, b""


def receive_all(meeting: Rendezvous, shared: RankCredentials, connections: contextlib.ExitStack) -> JoinArguments:
    """Wait for all ranks, and send them their answers; returns the arguments with which rank 0 joins.

    connections: stack that closes the connections to other ranks, which stay open.
    """
    reception = RankAuthenticator(shared)
    listening = _listen(meeting)
    with contextlib.ExitStack() as unused:
        again = unused.enter_context(listening.dup())  # the last rank connects to the same port
        with ConnectionAcceptor(listening, reception) as door:
            try:
                there = _all_ranks(door, reception, meeting)
                addresses = _addresses(meeting, {rank: each[0] for rank, each in there.items()}, _local(there))
            except OocError as error:
                _refuse_all(door, error, meeting.ranks - 1)
                raise
            for connection in door.take().values():
                connections.enter_context(connection)
        names = [socket.gethostname(), *(there[rank][0].hostname for rank in sorted(there))]
        credentials = issue_credentials(meeting.ranks)
        for rank, (_, connection) in there.items():
            with contextlib.suppress(OSError):  # `_let_all_go` notices that a rank is gone
                send(connection, answer(addresses, names, credentials[rank]))
        unused.pop_all()
    return JoinArguments(again, addresses, names, credentials[0], partial(_let_all_go, there, addresses, names))


def _let_all_go(there: Present, addresses: Sequence[Address], names: Sequence[str], problem: str) -> None:
    """Wait until each rank has connected to the next one, and tell all ranks to start.

    problem: why rank 0 cannot reach the next rank, see `tcp.join`.
    Raises WorkFailed on all ranks if some cannot reach the next one, or are gone.
    """
    deadline, problems = time.monotonic() + tcp.DEADLINE + LONGER, [problem]
    ranks = [f"rank {rank} ({name})" for rank, name in enumerate(names)]

    def remedy(failed: Sequence[int]) -> str:
        ports = ", ".join(map(str, sorted({addresses[rank][1] for rank in failed})))
        where = list_names([ranks[rank] for rank in failed])
        return (
            f"Open TCP port {ports} on {where}; --ports FIRST-LAST chooses the ports on which ranks listen. If an"
            " address is wrong, set --rendezvous to an address of rank 0 in the network of all ranks."
        )

    try:
        for rank in range(1, len(names)):
            try:
                problems.append(read_reached(there[rank][1], deadline))
            except OSError as error:
                raise WorkFailed(f"{ranks[rank]} was lost before all ranks were connected: {error}") from None
        check_reached(ranks, problems, remedy)
    except OocError as error:
        _tell_all(there, refusal(error))
        raise
    _tell_all(there, go())


def _tell_all(there: Present, message: dict[str, Any]) -> None:
    for _, connection in there.values():
        with contextlib.suppress(OSError):  # the ring notices that a rank is gone
            send(connection, message)


def _listen(meeting: Rendezvous) -> socket.socket:
    """Return the socket of rank 0: at the given IP address if this machine has it, else at all of its addresses.

    A host name does not tell the address: on Debian, a machine's own name resolves to 127.0.1.1.
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
            "Choose a free port. If another process here is rank 0, give each process its own --ring-rank.",
        ) from None


def _all_ranks(door: ConnectionAcceptor, reception: RankAuthenticator, meeting: Rendezvous) -> Present:
    """Wait for all other ranks.

    Raises WorkFailed if some do not arrive in time, RequestError if one is not compatible.
    """
    others, deadline, notes = meeting.ranks - 1, time.monotonic() + meeting.join_timeout, WaitingNotes()
    own = meeting.introduction("", 0)
    while True:
        door.wait(lambda inside: len(inside) >= others, min(deadline, time.monotonic() + _GLANCE))
        there = _present(door, reception, own)
        if len(there) == others:
            return there
        missing = [rank for rank in range(1, meeting.ranks) if rank not in there]
        names = f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(map(str, missing[:8]))}"
        told = f"{names}{' and others' if len(missing) > 8 else ''} of {meeting.ranks}"
        if time.monotonic() > deadline:
            raise WorkFailed(
                f"{told} did not connect to {meeting.at} within {meeting.join_timeout:g} s{door.refusal}",
                "Check the output of these ranks. If there is a firewall, open this port."
                " --join-timeout gives them more time.",
            )
        notes.say(f"waiting at {meeting.at} for {told}{door.refusal}")


def _present(
    door: ConnectionAcceptor, reception: RankAuthenticator, own: RankIntroduction
) -> dict[int, tuple[RankIntroduction, socket.socket]]:
    """Return the ranks whose connections are open.

    Raises the error of a rank that cannot join, RequestError if two processes have the same rank or a rank is not
    compatible.
    """
    there: dict[int, tuple[RankIntroduction, socket.socket]] = {}
    for number, connection in door.accepted().items():
        each = reception.introductions[number]
        if isinstance(each, OocError):
            raise each
        if _is_closed(connection):
            door.drop(number)
            continue
        _check_fits(own, each)
        if each.rank in there:
            other = there[each.rank][0]
            raise RequestError(
                f"two processes have the rank {each.rank}: process {other.process} on {other.hostname} and process"
                f" {each.process} on {each.hostname}",
                "Set a different number, from 0, for each process: --ring-rank, or RANK in its environment.",
            )
        there[each.rank] = each, connection
    return there


def _check_fits(own: RankIntroduction, other: RankIntroduction) -> None:
    if other.ranks != own.ranks:
        raise RequestError(
            f"{own.name} expects {own.ranks} ranks, but {other.name} expects {other.ranks}",
            "Start all ranks with the same --ring-size.",
        )
    if not 0 < other.rank < own.ranks:
        raise RequestError(f"{other.name} connected to rank 0, but ranks are from 0 to {own.ranks - 1}")
    check_packages([own.name, other.name], [own.packages, other.packages])


def _addresses(meeting: Rendezvous, there: Mapping[int, RankIntroduction], own_address: Address) -> list[Address]:
    """Check the addresses of all ranks, and return them.

    own_address: address of rank 0.
    """
    found = [meeting.introduction(*own_address), *(there[rank] for rank in range(1, meeting.ranks))]
    names = [each.name for each in found]
    check_addresses(
        [each.address for each in found],
        [each.hostname for each in found],
        names,
        "Set --rendezvous to the IP address of rank 0 in the network of all ranks, not to its name.",
    )
    for warning in check_clocks(names[1:], [each.clock for each in found[1:]]):
        stderr.print_warning(warning)
    return [(each.address, each.port) for each in found]


def _refuse_all(door: ConnectionAcceptor, error: OocError, others: int) -> None:
    """Send rank 0's error to the other ranks; if the request is invalid, also to ranks that connect soon afterwards."""
    deadline = time.monotonic() + (LONGER if isinstance(error, RequestError) else 0.0)
    told = 0
    while True:
        for connection in door.take().values():
            told += 1
            with connection, contextlib.suppress(OSError):
                send(connection, refusal(error))
        if told >= others or not door.wait(bool, deadline):
            return


def _local(there: Present) -> Address:
    """Return the address and port at which the last rank reached this one."""
    address, port = there[max(there)][1].getsockname()[:2]
    return plain_address(address), int(port)


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the peer has closed a connection on which it does not send anything."""
    try:
        socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
