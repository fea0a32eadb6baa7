"""What all ranks of a rendezvous share: where they meet, what they say of themselves, and what they learn."""

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

JOIN_TIMEOUT = 600.0  # seconds for all ranks to come
LONGER = 5.0  # seconds that others wait longer than rank 0, which knows who is missing
NAME = "rendezvous"  # in the certificates
_FIRST_NOTE, _NOTES = 10.0, 60.0  # seconds until a rank that waits says so, and between its notes


class Rendezvous(NamedTuple):
    """Where ranks meet. key: 32 bytes that all ranks have, and nobody else. join_timeout: seconds for all to come.
    patience: see `tcp.join`. ports: ports on which this rank may listen, unless it is rank 0; by default, the port of
    rank 0, or any port if that is taken."""

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
        """Return what this rank says of itself. address, port: where it listens for the rank before it."""
        packages = {"ooc": own_version(), **own_packages()}
        return RankIntroduction(
            self.rank, self.ranks, socket.gethostname(), os.getpid(), packages, address, port, time.time()
        )


class JoinArguments(NamedTuple):
    """What a rank has to know to join. listening: where it listens. names: of all hosts. agree: see `tcp.join`."""

    listening: socket.socket
    addresses: list[Address]
    names: list[str]
    credentials: RankCredentials
    agree: Callable[[str], None]


class WaitingNotes:
    """Say now and then what a rank is waiting for."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _FIRST_NOTE

    def say(self, text: str) -> None:
        if (now := time.monotonic()) > self._next:
            self._next = now + _NOTES
            stderr.print_note(text)


def at_any_time(context: ssl.SSLContext) -> ssl.SSLContext:
    """Accept the certificates of this machine's clock or any other: they prove nothing but the key."""
    context.verify_flags |= NO_CHECK_TIME
    return context


def plain_address(address: str) -> str:
    """Return an IP address, in which IPv4 is not written as IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found)
