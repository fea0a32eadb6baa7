"""Definitions shared by all ranks of a rendezvous: its address and key, the introduction of a rank, and the arguments
to join.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from blocks import stderr
from ooc.launch.preflight import own_packages, own_version
from ooc.launch.rendezvous_messages import RankIntroduction
from ooc.ring.credentials import NO_CHECK_TIME, RankCredentials
from ooc.ring.handshake import Address
from ooc.ring.ring import PATIENCE

JOIN_TIMEOUT = 600.0  # seconds for all ranks to arrive
LONGER = 5.0  # additional seconds that other ranks wait: rank 0 knows which ranks are missing, and reports first
NAME = "rendezvous"  # name in all certificates
_FIRST_NOTE, _NOTES = 10.0, 60.0  # seconds until a waiting rank prints its first note, and between further notes


class Rendezvous(NamedTuple):
    """Address, key and time limits of a rendezvous.

    key: 32 bytes that all ranks have, and nobody else.
    join_timeout: seconds for all ranks to arrive.
    patience: see `tcp.join`.
    ports: ports on which this rank may listen, unless it is rank 0; by default, the port of rank 0, or any port if that
        is taken.
    """

    host: str
    port: int
    key: bytes
    rank: int
    ranks: int
    join_timeout: float = JOIN_TIMEOUT
    patience: float = PATIENCE
    ports: range | None = None

    def __repr__(self) -> str:
        return f"Rendezvous({self.at}, rank {self.rank} of {self.ranks})"  # keep the key out of output and logs

    @property
    def at(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def introduction(self, address: str, port: int) -> RankIntroduction:
        """Return this rank's description of itself for rank 0.

        address, port: where it listens for the rank before it.
        """
        packages = {"ooc": own_version(), **own_packages()}
        return RankIntroduction(
            self.rank, self.ranks, socket.gethostname(), os.getpid(), packages, address, port, time.time()
        )


class JoinArguments(NamedTuple):
    """Arguments that a rank needs to connect to its neighbours.

    listening: socket on which the rank listens.
    names: names of all hosts.
    agree: see `tcp.join`.
    """

    listening: socket.socket
    addresses: list[Address]
    names: list[str]
    credentials: RankCredentials
    agree: Callable[[str], None]


class WaitingNotes:
    """Prints a note from time to time about what a rank is waiting for."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _FIRST_NOTE

    def say(self, text: str) -> None:
        if (now := time.monotonic()) > self._next:
            self._next = now + _NOTES
            stderr.print_note(text)


def at_any_time(context: ssl.SSLContext) -> ssl.SSLContext:
    """Accept certificates regardless of their period of validity, as clocks differ: they only prove that the peer has
    the key.
    """
    context.verify_flags |= NO_CHECK_TIME
    return context


def plain_address(address: str) -> str:
    """Return an IP address; an IPv4 address mapped to IPv6 is returned as IPv4."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found)
