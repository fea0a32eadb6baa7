"""Messages of a rendezvous: the introduction that each rank sends to rank 0, and the answer.

A message is its length and a JSON object. All who can send one have the key, but may run another version of ooc.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from blocks.errors import OocError, RequestError, error_of
from ooc.ring.credentials import Credentials
from ooc.ring.handshake import MANNERS, Address, read_exactly

_LENGTH = struct.Struct("<I")  # of a message
_MOST_INTRODUCTION, _MOST_ANSWER = 1 << 14, 1 << 24  # bytes
_LONGEST_NAME = 253  # characters of a host's name
OTHER_VERSION = "Install the same version of ooc on all ranks."


class Introduction(NamedTuple):
    """What a rank says of itself. address, port: where it listens for its neighbour. clock: seconds since 1970 when it
    is sent, seconds ahead of rank 0 when it has arrived."""

    rank: int
    ranks: int
    hostname: str
    process: int
    packages: dict[str, str]
    address: str
    port: int
    clock: float

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.hostname})"


_KINDS = (int, int, str, int, dict, str, int, float)  # of the fields of an introduction


def read_introduction(connection: socket.socket, until: float) -> Introduction | None:
    """Return the introduction that a rank sends; None if this version does not understand it.

    Raises OSError if it is late, or is no message.
    """
    message = _read(connection, _MOST_INTRODUCTION, until)
    try:
        found = Introduction(**message)
        ipaddress.ip_address(found.address)
    except (TypeError, ValueError):
        return None
    valid = all(type(value) is kind for value, kind in zip(found, _KINDS, strict=True))
    valid = valid and all(type(version) is str for version in found.packages.values())
    valid = valid and found.hostname.isprintable() and len(found.hostname) <= _LONGEST_NAME
    return found if valid and 0 < found.port < 1 << 16 else None


def answer(addresses: Sequence[Address], credentials: Credentials) -> dict[str, Any]:
    """Return the answer of rank 0 to a rank. addresses: of all ranks. credentials: of this rank."""
    return {"addresses": [*addresses], "credentials": credentials._asdict()}


def refusal(error: OocError) -> dict[str, Any]:
    """Return the answer of rank 0 if it ends with an error."""
    return {"refused": [error.what, error.remedy], "code": error.exit_code}


def read_answer(connection: socket.socket, ranks: int, until: float) -> tuple[list[Address], Credentials]:
    """Return the addresses of all ranks and the credentials of this one, as rank 0 answers.

    Raises the error with which rank 0 refuses, RequestError if this version does not understand the answer, OSError if
    it is late or is no message.
    """
    message = _read(connection, _MOST_ANSWER, until)
    try:
        if "refused" in message:
            what, remedy = map(str, message["refused"])
            refused: OocError = error_of(message["code"])(what, remedy)
        else:
            addresses = [(str(ipaddress.ip_address(host)), int(port)) for host, port in message["addresses"]]
            if len(addresses) == ranks:
                return addresses, Credentials(**message["credentials"])
            raise ValueError
    except (KeyError, TypeError, ValueError):
        refused = RequestError("rank 0 answers as another version of ooc does", OTHER_VERSION)
    raise refused


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message; raises OSError if it is not taken in time."""
    data = json.dumps(message).encode()
    connection.settimeout(MANNERS)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _read(connection: socket.socket, most: int, until: float) -> dict[str, Any]:
    """Read a message of at most so many bytes; raises OSError if it is invalid or late."""
    (length,) = _LENGTH.unpack(read_exactly(connection, _LENGTH.size, until))
    try:
        if length <= most and isinstance(found := json.loads(read_exactly(connection, length, until)), dict):
            return found
    except (ValueError, RecursionError):
        pass
    raise ConnectionError("it sent an invalid message")
